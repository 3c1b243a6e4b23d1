"""Commands by forks of a process that has imported everything: each starts in milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


class Warm:
    """`python -m launch`, as often as wanted."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.warm"], cwd=REPOSITORY, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip

    def launch(self, *words: str) -> tuple[int, str]:
        """The command's exit status, and all that it says."""
        self._server.stdin.write(json.dumps(words) + "\n")
        self._server.stdin.flush()
        status, said = json.loads(self._server.stdout.readline())
        return status, said

    def close(self) -> None:
        """End the server."""
        self._server.communicate()


def _serve() -> None:
    import contamination.training.deepspeed_engine  # noqa: F401
    from contamination.launch.__main__ import main

    while words := sys.stdin.readline():
        with tempfile.TemporaryFile("w+") as said:
            child = os.fork()
            if child == 0:
                _run(main, json.loads(words), said)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps([status, said.read()]), flush=True)


def _run(main, words, said):
    """In the fork: the command, then the end of the process."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    sys.argv = ["launch", *words]
    status = 1
    try:
        status = main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
