"""Before a command has begun and after it has ended: SIGTERM, SIGINT, and the launcher's death.

`python -m <package>` imports the package for seconds before its command runs. Each package of this
project that can be run imports this first. A signal then ends the process at once: there is
nothing to save yet, or nothing left. While the command runs `core.signals` answers instead.
A launcher's process ends with its launcher.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar, TextIO

from contamination.core.parent_process import LAUNCHER, end_with_parent
from contamination.core.terminal import REDRAWING, escaped


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`, which imports a public name's module when the name is first used.

    Args:
        package: the package's `__name__`.
        modules: public name → the module in the package that defines it.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get


class _Outliving(io.FileIO):
    """A pipe to whoever reads, and to nobody once he has gone.

    What a full disk refuses is an error, once: nothing is written there any more.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):
                name = "standard error" if self.fileno() == 2 else "standard output"
                raise OSError(error.errno, error.strerror, name) from error
            return super().write(data)


class _Escaping(io.TextIOWrapper):
    """Text whose control characters are escaped, but for those that are allowed."""

    allowed: ClassVar[Sequence[str]] = ()

    def write(self, text: str) -> int:
        super().write(escaped(text, self.allowed))
        return len(text)


class _Redrawing(_Escaping):
    """The same for a stream on which progress bars redraw their line."""

    allowed = REDRAWING


def outlive_readers() -> None:
    """From now on no work ends, and nothing is said, because nobody reads any more.

    A sign that the reader's encoding lacks becomes a question mark. Control characters are escaped,
    but for those by which progress bars redraw their line on standard error.
    """
    sys.stdout = _outliving(sys.stdout, _Escaping)
    sys.stderr = _outliving(sys.stderr, _Redrawing)


def _outliving(stream: TextIO, kind: type[io.TextIOWrapper]) -> TextIO:
    return kind(
        io.BufferedWriter(_Outliving(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace" if stream.errors == "strict" else stream.errors,
        line_buffering=True,
    )


PACKAGES = ("injection", "training", "detection", "analysis", "audits", "launch")
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
    by_module = (
        sys.argv[:1] == ["-m"]
        and sys.orig_argv[-len(sys.argv)].removeprefix("contamination.") in PACKAGES
    )
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
