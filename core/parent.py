"""A process that ends when its parent dies, so that a killed launcher leaves no orphan (Linux).

python -m core.parent PID COMMAND …     runs the command; PID is the parent's
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent(number: signal.Signals, parent: int) -> None:
    """Let the kernel send this process the signal when the process `parent` dies.

    It stays so when this process runs another program (exec). Elsewhere than on Linux it does
    nothing.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it died before
        os.kill(os.getpid(), number)


def tied(call: Sequence[str]) -> list[str]:
    """The command such that it gets SIGTERM when this process dies."""
    return [sys.executable, "-m", "core.parent", str(os.getpid()), *call]


def main() -> None:
    """Become the command."""
    end_with_parent(signal.SIGTERM, int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
