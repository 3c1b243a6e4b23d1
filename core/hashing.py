"""SHA-256 of files and folders. Hashes of large files are cached, so that each is read only once.

::

    $XDG_CACHE_HOME/contamination-testbed/digests/     (~/.cache if it is not set)
    └── <hash of the file's path>.json    its path, size, times and inode, and its SHA-256

The folder may be deleted at any time; if it can't be written to, nothing is cached.
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
from contamination.core.files import write_text_atomically
from contamination.core.stored_files import parse_typed, read_json

MIN_CACHED_BYTES = 1 << 20  # size of the smallest file whose digest is cached
MIN_PROGRESS_BYTES = 1 << 28  # total size from which a progress bar is shown
BLOCK_BYTES = 1 << 20
THREADS = 4  # hashing releases the GIL
MIN_THREADED_BYTES = 1 << 23  # total size of small files from which threads are faster than one
MAX_CLOCK_TICK_NS = 2 * 10**9  # the coarsest clock of a file system


def file_digest(path: Path, *, use_cache: bool = True) -> str:
    """Returns the SHA-256 of a file's bytes.

    Args:
        path: the file.
        use_cache: whether a cached digest of the unchanged file may be used, and a new one stored.

    Raises:
        DataError: the file changes while it is read.
    """
    return digests_by_name({"": path}, use_cache=use_cache)[""]


def digests_by_name(path_by_name: Mapping[str, Path], *, use_cache: bool = True) -> dict[str, str]:
    """Returns the SHA-256 of several files by name; see `file_digest`."""
    cached = {
        name: _read_cached_digest(path) if use_cache else None
        for name, path in path_by_name.items()
    }
    to_hash = {name: path_by_name[name] for name, digest in cached.items() if digest is None}
    hashed = _hash_files(to_hash, use_cache) if to_hash else {}
    return {name: digest or hashed[name] for name, digest in cached.items()}


def file_digests_of_folder(folder: Path) -> dict[str, str]:
    """Returns the digest of every file below `folder` that is not hidden, by relative path."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return digests_by_name({n: p for n, p in files.items() if p.is_file() and not is_hidden(n)})


def is_hidden(relative_path: str) -> bool:
    """Returns whether a component of the path begins with a dot, as in .git/config."""
    return any(part.startswith(".") for part in Path(relative_path).parts)


def combined_digest(digest_by_name: Mapping[str, str]) -> str:
    """Returns the SHA-256 of the files' names and digests."""
    return hashlib.sha256(json.dumps(dict(digest_by_name), sort_keys=True).encode()).hexdigest()


def folder_digest(folder: Path) -> str:
    """Returns the SHA-256 of the names and bytes of all files below `folder`."""
    return combined_digest(file_digests_of_folder(folder))


def _hash_files(path_by_name: Mapping[str, Path], use_cache: bool) -> dict[str, str]:
    from contamination.core.progress import progress_bar  # it imports modules that hash files

    sizes = [path.stat().st_size for path in path_by_name.values()]
    total_bytes = sum(sizes)
    if max(sizes) < MIN_CACHED_BYTES and total_bytes < MIN_THREADED_BYTES:
        return {name: _hash_file(path, use_cache) for name, path in path_by_name.items()}
    disable_bar = total_bytes < MIN_PROGRESS_BYTES
    progress_options: dict[str, Any] = {"unit": "B", "unit_scale": True, "disable": disable_bar}
    bar = progress_bar(total=total_bytes, desc="hashing", leave=False, **progress_options)
    lock, stop = threading.Lock(), threading.Event()

    def advance(block_bytes: int) -> None:
        if stop.is_set():
            raise CancelledError
        with lock:
            bar.update(block_bytes)

    with bar, ThreadPoolExecutor(THREADS) as pool:
        try:
            jobs = {
                name: pool.submit(_hash_file, path, use_cache, advance)
                for name, path in path_by_name.items()
            }
            return {name: job.result() for name, job in jobs.items()}
        finally:  # after a signal or an error, the threads end at their next block
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _hash_file(
    path: Path, use_cache: bool, advance: Callable[[int], None] = lambda block_bytes: None
) -> str:
    path = path.resolve()
    for _ in range(2):  # a change of permissions or links alone succeeds the second time
        start_ns = time.time_ns()
        with path.open("rb") as stream:
            state, digest = _file_state(stream), hashlib.sha256()
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                advance(len(block))
            if _file_state(stream) == state:
                record = _CachedDigest(str(path), *state, start_ns, digest.hexdigest())
                if use_cache:
                    _cache_digest(record)
                return record.sha256
    raise DataError(
        f"{path} changes while it is read: run the same command again once it is complete and "
        "nothing writes to it."
    )


def _file_state(stream: BinaryIO) -> tuple[int, int, int, int]:
    """Size, modification time, change time and inode; network file systems refresh them at open."""
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@dataclass(frozen=True)
class _CachedDigest:
    """A file's SHA-256, which is valid while the file has the same size, times and inode.

    Programs can't set the change time of an inode, so a replacement with the same size and
    modification time is detected. The device number is not stored, since it differs between the
    nodes of a cluster.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    time_ns: int
    """When reading the file began."""
    sha256: str

    @property
    def is_reliable(self) -> bool:
        """Whether a later change would be detected, even with a coarse file-system clock."""
        settled = max(self.mtime_ns, self.ctime_ns) <= self.time_ns - MAX_CLOCK_TICK_NS
        return settled and self.size >= MIN_CACHED_BYTES


def _cache_record_path(path: str) -> Path:
    """The file that caches the digest of `path`.

    Raises:
        RuntimeError: there is no home folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # as the XDG specification requires
        cache = Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    return cache / "contamination-testbed" / "digests" / f"{name}.json"


def _read_cached_digest(path: Path) -> str | None:
    """The cached digest of a large file that has not changed since, or None."""
    with suppress(OSError, RuntimeError, ValueError):  # there is no record, or it is damaged
        if path.stat().st_size < MIN_CACHED_BYTES:
            return None
        path = path.resolve()
        with path.open("rb") as stream:
            state = _file_state(stream)
        record: _CachedDigest = parse_typed(read_json(_cache_record_path(str(path))), _CachedDigest)
        is_same = record == _CachedDigest(str(path), *state, record.time_ns, record.sha256)
        if is_same and record.is_reliable and re.fullmatch("[0-9a-f]{64}", record.sha256):
            return record.sha256
    return None


def _cache_digest(record: _CachedDigest) -> None:
    if not record.is_reliable:
        return
    with suppress(OSError, RuntimeError):
        file = _cache_record_path(record.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(file, json.dumps(asdict(record)))
