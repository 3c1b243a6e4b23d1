"""Worker processes: their threads, and their end."""

import os
import signal
import subprocess
import sys
import time

import pytest

from contamination.core.worker_pool import worker_pool

STOPPED_COMMAND = """
import sys, time
from contamination.core.signals import stop_on_signals
from contamination.core.worker_pool import worker_pool

if __name__ == "__main__":
    with stop_on_signals(), worker_pool(1) as pool:
        work = pool.submit(time.sleep, 30)
        print("submitted", flush=True)
        work.result()
else:  # the worker imports this script, too
    time.sleep(1)
"""


def test_a_worker_tokenizes_with_one_thread(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "TOKENIZERS_PARALLELISM").result() == "false"


@pytest.mark.parametrize("seconds", [0.0, 0.7, 2.5])
def test_ctrl_c_ends_all_processes_with_one_message(tmp_path, seconds):
    script = tmp_path / "command.py"
    script.write_text(STOPPED_COMMAND)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stdout.readline() == "submitted\n"
        time.sleep(seconds)  # the worker is starting, or at work
        stopped = time.monotonic()
        os.killpg(command.pid, signal.SIGINT)
        _, said = command.communicate(timeout=30)  # until all processes have ended
    assert said.count("Traceback") == 1  # of the error that this script raises
    assert said.rstrip().splitlines()[-1].endswith("run the same command again to resume.")
    assert time.monotonic() - stopped < 5
