"""Records that a process writes for its launcher: its progress, and the error that ended it.

::

    <folder>/
    ├── progress.json            progress: title, n, total, unit, time left
    └── failed/rank-<n>.json     an error: time, host, class, message, traceback
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from contamination.core.errors import StoppedError, UserError
from contamination.core.files import hashed_json, read_verified_json, write_text_atomically
from contamination.core.stored_files import parse_typed

PROGRESS_FILE = "progress.json"
FAILURES_FOLDER = "failed"
PEER_ERROR = re.compile(
    r"GoneError|gloo|NCCL|Dist(Backend|Network|Store)Error|Connection (closed|reset|refused)"
)
_folder: Path | None = None


@dataclass(frozen=True)
class Progress:
    """The progress of a process. The seconds left for it and for its sweep are None if unknown."""

    title: str
    n: int
    total: int | None
    unit: str
    seconds_left: float | None
    sweep_left: float | None = None


@dataclass(frozen=True)
class Failure:
    """The error that ended one of several processes.

    `time` is in seconds since the epoch, `kind` is the name of the error's class, `status` the exit
    status, and `trace` the traceback, which is empty for a user error.
    """

    rank: int
    host: str
    time: float
    kind: str
    status: int
    message: str
    trace: str

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the process, which is not a failure."""
        return self.kind == StoppedError.__name__

    @property
    def is_caused_by_peers(self) -> bool:
        """Whether the error only reports that another process has ended."""
        first_line = (self.message.splitlines() or [""])[0] if self.trace else ""
        return bool(PEER_ERROR.search(f"{self.kind} {first_line}"))


def set_records_folder(folder: Path | str | None) -> None:
    """Sets the folder for this process's records; with None, none are written."""
    global _folder
    _folder = None if folder is None else Path(folder)


def record_progress(current_progress: Progress) -> None:
    """Writes this process's progress, if a folder for records is set."""
    if _folder is not None:
        with suppress(OSError):  # a full disk must not end the work here
            write_text_atomically(_folder / PROGRESS_FILE, hashed_json(asdict(current_progress)))


def read_progress(folder: Path) -> Progress | None:
    """Returns the last recorded progress, or None if there is none or it can't be read."""
    with suppress(FileNotFoundError, ValueError):
        recorded: Progress = parse_typed(read_verified_json(folder / PROGRESS_FILE), Progress)
        return recorded
    return None


def record_failure(error: BaseException) -> bool:
    """Writes the error that ends this process, if a folder for records is set.

    Returns:
        Whether the process should print the error itself. It should not if the launcher prints it
        (a user error), if another process has printed an error, or if the error only reports that
        another process has ended.
    """
    if _folder is None:
        return True
    expected_error = error if isinstance(error, UserError | StoppedError) else None
    failure = Failure(
        rank=int(os.environ.get("RANK", "0")),
        host=socket.gethostname(),
        time=time.time(),
        kind=type(error).__name__,
        status=expected_error.status if expected_error else 1,
        message=str(error),
        trace="" if expected_error else "".join(traceback.format_exception(error)),
    )
    with suppress(OSError):
        (_folder / FAILURES_FOLDER).mkdir(parents=True, exist_ok=True)
        write_text_atomically(
            _folder / FAILURES_FOLDER / f"rank-{failure.rank}.json", hashed_json(asdict(failure))
        )
        if expected_error or failure.is_caused_by_peers:
            return False
        try:
            (_folder / FAILURES_FOLDER / "said").touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def read_failures(folder: Path) -> list[Failure]:
    """Returns the failures in order of time, with those caused by other processes last."""
    failures = []
    for file in (folder / FAILURES_FOLDER).glob("rank-*.json"):
        with suppress(FileNotFoundError, ValueError):  # another node may start again
            failures.append(parse_typed(read_verified_json(file), Failure))
    return sorted(failures, key=lambda failure: (failure.is_caused_by_peers, failure.time))


def clear_records(folder: Path) -> None:
    """Removes the records of an earlier attempt."""
    shutil.rmtree(folder / FAILURES_FOLDER, ignore_errors=True)
    (folder / PROGRESS_FILE).unlink(missing_ok=True)
