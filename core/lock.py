"""Leases, so that only one of all processes and machines that share a run folder writes it."""

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
CLAIM = ".of-"  # in a lease's name, between the name of the folder and that of a part of it
LEASE = 45.0
"""Seconds without a sign of life after which a process on another machine counts as dead."""
VOID = b"void\n"
log = logging.getLogger(__name__)


@contextmanager
def exclusive_build(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lease of `folder`, whose holder alone may write the folder.

    The holder renews the lease every 15 seconds. The lease of a dead process is taken over at once
    on the same machine, and after LEASE seconds from another machine, as is a file that is not a
    lease. A process of this machine that is only stopped (Ctrl-Z) keeps its lease.

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
                    f"This process gave no sign of life for {LEASE:g} seconds, so another one may "
                    f"be writing {folder}. Run the same command again."
                )

        try:
            yield check_still_held
        finally:
            lease.release()


@contextmanager
def remove_empty_folders_on_error(folder: Path) -> Iterator[None]:
    """After an error remove new folders above `folder`, and that of the leases, if still empty."""
    runs = folder.parent.parent
    new_folders = [path for path in (folder.parent, runs / LOCKS, runs) if not path.exists()]
    try:
        yield
    except Exception:
        for path in new_folders:
            with suppress(OSError):  # it is not empty, or was never created
                path.rmdir()
        raise


def _is_held_by_us(lease: SoftFileLease) -> bool:
    """Whether this process holds the lease; a waiting process may move the file for a moment."""
    for _ in range(3):
        owner = lease.owner
        if owner is not None and owner.token == lease.token:
            return True
        time.sleep(0.3)
    return False


def lease_path(folder: Path) -> Path:
    """Returns the path of the folder's lease, which exists while a process holds it."""
    return folder.parent.parent / LOCKS / f"{folder.parent.name}-{folder.name}.lease"


def describe_builder(folder: Path) -> str | None:
    """Returns which process writes the folder or a part of it, in words; None if none does."""
    file = lease_path(folder)
    files_of_parts = file.parent.glob(f"{file.stem}{CLAIM}*{file.suffix}")
    return next(filter(None, map(describe_lease_holder, [file, *files_of_parts])), None)


def describe_lease_holder(file: Path) -> str | None:
    """Returns which living process holds a lease, in words; None if there is none."""
    try:
        renewed = file.stat().st_mtime
    except FileNotFoundError:
        return None
    owner = _open_lease(file).owner
    is_alive = time.time() - renewed < LEASE
    if owner is not None and owner.hostname == socket.gethostname():
        is_alive = _is_process_alive(owner.pid, renewed)
    holder_text = f"process {owner.pid} on {owner.hostname}" if owner else "an unknown process"
    return holder_text if is_alive else None


def _is_process_alive(pid: int, running_at: float) -> bool:
    """Whether the process that had this id at a time (seconds of the epoch) still runs here."""
    try:
        process = psutil.Process(pid)
        return bool(
            process.create_time() <= running_at + 1 and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


@contextmanager
def holding_lease_if_free(file: Path) -> Iterator[bool]:
    """Hold a lease unless another living process may hold it.

    Yields:
        Whether it is held.
    """
    lease, is_held = _open_lease(file), False
    if describe_lease_holder(file) is None:
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > 10 * LEASE:
                _invalidate_lease(file, file_state(file))  # it is then taken over within 2 s
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
    return SoftFileLease(file, lease_duration=LEASE, thread_local=False, poll_interval=0.2)


def _wait_for_lease(lease: SoftFileLease, file: Path, folder: Path) -> None:
    if not _is_held_on_this_machine(lease, file):
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=1)
            return
    owner = lease.owner
    holder_text = f"process {owner.pid} on {owner.hostname}" if owner else "another process"
    log.info("waiting for %s, which writes %s (its lease is %s)", holder_text, folder, file)
    while True:
        while _is_held_on_this_machine(lease, file):  # `filelock` would take it from a stopped one
            time.sleep(0.2)
        state, start = file_state(file), time.monotonic()
        with suppress(Timeout, LeaseSettingsMismatch):
            lease.acquire(timeout=LEASE)
            return
        time.sleep(max(0.0, start + LEASE - time.monotonic()))
        _invalidate_lease(file, state)


def _is_held_on_this_machine(lease: SoftFileLease, file: Path) -> bool:
    owner = lease.owner
    if owner is None or owner.mode != "lease" or owner.hostname != socket.gethostname():
        return False
    with suppress(FileNotFoundError):
        return _is_process_alive(owner.pid, file.stat().st_mtime)
    return False


def _invalidate_lease(file: Path, state: tuple[int, ...] | None) -> None:
    """Make a lease invalid if its file still has this state, so that `filelock` takes it over.

    By itself `filelock` never takes over an empty file, which a full disk leaves behind, a lease of
    another duration, or a damaged one that looks like a lease of another kind.
    """
    with suppress(FileNotFoundError), file.open("r+b") as stream:
        if file_state(file) == state and stream.read() != VOID:
            stream.seek(0)
            stream.truncate()
            stream.write(VOID)
