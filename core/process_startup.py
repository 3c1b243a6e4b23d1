"""Sets up a process before its command begins: signals, output streams and lazy imports.

Each package that can be run imports this module first. Before the command begins, and after it has
ended, SIGTERM and SIGINT end the process at once, since there is nothing to save. While the command
runs, `core.signals` handles them. A process that a launcher started ends with its launcher.
"""

from __future__ import annotations

import io
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar, TextIO

from contamination.core.parent_process import LAUNCHER_PID_VARIABLE, end_with_parent
from contamination.core.terminal import REDRAWING, escape_controls

PACKAGES = ("injection", "training", "detection", "analysis", "audits", "launch")
"""The packages that can be run with `python -m`."""
COMMAND = IMPORT_NAME = "contamination"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which imports a module when one of its names is used.

    Args:
        package: the package's `__name__`.
        modules: public name → the module of the package that defines it.

    Raises:
        ImportError: the package is imported under its folder's name; see `check_import_name`.
    """
    check_import_name(package)

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return import_name


def check_import_name(package: str) -> None:
    """Checks that a package is imported as `contamination.<package>`.

    In a checkout, `import detection` would create a second copy of each class, for which
    `isinstance` is false. `python -m detection` is allowed: it only runs `contamination.detection`.

    Raises:
        ImportError: the package is imported by the name of its folder.
    """
    if package.startswith(f"{IMPORT_NAME}.") or _is_imported_to_be_run():
        return
    raise ImportError(
        f"{package} is imported by the name of its folder, which would create a second copy of "
        f"each class: import {IMPORT_NAME}.{package} instead."
    )


def _is_imported_to_be_run() -> bool:
    """Whether `runpy` imports the package in order to run its `__main__` (`python -m`)."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_get_module_details" and frame.f_globals is vars(runpy):
            return True
        frame = frame.f_back
    return False


class _UnbreakableFile(io.FileIO):
    """A file that writes to /dev/null once its pipe is closed or its disk is full.

    The first write that fails because of a full disk raises an OSError.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self.fileno())
            os.close(devnull)
            if not isinstance(error, BrokenPipeError):
                name = "standard error" if self.fileno() == 2 else "standard output"
                raise OSError(error.errno, error.strerror, name) from error
            return super().write(data)


class _EscapingStream(io.TextIOWrapper):
    """A text stream that escapes control characters, except the allowed ones."""

    allowed: ClassVar[Sequence[str]] = ()

    def write(self, text: str) -> int:
        super().write(escape_controls(text, self.allowed))
        return len(text)


class _ProgressStream(_EscapingStream):
    """An escaping stream on which progress bars may redraw their line."""

    allowed = REDRAWING


def make_output_unbreakable() -> None:
    """Replaces standard output and error by streams that survive the end of their reader.

    The work then continues without a message. Characters that the stream's encoding does not have
    become question marks. Control characters are escaped, except those with which progress bars
    redraw their line on standard error.
    """
    sys.stdout = _make_unbreakable(sys.stdout, _EscapingStream)
    sys.stderr = _make_unbreakable(sys.stderr, _ProgressStream)


def _make_unbreakable(stream: TextIO, stream_class: type[io.TextIOWrapper]) -> TextIO:
    return stream_class(
        io.BufferedWriter(_UnbreakableFile(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace" if stream.errors == "strict" else stream.errors,
        line_buffering=True,
    )


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    # a launcher reports the signal for its processes; a shell completion (-sc) prints nothing
    if "RANK" not in os.environ and "-sc" not in sys.orig_argv:
        name = signal.Signals(number).name
        message = f"stopped: {name} was received. Run the same command again to resume.\n"
        os.write(2, message.encode())
    os._exit(128 + number)


def _launcher_pid() -> int:
    """The process id of the launcher: the parent of this process, unless it has already died."""
    recorded = (
        os.environ.get(LAUNCHER_PID_VARIABLE) if "TORCHELASTIC_RUN_ID" in os.environ else None
    )
    return int(recorded or os.getppid())


def _is_project_command() -> bool:
    """Whether a command of this project is about to run; other programs keep their handlers."""
    if sys.argv[:1] == ["-m"]:  # `python -m MODULE`, while Python looks for the module
        return sys.orig_argv[-len(sys.argv)].removeprefix(f"{IMPORT_NAME}.") in PACKAGES
    return os.path.basename(sys.argv[0]) == COMMAND


def _print_loading() -> None:
    """Prints a line on a terminal, unless the command is one of those that answer quickly."""
    is_fast = {"status", "-h", "--help"} & {*sys.orig_argv}
    if sys.stdout.isatty() and sys.stderr.isatty() and not is_fast:
        os.write(2, b"Loading ...\n")


if _is_project_command():
    make_output_unbreakable()
    if "RANK" not in os.environ:
        _print_loading()
    for _number in SIGNALS:
        signal.signal(_number, _exit_at_once)
    if "RANK" in os.environ:  # unsaved work is lost in any case
        end_with_parent(signal.SIGKILL, _launcher_pid())
