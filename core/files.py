"""Files that are written completely or not at all, and JSON that contains a hash of itself."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contamination.core.stored_files import parse_json, read_text

MAX_NAME_BYTES = 255  # maximum of one path component on all common file systems
TEMPORARY_SUFFIX = ".unfinished"  # of temporary files and folders
HASH_KEY = "own_sha256"  # the entry with the hash of all other entries


def sync_to_disk(path: Path) -> None:
    """Waits until the bytes of a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_state(path: Path) -> tuple[int, ...] | None:
    """Returns the file's size, times and inode, which differ once it is written or replaced.

    Returns None if the file is missing or can't be accessed.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def temporary_path(path: Path) -> Path:
    """Returns a path in the same folder that no other process uses, on any machine."""
    suffix = f".{socket.gethostname()}.{os.getpid()}{TEMPORARY_SUFFIX}"
    name = f".{path.name}{suffix}"
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}{suffix}"
    return path.with_name(name)


def write_text_atomically(path: Path, text: str) -> None:
    """Writes the text to `path` completely, or leaves an existing file unchanged."""
    unfinished = temporary_path(path)
    with unfinished.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)
    sync_to_disk(path.parent)


def hashed_json(values: Mapping[str, Any]) -> str:
    """Returns the values as JSON, with a hash of all of them as the last entry."""
    text = json.dumps(values, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**values, HASH_KEY: digest}, indent=1) + "\n"


def verified_json(text: str) -> dict[str, Any]:
    """Returns the values in a text that `hashed_json` returned, without the hash.

    Raises:
        ValueError: the text was changed.
    """
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    values.pop(HASH_KEY, None)
    if text != hashed_json(values):
        raise ValueError("its content does not match its own hash")
    return values


def read_verified_json(path: Path) -> dict[str, Any]:
    """Returns the values in a file whose text `hashed_json` returned, without the hash.

    Raises:
        ValueError: it was changed, or exceeds the limits of `core.stored_files`.
        OSError: it can't be read.
    """
    return verified_json(read_text(path))
