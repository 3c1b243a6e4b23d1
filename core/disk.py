"""What a disk refuses, in a user's words: a file for a folder, no room, no right to write."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contamination.core.errors import ConfigError, DataError, require
from contamination.core.files import NAME_BYTES
from contamination.core.user_files import is_written_into, refused_output

REMEDIES = {
    errno.ENOSPC: "What is unfinished counts for nothing: free space, run the same command again.",
    errno.EDQUOT: "What is unfinished counts for nothing: free quota, run the same command again.",
    errno.EFBIG: "What is unfinished counts for nothing: allow larger files (ulimit -f, or another "
    "disk), run the same command again.",
    errno.EROFS: "Give a folder on a disk that can be written (runs=…, out=…).",
    errno.EACCES: "Give a folder that this user may read and write (runs=…, out=…).",
    errno.EPERM: "Give a folder that this user may read and write (runs=…, out=…).",
    errno.ENAMETOOLONG: "Shorten that name or path (name, corpus.name, model.name, runs, out).",
    errno.ENOTDIR: "A file stands where a folder is needed: remove it, or give another folder.",
    errno.EEXIST: "A file stands where a folder is needed: remove it, or give another folder.",
    errno.ELOOP: "Symbolic links lead in a circle: give another path.",
    errno.EISDIR: "A folder stands where a file is needed: remove it, or give another file.",
}
RUST = re.compile(r"\(os error (\d+)\)")  # how tokenizers and safetensors report one


@contextmanager
def disk_errors(folder: str | Path | None = None) -> Iterator[None]:
    """Raise a DataError for what the disk refuses; any other error passes as it is.

    Args:
        folder: named where the error itself names no file.
    """
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number not in REMEDIES:
            raise
        path = getattr(error, "filename2", None) or getattr(error, "filename", None) or folder
        place = f"{path}: " if path else ""
        raise DataError(f"{place}{os.strerror(number)}. {REMEDIES[number]}") from error


def _number(error: Exception) -> int:
    if isinstance(error, OSError):
        return error.errno or 0
    found = RUST.search(str(error))
    return int(found[1]) if found else 0


def writable(path: str | Path) -> bool:
    """Whether a folder can be made, or written to, at `path`; nothing is made."""
    place = _nearest(path)
    longest = max((len(os.fsencode(part)) for part in Path(path).parts), default=0)
    allowed = place.is_dir() and os.access(place, os.W_OK | os.X_OK) and longest <= NAME_BYTES
    return allowed and _holds_folders(place)


def check_disk(field: str, path: str | Path) -> None:
    """Raise a ConfigError if `path` is in a file system without a disk, such as /proc."""
    place = _nearest(path)
    remedy = f"no folder can be made in {place}. Give a folder on a disk."
    require(not place.is_dir() or _holds_folders(place), field, str(path), remedy)


def check_writable(field: str, path: str | Path) -> None:
    """Raise a ConfigError unless a folder can be made, or written to, at `path`."""
    place = _nearest(path)
    why = "can't be written to, or a name is too long" if place.is_dir() else "is no folder"
    require(writable(path), field, str(path), f"{place} {why}. Give another folder.")


def check_file(field: str, path: str | Path) -> None:
    """Raise a ConfigError unless output can go to `path`: a file, a pipe or a device.

    The folder of a file must exist.
    """
    place = Path(path).expanduser()
    remedy = f"its name has more than {NAME_BYTES} bytes. Give a shorter one."
    require(len(os.fsencode(place.name)) <= NAME_BYTES, field, str(path), remedy)
    if why := refused_output(place):
        raise ConfigError(f"{field} is {str(path)!r}: {why}")
    if not is_written_into(place):
        folder = Path(os.path.realpath(place)).parent
        remedy = f"no file can be written in {folder}. Give another folder."
        require(folder.is_dir() and writable(folder), field, str(path), remedy)


def _holds_folders(folder: Path) -> bool:
    """Whether folders can be made in it, as far as its file system goes.

    One that reports no blocks (/proc, but some network file systems too) is asked by making one.
    """
    if os.statvfs(folder).f_blocks:
        return True
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError:
        return False
    return True


def _nearest(path: str | Path) -> Path:
    """The nearest folder (or file) above `path`, or itself, that is there."""
    place = Path(os.path.abspath(Path(path).expanduser()))
    while not os.path.lexists(place):
        place = place.parent
    return place
