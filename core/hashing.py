"""What files hold, as SHA-256. That of a large file is remembered, so that it is read only once.

::

    $XDG_CACHE_HOME/contamination-testbed/digests/     (~/.cache where that is not set)
    └── <hash of the file's path>.json    its path, size, times and inode, and its SHA-256

A record holds as long as all of these are the file's own. No program can set the inode's change
time, so a file that was swapped for one of the same size and time is noticed. The device's number
is left out: it differs among a network's nodes. A file that was changed less than 2 seconds before
it was read is not remembered, since it could change again within one tick of a coarse clock. The
folder may be deleted at any time, and where it can't be written nothing is remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from contamination.core.errors import DataError
from contamination.core.files import write_text
from contamination.core.stored_files import read_json, typed

LARGE_BYTES = 1 << 20  # of the smallest file that is remembered
SHOWN_BYTES = 1 << 28  # to be hashed at once, from which on a bar shows how far it is
BLOCK_BYTES = 1 << 20
AT_ONCE = 4  # files: hashing does not hold Python's lock
SETTLED_NS = 2 * 10**9  # the coarsest clock of a file system


def file_digest(path: Path, *, remembered: bool = True) -> str:
    """SHA-256 of a file's bytes.

    Where `remembered`, an earlier digest of the unchanged file will do; else it is read whatever is
    remembered, and not remembered.

    Raises:
        DataError: it changes while it is read.
    """
    return digests({"": path}, remembered=remembered)[""]


def digests(files: Mapping[str, Path], *, remembered: bool = True) -> dict[str, str]:
    """The SHA-256 of several files, by their names; a signal ends it, and those done stay done."""
    known = {name: _recall(path) if remembered else None for name, path in files.items()}
    left = {name: files[name] for name, digest in known.items() if digest is None}
    made = _hash_all(left, remembered) if left else {}
    return {name: digest or made[name] for name, digest in known.items()}


def file_digests(folder: Path) -> dict[str, str]:
    """The digest of every file below `folder` that is not hidden, by its path from there."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return digests({n: p for n, p in files.items() if p.is_file() and not is_hidden(n)})


def is_hidden(name: str) -> bool:
    """Whether git, the hub's client or a file manager may have put it there."""
    return any(part.startswith(".") for part in Path(name).parts)


def files_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over the files' names and digests."""
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 over every file's name and bytes below `folder`: names a model without a manifest."""
    return files_digest(file_digests(folder))


def _hash_all(files: Mapping[str, Path], remembered: bool) -> dict[str, str]:
    from contamination.core.progress import (
        progress,  # which writes its records as artefacts are written
    )

    total = sum(path.stat().st_size for path in files.values())
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True, "disable": total < SHOWN_BYTES}
    bar = progress(total=total, desc="hashing", leave=False, **shown)
    lock, stop = threading.Lock(), threading.Event()

    def tell(read: int) -> None:
        if stop.is_set():
            raise CancelledError
        with lock:
            bar.update(read)

    with bar, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            jobs = {n: pool.submit(_hash, path, remembered, tell) for n, path in files.items()}
            return {name: job.result() for name, job in jobs.items()}
        finally:  # at a signal or an error the threads end at their next block
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _hash(path: Path, remembered: bool, tell: Callable[[int], None]) -> str:
    path = path.resolve()
    for _ in range(2):  # a change of its rights or links alone is over at the second time
        began = time.time_ns()
        with path.open("rb") as stream:
            before, digest = _state(stream), hashlib.sha256()
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                tell(len(block))
            if _state(stream) == before:
                record = _Record(str(path), *before, began, digest.hexdigest())
                if remembered:
                    _remember(record)
                return record.sha256
    raise DataError(
        f"{path} changes while it is read, so that its content has no name: run the same command "
        "again once it is whole and nothing writes to it."
    )


def _state(stream: BinaryIO) -> tuple[int, int, int, int]:
    """Size, modification and change time, inode; of the open file: a network's are fresh then."""
    found = os.fstat(stream.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@dataclass(frozen=True)
class _Record:
    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    time_ns: int
    """When reading it began."""
    sha256: str

    @property
    def holds(self) -> bool:
        """Whether a later change would show in the file's state."""
        settled = max(self.mtime_ns, self.ctime_ns) <= self.time_ns - SETTLED_NS
        return settled and self.size >= LARGE_BYTES


def _place(path: str) -> Path:
    """Where the file's record is.

    Raises:
        RuntimeError: there is no home folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # as the XDG specification has it
        cache = Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    return cache / "contamination-testbed" / "digests" / f"{name}.json"


def _recall(path: Path) -> str | None:
    """The digest of a large file that has not changed since, or None."""
    with suppress(OSError, RuntimeError, ValueError):  # no record, or a garbled one
        if path.stat().st_size < LARGE_BYTES:
            return None
        path = path.resolve()
        with path.open("rb") as stream:
            state = _state(stream)
        record: _Record = typed(read_json(_place(str(path))), _Record)
        same = record == _Record(str(path), *state, record.time_ns, record.sha256)
        if same and record.holds and re.fullmatch("[0-9a-f]{64}", record.sha256):
            return record.sha256
    return None


def _remember(record: _Record) -> None:
    if not record.holds:
        return
    with suppress(OSError, RuntimeError):
        place = _place(record.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(asdict(record)))
