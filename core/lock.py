"""Which process makes a run folder, among all processes and machines that share it."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from contamination.core.errors import ArtifactError
from contamination.core.files import file_state

LOCKS = ".locks"
CLAIM = ".of-"  # in the name of a lease: before it the folder's name, after it what of it is meant
LEASE = 45.0
"""Seconds without a sign of life after which a process on another machine counts as dead."""
VOID = b"void\n"
log = logging.getLogger(__name__)


@contextmanager
def building(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lease of `folder`: only its holder makes the folder.

    The holder gives a sign of life every 15 seconds. The lease of a dead process is taken over at
    once on the same machine, and after LEASE seconds from another machine. So is a file that is no
    lease. A process of this machine that is merely stopped (Ctrl-Z) keeps its lease.

    Yields:
        A check that raises an ArtifactError where this process was itself taken for dead.
    """
    with no_empty_folders(folder):
        file = lease_file(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        lease = _lease(file)
        _acquire(lease, file, folder)

        def check() -> None:
            if not _is_ours(lease):
                raise ArtifactError(
                    f"This process gave no sign of life for {LEASE:g} seconds, so another one may "
                    f"be making {folder}. Run the same command again."
                )

        try:
            yield check
        finally:
            lease.release()


@contextmanager
def no_empty_folders(folder: Path) -> Iterator[None]:
    """After an error remove what is new and still empty above `folder`, and the leases' folder."""
    runs = folder.parent.parent
    new = [place for place in (folder.parent, runs / LOCKS, runs) if not place.exists()]
    try:
        yield
    except Exception:
        for place in new:
            with suppress(OSError):  # it is in use, or not there
                place.rmdir()
        raise


def _is_ours(lease: SoftFileLease) -> bool:
    """Whether the file names this process's claim; who waits may put it aside for a moment."""
    for _ in range(3):
        owner = lease.owner
        if owner is not None and owner.token == lease.token:
            return True
        time.sleep(0.3)
    return False


def lease_file(folder: Path) -> Path:
    """Where the folder's lease is while a process holds it."""
    return folder.parent.parent / LOCKS / f"{folder.parent.name}-{folder.name}.lease"


def maker(folder: Path) -> str | None:
    """Who makes the folder, or a part of it, in words; None: no living process."""
    own = lease_file(folder)
    parts = own.parent.glob(f"{own.stem}{CLAIM}*{own.suffix}")
    return next(filter(None, map(holder, [own, *parts])), None)


def holder(file: Path) -> str | None:
    """Who holds a lease, in words; None: no living process, as far as can be seen from here."""
    try:
        changed = file.stat().st_mtime
    except FileNotFoundError:
        return None
    owner = _lease(file).owner
    alive = time.time() - changed < LEASE
    if owner is not None and owner.hostname == socket.gethostname():
        alive = _lives(owner.pid, changed)
    who = f"process {owner.pid} on {owner.hostname}" if owner else "a process that is not named"
    return who if alive else None


def _lives(pid: int, since: float) -> bool:
    """Whether the process of this machine lives that had the number at a time (seconds)."""
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() <= since + 1 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@contextmanager
def if_free(file: Path) -> Iterator[bool]:
    """Hold a lease unless a living process may; whether it is held now."""
    lease, held = _lease(file), False
    if holder(file) is None:
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > 10 * LEASE:
                _spoil(file, file_state(file))  # whatever it holds, it is then taken over in 2 s
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=4)
            held = True
    try:
        yield held
    finally:
        if held:
            lease.release()


def _lease(file: Path) -> SoftFileLease:
    # taken in one thread, let go of in another: see World.on_rank_0
    return SoftFileLease(file, lease_duration=LEASE, thread_local=False, poll_interval=0.2)


def _acquire(lease: SoftFileLease, file: Path, folder: Path) -> None:
    if not _is_held_here(lease, file):
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=1)
            return
    owner = lease.owner
    who = f"process {owner.pid} on {owner.hostname}" if owner else "another process"
    log.info("waiting for %s, which makes %s (its lease is %s)", who, folder, file)
    while True:
        while _is_held_here(lease, file):  # `filelock` would take it from one that is stopped
            time.sleep(0.2)
        seen, since = file_state(file), time.monotonic()
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=LEASE)
            return
        time.sleep(max(0.0, since + LEASE - time.monotonic()))
        _spoil(file, seen)


def _is_held_here(lease: SoftFileLease, file: Path) -> bool:
    owner = lease.owner
    if owner is None or owner.mode != "lease" or owner.hostname != socket.gethostname():
        return False
    with suppress(FileNotFoundError):
        return _lives(owner.pid, file.stat().st_mtime)
    return False


def _spoil(file: Path, seen: tuple[int, ...] | None) -> None:
    """Make a file that did not change since it was seen unreadable: `filelock` takes that over.

    It never takes over an empty file, which a full disk leaves, one of another duration, or one
    whose damage looks like a lease of another kind.
    """
    with suppress(FileNotFoundError), file.open("r+b") as stream:
        if file_state(file) == seen and stream.read() != VOID:
            stream.seek(0)
            stream.truncate()
            stream.write(VOID)
