"""Worker processes: their threads, and their end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from contamination.core.worker_pool import worker_pool

COMMAND = """
import sys, time
from contamination.core.signals import stop_on_signals
from contamination.core.worker_pool import worker_pool

def work(data):
    time.sleep(30)

if __name__ == "__main__":
    data = [bytes(100_000)] * 20  # more than the pipe to the workers takes
    with stop_on_signals(), worker_pool(2) as pool:
        print("starting", flush=True)
        if sys.argv[1] == "waits":
            list(pool.map(work, data))
        else:
            for part in data:
                pool.submit(work, part)
else:  # a worker imports this script, too
    time.sleep(1)
"""


OF_OTHERS = "spawn_main", "SpawnProcess", "Exception in thread"
"""In the tracebacks of workers and of the pool's thread; the command itself raises its error."""


def said_after(folder, seconds, send, how="waits"):
    """Starts the command and sends it a signal; what it says until all its processes have ended."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    with subprocess.Popen(
        [sys.executable, script, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stdout.readline() == "starting\n"
        time.sleep(seconds)
        send(command.pid)
        try:
            return command.communicate(timeout=40)[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)


def test_a_worker_tokenizes_with_one_thread(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "TOKENIZERS_PARALLELISM").result() == "false"


@pytest.mark.parametrize("how", ["waits", "leaves"])
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.7, 2.5])
def test_ctrl_c_ends_all_processes_with_one_message(tmp_path, seconds, how):
    said = said_after(tmp_path, seconds, lambda pid: os.killpg(pid, signal.SIGINT), how)
    assert not any(text in said for text in OF_OTHERS)
    assert said.rstrip().splitlines()[-1].endswith("run the same command again to resume.")


@pytest.mark.parametrize("how", ["waits", "leaves"])
def test_a_signal_to_the_parent_alone_ends_the_workers_at_once(tmp_path, how):
    began = time.monotonic()
    said = said_after(tmp_path, 3, lambda pid: os.kill(pid, signal.SIGTERM), how)
    assert not any(text in said for text in OF_OTHERS)
    assert "SIGTERM was received" in said
    assert time.monotonic() - began < 25  # the work takes 30


@pytest.mark.parametrize("seconds", [0.3, 2.5])
def test_the_end_of_the_parent_ends_a_worker_that_is_still_starting(tmp_path, seconds):
    said_after(tmp_path, seconds, lambda pid: os.kill(pid, signal.SIGKILL))
