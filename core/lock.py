"""Leases that let only one process write a run folder, even across machines."""

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

LOCKS_FOLDER = ".locks"
CLAIM_SEPARATOR = ".of-"  # separates the folder's name from the claim's in a lease's name
LEASE_SECONDS = 45.0
"""A process on another machine counts as dead if it has not renewed its lease for this long."""
INVALID_LEASE = b"void\n"
log = logging.getLogger(__name__)


@contextmanager
def exclusive_build(folder: Path) -> Iterator[Callable[[], None]]:
    """Holds the lease of `folder`: only its holder may write the folder.

    The holder renews the lease every 15 seconds. The lease of a dead process is taken over at once
    on the same machine, and after LEASE_SECONDS on another machine. A file that is not a lease is
    also taken over after LEASE_SECONDS. A stopped process (Ctrl-Z) on this machine keeps its lease.

    Yields:
        A function that raises an ArtifactError if another process has taken over the lease.
    """
    with remove_empty_folders_on_error(folder):
        file = lease_path(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        lease = _open_lease(file)
        _wait_for_lease(lease, file, folder)

        def check_still_held() -> None:
            if not _is_held_by_us(lease):
                raise ArtifactError(
                    f"This process did not renew its lease for {LEASE_SECONDS:g} seconds, so "
                    f"another may be writing {folder}. Run the same command again."
                )

        try:
            yield check_still_held
        finally:
            lease.release()


@contextmanager
def remove_empty_folders_on_error(folder: Path) -> Iterator[None]:
    """After an error, remove the new parent folders and the leases' folder if they are empty."""
    runs = folder.parent.parent
    new_folders = [path for path in (folder.parent, runs / LOCKS_FOLDER, runs) if not path.exists()]
    try:
        yield
    except Exception:
        for path in new_folders:
            with suppress(OSError):  # it is not empty, or was never created
                path.rmdir()
        raise


def _is_held_by_us(lease: SoftFileLease) -> bool:
    """Whether this process holds the lease; it retries, as a waiting process may move the file."""
    for _ in range(3):
        owner = lease.owner
        if owner is not None and owner.token == lease.token:
            return True
        time.sleep(0.3)
    return False


def lease_path(folder: Path) -> Path:
    """Returns the path of the folder's lease, which exists while a process holds it."""
    return folder.parent.parent / LOCKS_FOLDER / f"{folder.parent.name}-{folder.name}.lease"


def describe_builder(folder: Path) -> str | None:
    """Returns a description of the process that writes the folder or adds to it, or None."""
    file = lease_path(folder)
    claim_files = file.parent.glob(f"{file.stem}{CLAIM_SEPARATOR}*{file.suffix}")
    return next(filter(None, map(describe_lease_holder, [file, *claim_files])), None)


def describe_lease_holder(file: Path) -> str | None:
    """Returns a description of the living process that holds a lease, or None."""
    try:
        renewed = file.stat().st_mtime
    except FileNotFoundError:
        return None
    owner = _open_lease(file).owner
    is_alive = time.time() - renewed < LEASE_SECONDS
    if owner is not None and owner.hostname == socket.gethostname():
        is_alive = _is_process_alive(owner.pid, renewed)
    holder_text = f"process {owner.pid} on {owner.hostname}" if owner else "an unknown process"
    return holder_text if is_alive else None


def _is_process_alive(pid: int, running_at: float) -> bool:
    """Whether the process that had this id at a time (seconds since the epoch) still runs here."""
    try:
        process = psutil.Process(pid)
        return bool(
            process.create_time() <= running_at + 1 and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


@contextmanager
def holding_lease_if_free(file: Path) -> Iterator[bool]:
    """Holds a lease unless another living process may hold it.

    Yields:
        Whether this process holds the lease.
    """
    lease, is_held = _open_lease(file), False
    if describe_lease_holder(file) is None:
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > 10 * LEASE_SECONDS:
                _invalidate_lease_if_unchanged(file, file_state(file))  # taken over within 2 s
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=4)
            is_held = True
    try:
        yield is_held
    finally:
        if is_held:
            lease.release()


def _open_lease(file: Path) -> SoftFileLease:
    # one thread may acquire it and another release it: see World.on_rank_0
    return SoftFileLease(file, lease_duration=LEASE_SECONDS, thread_local=False, poll_interval=0.2)


def _wait_for_lease(lease: SoftFileLease, file: Path, folder: Path) -> None:
    if not _is_held_on_this_machine(lease, file):
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=1)
            return
    owner = lease.owner
    holder_text = f"process {owner.pid} on {owner.hostname}" if owner else "another process"
    log.info("waiting for %s, which writes %s (its lease is %s)", holder_text, folder, file)
    while True:
        # `filelock` would take the lease from a stopped process
        while _is_held_on_this_machine(lease, file):
            time.sleep(0.2)
        state, start = file_state(file), time.monotonic()
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=LEASE_SECONDS)
            return
        time.sleep(max(0.0, start + LEASE_SECONDS - time.monotonic()))
        _invalidate_lease_if_unchanged(file, state)


def _is_held_on_this_machine(lease: SoftFileLease, file: Path) -> bool:
    owner = lease.owner
    if owner is None or owner.mode != "lease" or owner.hostname != socket.gethostname():
        return False
    with suppress(FileNotFoundError):
        return _is_process_alive(owner.pid, file.stat().st_mtime)
    return False


def _invalidate_lease_if_unchanged(file: Path, expected_state: tuple[int, ...] | None) -> None:
    """Invalidates a lease if its file has the expected state, so that `filelock` takes it over.

    Otherwise `filelock` never takes over an empty file (left by a full disk), a lease of another
    duration, or a damaged lease.
    """
    with suppress(FileNotFoundError), file.open("r+b") as stream:
        if file_state(file) == expected_state and stream.read() != INVALID_LEASE:
            stream.seek(0)
            stream.truncate()
            stream.write(INVALID_LEASE)
