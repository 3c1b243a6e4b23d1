"""Files that the user names (`out=`, `examples.path=`): they may be links, pipes or devices."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from contamination.core.errors import DataError
from contamination.core.files import sync_to_disk, temporary_path

AGAIN_SECONDS = 1.0
"""Interval at which the alarm is repeated, since Python drops exceptions raised in a destructor."""


@contextmanager
def time_limit(seconds: float, make_error: Callable[[], Exception]) -> Iterator[None]:
    """Raises `make_error()` in the body if it has not ended after `seconds`.

    The limit is a signal (SIGALRM), which interrupts Python code and system calls such as `open`,
    but not a long computation in C. Only the main thread receives signals, so there is no limit in
    other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise make_error()

    handler = signal.signal(signal.SIGALRM, interrupt)
    start = time.monotonic()
    outer_seconds, outer_interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer_seconds:  # restore the caller's alarm, at most a moment late
            left = outer_seconds - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), outer_interval)


PIPE_SECONDS = 30.0  # how long another process may take to open the other end of a named pipe
SHELL_DESCRIPTORS = range(1, 10)
"""Standard output and error, and the descriptors of redirections such as a shell's `3>FILE`."""


@contextmanager
def atomic_output_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path; after the body, its content becomes the content of `path`.

    A regular file is replaced atomically; a symbolic link is kept and its target is replaced. If
    the body fails, the old file is kept. A named pipe, a terminal, /dev/stdout or another character
    device is never replaced: the content is written into it.

    Raises:
        DataError: `path` is a folder, a socket or a block device, no process reads the pipe within
            PIPE_SECONDS, or the device does not accept the content.
    """
    if reason := output_refusal_reason(path):
        raise DataError(f"out is {str(path)!r}: {reason}")
    if is_pipe_or_device(path):
        with tempfile.TemporaryDirectory() as folder:
            content_file = Path(folder) / "content"
            yield content_file
            _copy_into_pipe_or_device(path, content_file)
        return
    target = Path(os.path.realpath(path))
    unfinished = temporary_path(target)
    try:
        yield unfinished
        if target.exists():
            unfinished.chmod(stat.S_IMODE(target.stat().st_mode))  # keep the permissions
        sync_to_disk(unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_to_disk(target.parent)


def output_refusal_reason(path: Path) -> str:
    """Returns the reason why output can't be written to `path` and a remedy, or ""."""
    mode = _file_mode(path)
    if stat.S_ISDIR(mode):
        return "it is a folder. Give a file."
    if stat.S_ISBLK(mode):
        return "it is a disk. Give a file."
    if mode and not stat.S_ISREG(mode) and _open_descriptor_of(path) is None:
        if stat.S_ISSOCK(mode):
            return "it is a socket. Give a file or a named pipe."
        if not os.access(path, os.W_OK):
            return "it can't be written to. Give another file."
    return ""


def is_pipe_or_device(path: Path) -> bool:
    """Returns whether `path` is a pipe or a device, which must not be replaced by a file."""
    mode = _file_mode(path)
    return bool(mode) and (not stat.S_ISREG(mode) or _open_descriptor_of(path) is not None)


def open_to_read(path: Path) -> BinaryIO:
    """Opens a file to read it.

    Raises:
        DataError: it is a named pipe to which no process writes within PIPE_SECONDS.
    """
    with time_limit(PIPE_SECONDS, lambda: _missing_pipe_partner_error(str(path), "writes to")):
        return path.open("rb")


def _copy_into_pipe_or_device(path: Path, content_file: Path) -> None:
    for output in (sys.stdout, sys.stderr):  # so that earlier output comes first
        if output is not None:
            output.flush()
    descriptor = _open_descriptor_of(path)
    try:
        with time_limit(
            PIPE_SECONDS, lambda: _missing_pipe_partner_error(f"out is {str(path)!r}", "reads")
        ):
            if descriptor is None:
                sink = os.open(path, os.O_WRONLY | os.O_NOCTTY)
            else:
                sink = os.dup(descriptor)
        with content_file.open("rb") as source, open(sink, "wb") as stream:
            shutil.copyfileobj(source, stream)
    except OSError as error:
        reason = str(error.strerror or error)
        if error.errno == errno.EPIPE:
            reason = "the process that read it has ended"
        remedy = "Give a file, or a device that accepts output."
        raise DataError(f"out is {str(path)!r}: {reason}. {remedy}") from error


def _open_descriptor_of(path: Path) -> int | None:
    """The descriptor with which this process writes to the file, such as 1 for /dev/stdout."""
    status = os.stat(path)
    for number in SHELL_DESCRIPTORS:
        with suppress(OSError):
            is_same = os.path.samestat(os.fstat(number), status)
            if is_same and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                return number
    return None


def _file_mode(path: Path) -> int:
    """`st_mode` of the path, or 0 if it does not exist."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _missing_pipe_partner_error(where: str, does: str) -> DataError:
    return DataError(
        f"{where}: no process {does} this pipe (waited {PIPE_SECONDS:g} seconds). Start one, or "
        "give a file."
    )
