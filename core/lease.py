"""Which process makes a run folder, among all processes and machines that share it."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import SoftFileLease, Timeout

from core.errors import ArtifactError

LOCKS = ".locks"
LEASE = 45.0
"""Seconds without a sign of life after which a process on another machine counts as dead."""
log = logging.getLogger(__name__)


@contextmanager
def building(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lease of `folder`: only its holder makes the folder.

    The holder gives a sign of life every 15 seconds. The lease of a dead process is taken over at
    once on the same machine, and after LEASE seconds from another machine. So is an empty one.

    Yields:
        A check that raises an ArtifactError where this process was itself taken for dead.
    """
    with no_empty_folders(folder):
        file = lease_file(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        lease = _lease(file)
        _acquire(lease, file, folder)

        def check() -> None:
            if lease.compromise is not None:
                raise ArtifactError(
                    f"This process gave no sign of life for {LEASE:g} seconds, so another one may "
                    f"be making {folder} ({lease.compromise.reason}). Run the same command again."
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


def lease_file(folder: Path) -> Path:
    """Where the folder's lease is while a process holds it."""
    return folder.parent.parent / LOCKS / f"{folder.parent.name}-{folder.name}.lease"


def holder(file: Path) -> str | None:
    """Who holds a lease, in words; None: no living process, as far as can be seen from here."""
    try:
        quiet = time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return None
    owner = _lease(file).owner
    if owner is not None and owner.hostname == socket.gethostname():
        alive = psutil.pid_exists(owner.pid)
    else:
        alive = quiet < LEASE
    who = f"process {owner.pid} on {owner.hostname}" if owner else "a process that is not named"
    return who if alive else None


@contextmanager
def if_free(file: Path) -> Iterator[bool]:
    """Hold a lease unless a living process does; whether it is held now."""
    lease, held = _lease(file), False
    with suppress(Timeout):
        lease.acquire(timeout=1)
        held = True
    try:
        yield held
    finally:
        if held:
            lease.release()


def _lease(file: Path) -> SoftFileLease:
    return SoftFileLease(
        file,
        lease_duration=LEASE,
        thread_local=False,  # taken in one thread, let go of in another: see World.by_leader
        poll_interval=0.2,
    )


def _acquire(lease: SoftFileLease, file: Path, folder: Path) -> None:
    with suppress(Timeout):
        lease.acquire(timeout=1)
        return
    holder = lease.owner
    who = f"process {holder.pid} on {holder.hostname}" if holder else "another process"
    log.info("waiting for %s, which makes %s (its lease is %s)", who, folder, file)
    while True:
        seen, since = _identity(file), time.monotonic()
        with suppress(Timeout):
            lease.acquire(timeout=LEASE)
            return
        if time.monotonic() - since >= LEASE:
            _spoil_if_empty(file, seen)


def _identity(file: Path) -> tuple[int, int, int] | None:
    """What stays the same while nobody writes the file or replaces it."""
    try:
        now = file.stat()
    except FileNotFoundError:
        return None
    return now.st_ino, now.st_ctime_ns, now.st_size


def _spoil_if_empty(file: Path, seen: tuple[int, int, int] | None) -> None:
    """Make an empty lease unreadable: `filelock` takes over an unreadable one, an empty one never.

    A full disk or a crash between creating the file and writing it leaves one. (`filelock` spares
    it because releases before 3.22 wrote nothing else.)
    """
    with suppress(FileNotFoundError), file.open("r+b") as stream:
        now = os.fstat(stream.fileno())
        if (now.st_ino, now.st_ctime_ns, now.st_size) == seen and not now.st_size:
            stream.write(b"void\n")
