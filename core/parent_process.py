"""Ends a process when its parent dies, so that a killed launcher leaves no orphans (Linux only).

python -m contamination.core.parent_process PID COMMAND …     runs the command; PID is the parent's
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

TORCHRUN_MODULE = "torch.distributed.run"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LAUNCHER_PID_VARIABLE = "CONTAMINATION_LAUNCHER"
"""Environment variable with torchrun's process id, for the processes that it starts."""


def end_with_parent(signal_number: signal.Signals, parent_pid: int) -> None:
    """Asks the kernel to send this process a signal when the process `parent_pid` dies.

    The request survives an `exec`. On systems other than Linux this does nothing.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent_pid:  # it has already died
        os.kill(os.getpid(), signal_number)


def command_ending_with_parent(call: Sequence[str]) -> list[str]:
    """Returns a command that runs `call` and receives SIGTERM when this process dies."""
    return [sys.executable, "-m", "contamination.core.parent_process", str(os.getpid()), *call]


def run_command_from_argv() -> None:
    """Replaces this process by the command in the arguments."""
    end_with_parent(signal.SIGTERM, int(sys.argv[1]))
    os.environ[LAUNCHER_PID_VARIABLE] = str(os.getpid())
    if sys.argv[2:5] == [sys.executable, "-m", TORCHRUN_MODULE]:
        sys.exit(_run_torchrun(sys.argv[5:]))
    os.execvp(sys.argv[2], sys.argv[2:])


def _run_torchrun(arguments: Sequence[str]) -> int:
    """Runs torchrun in this process, without its traceback after a signal."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.run import main as run

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until torchrun sets its own handler
    try:
        run(list(arguments))
    except SignalException as stopped:
        return 128 + stopped.sigval
    return 0


if __name__ == "__main__":
    run_command_from_argv()
