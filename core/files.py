"""Files that are written whole or not at all, and JSON that carries a hash of itself."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contamination.core.stored_files import parse_json, read_text

NAME_BYTES = 255  # of one part of a path, on all common disks
TEMPORARY_END = ".unfinished"  # how the name of a temporary file or folder ends
OWN = "own_sha256"  # the entry that is a hash of all the others


def sync(path: Path) -> None:
    """Until the file's bytes, or the folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_state(path: Path) -> tuple[int, ...] | None:
    """What stays the same while nobody writes or replaces the file; None: it can't be seen."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino


def temporary(path: Path) -> Path:
    """A name beside the path that no other process takes, on this machine or another."""
    own = f".{socket.gethostname()}.{os.getpid()}{TEMPORARY_END}"
    name = f".{path.name}{own}"
    if len(os.fsencode(name)) > NAME_BYTES:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}{own}"
    return path.with_name(name)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    part = temporary(path)
    with part.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
    sync(path.parent)


def sealed(values: Mapping[str, Any]) -> str:
    """The values as JSON, with a hash of all of it."""
    text = json.dumps(values, indent=1)
    own = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**values, OWN: own}, indent=1) + "\n"


def unsealed(text: str) -> dict[str, Any]:
    """The values in a text that `sealed` made, without its hash.

    Raises:
        ValueError: the text is not what it wrote.
    """
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    found.pop(OWN, None)
    if text != sealed(found):
        raise ValueError("it is not what was written, by its own hash")
    return found


def read_sealed(path: Path) -> dict[str, Any]:
    """The values in a file whose text `sealed` made.

    Raises:
        ValueError: it is not what was written, or exceeds the limits of `core.stored_files`.
        OSError: it can't be read.
    """
    return unsealed(read_text(path))
