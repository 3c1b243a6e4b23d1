"""Commands by forks of a process that has imported everything: each starts in milliseconds."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.launch.started import ENVIRONMENT

REPOSITORY = Path(__file__).resolve().parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


class ForkServer:
    """Runs `python -m` with any arguments, each in a fork."""

    def __init__(self, environment: Mapping[str, str] = ONE_THREAD) -> None:
        self._lock = threading.Lock()  # several threads may ask
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server"], cwd=REPOSITORY, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**ENVIRONMENT, **environment, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip

    def start(self, words: list[str], log: Path, environment: Mapping[str, str]) -> ForkedCommand:
        """Starts a module with arguments in a session of its own; what it says goes to `log`."""
        return ForkedCommand(self, self.ask("start", words, str(log), dict(environment)))

    def launch(self, *words: str) -> tuple[int, str]:
        """The exit status of `python -m launch`, and all that it says."""
        with tempfile.NamedTemporaryFile() as log:
            status = self.start(["launch", *words], Path(log.name), {}).wait(600)
            return status, log.read().decode()

    def ask(self, *request: object) -> int | None:
        """The server's answer."""
        with self._lock:
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self._server.communicate()


class ForkedCommand:
    """A command that runs, with the part of `subprocess.Popen` that its users need."""

    def __init__(self, warm: ForkServer, pid: int) -> None:
        self._warm, self.pid, self._status = warm, pid, None

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        if self._status is None:
            self._status = self._warm.ask("status", self.pid)
        return self._status

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit status; TimeoutExpired if it takes longer."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return status


def _serve() -> None:
    from tests.bad_inputs.server import MODULES

    for module in (*MODULES, "contamination.launch.__main__"):
        __import__(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the one who asks
    while line := sys.stdin.readline():
        request, *arguments = json.loads(line)
        print(
            json.dumps(_start(*arguments) if request == "start" else _status(*arguments)),
            flush=True,
        )


def _status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _start(words: list[str], log: str, environment: dict[str, str]) -> int:
    child = os.fork()
    if child == 0:
        _run(words, log, environment)
    return child


def _run(words: list[str], log: str, environment: dict[str, str]) -> None:
    """In the fork: the command, then the end of the process."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        os.environ.update(environment)
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
