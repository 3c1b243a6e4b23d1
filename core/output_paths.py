"""Checks of output paths, and disk errors (full, read-only, no permission) with remedies."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contamination.core.errors import ConfigError, DataError, require
from contamination.core.files import MAX_NAME_BYTES
from contamination.core.user_files import is_pipe_or_device, output_refusal_reason

REMEDIES = {
    errno.ENOSPC: "Unfinished folders are not used: free space, and run the same command again.",
    errno.EDQUOT: "Unfinished folders are not used: free quota, and run the same command again.",
    errno.EFBIG: "Unfinished folders are not used: allow larger files (ulimit -f, or another "
    "disk), and run the same command again.",
    errno.EROFS: "Give a folder on a disk that can be written (runs=…, out=…).",
    errno.EACCES: "Give a folder that this user may read and write (runs=…, out=…).",
    errno.EPERM: "Give a folder that this user may read and write (runs=…, out=…).",
    errno.ENAMETOOLONG: "Shorten that name or path (name, corpus.name, model.name, runs, out).",
    errno.ENOTDIR: "There is a file where a folder is needed: remove it, or give another folder.",
    errno.EEXIST: "There is a file where a folder is needed: remove it, or give another folder.",
    errno.ELOOP: "Symbolic links form a loop: give another path.",
    errno.EISDIR: "There is a folder where a file is needed: remove it, or give another file.",
}
RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as tokenizers and safetensors report it


@contextmanager
def disk_errors_as_data_errors(folder: str | Path | None = None) -> Iterator[None]:
    """Turns disk errors into a DataError with a remedy; other errors are not changed.

    Args:
        folder: named in the message if the error itself names no file.
    """
    try:
        yield
    except Exception as error:
        number = _errno_of(error)
        if number not in REMEDIES:
            raise
        path = getattr(error, "filename2", None) or getattr(error, "filename", None) or folder
        prefix = f"{path}: " if path else ""
        raise DataError(f"{prefix}{os.strerror(number)}. {REMEDIES[number]}") from error


def _errno_of(error: Exception) -> int:
    if isinstance(error, OSError):
        return error.errno or 0
    match = RUST_OS_ERROR.search(str(error))
    return int(match[1]) if match else 0


def is_writable_folder(path: str | Path) -> bool:
    """Returns whether a folder can be created at `path`, or written to; nothing is created."""
    existing = _nearest_existing(path)
    longest_name = max((len(os.fsencode(part)) for part in Path(path).parts), default=0)
    if not existing.is_dir() or longest_name > MAX_NAME_BYTES:
        return False
    return os.access(existing, os.W_OK | os.X_OK) and _can_contain_folders(existing)


def check_has_disk(field: str, path: str | Path) -> None:
    """Raises a ConfigError if `path` is in a file system without a disk, such as /proc."""
    existing = _nearest_existing(path)
    remedy = f"no folder can be created in {existing}. Give a folder on a disk."
    is_possible = not existing.is_dir() or _can_contain_folders(existing)
    require(is_possible, field, str(path), remedy)


def check_writable_folder(field: str, path: str | Path) -> None:
    """Raises a ConfigError unless a folder can be created at `path`, or written to."""
    existing = _nearest_existing(path)
    is_folder = existing.is_dir()
    reason = "can't be written to, or a name is too long" if is_folder else "is not a folder"
    require(
        is_writable_folder(path), field, str(path), f"{existing} {reason}. Give another folder."
    )


def check_output_file(field: str, path: str | Path) -> None:
    """Raises a ConfigError unless output can be written to `path`: a file, a pipe or a device.

    The folder of a file must exist.
    """
    file = Path(path).expanduser()
    remedy = f"its name has more than {MAX_NAME_BYTES} bytes. Give a shorter one."
    require(len(os.fsencode(file.name)) <= MAX_NAME_BYTES, field, str(path), remedy)
    if reason := output_refusal_reason(file):
        raise ConfigError(f"{field} is {str(path)!r}: {reason}")
    if not is_pipe_or_device(file):
        folder = Path(os.path.realpath(file)).parent
        remedy = f"no file can be written in {folder}. Give another folder."
        require(folder.is_dir() and is_writable_folder(folder), field, str(path), remedy)


def _can_contain_folders(folder: Path) -> bool:
    """Whether folders can be created in the file system.

    If it reports no blocks, as /proc and some network file systems do, a folder is created and
    removed again.
    """
    if os.statvfs(folder).f_blocks:
        return True
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError:
        return False
    return True


def _nearest_existing(path: str | Path) -> Path:
    """The path itself if it exists; otherwise its nearest existing parent."""
    nearest = Path(os.path.abspath(Path(path).expanduser()))
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    return nearest
