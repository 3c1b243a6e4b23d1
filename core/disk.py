"""What a disk refuses, in a user's words: a file for a folder, no room, no right to write."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import DataError, require

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
    errno.EISDIR: "A folder stands where a file is needed: remove it, or give another file.",
}
NAME_BYTES = 255  # of one part of a path, on all common disks
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
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK) and longest <= NAME_BYTES


def check_writable(field: str, path: str | Path) -> None:
    """Raise a ConfigError unless a folder can be made, or written to, at `path`."""
    place = _nearest(path)
    why = "can't be written to, or a name is too long" if place.is_dir() else "is no folder"
    require(writable(path), field, str(path), f"{place} {why}. Give another folder.")


def check_file(field: str, path: str | Path) -> None:
    """Raise a ConfigError unless a file can be written at `path`, in a folder that is there."""
    place = Path(path).expanduser()
    require(not place.is_dir(), field, str(path), "it is a folder. Give a file.")
    remedy = f"no file can be written in {place.parent}. Give another folder."
    require(place.parent.is_dir() and writable(place.parent), field, str(path), remedy)


def _nearest(path: str | Path) -> Path:
    """The nearest folder (or file) above `path`, or itself, that is there."""
    place = Path(os.path.abspath(Path(path).expanduser()))
    while not os.path.lexists(place):
        place = place.parent
    return place
