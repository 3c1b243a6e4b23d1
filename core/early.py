"""Before a command has begun and after it has ended: SIGTERM, SIGINT, and the launcher's death.

`python -m <package>` imports the package for seconds before its command runs. Each package of this
project that can be run imports this first. A signal then ends the process at once: there is
nothing to save yet, or nothing left. While the command runs `core.stopping` answers instead.
A launcher's process ends with its launcher.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from core.outputs import outlive_readers
from core.parent import LAUNCHER, end_with_parent

PACKAGES = ("injection", "training", "detection", "analysis", "launch")
COMMAND = "contamination"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _end(number: int, frame: FrameType | None) -> None:
    # of a launcher's processes the launcher says it, and a completion (-sc) says nothing
    if "RANK" not in os.environ and "-sc" not in sys.orig_argv:
        said = (
            f"stopped: {signal.Signals(number).name} came. Run the same command again to resume.\n"
        )
        os.write(2, said.encode())
    os._exit(128 + number)


def _launcher() -> int:
    """The launcher's process: this one's parent, or what that was before it died."""
    told = os.environ.get(LAUNCHER) if "TORCHELASTIC_RUN_ID" in os.environ else None
    return int(told or os.getppid())


def _is_run() -> bool:
    """Whether one of the packages is about to run: another program keeps its handlers."""
    by_module = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] in PACKAGES
    return by_module or os.path.basename(sys.argv[0]) == COMMAND


def _say_loading() -> None:
    """Whoever sits at a terminal sees at once that something happens; status answers as fast."""
    if sys.stdout.isatty() and sys.stderr.isatty() and "status" not in sys.orig_argv:
        os.write(2, b"Loading ...\n")


if _is_run():
    outlive_readers()
    if "RANK" not in os.environ:
        _say_loading()
    for _number in SIGNALS:
        signal.signal(_number, _end)
    if "RANK" in os.environ:  # what it has not saved is lost either way
        end_with_parent(signal.SIGKILL, _launcher())
