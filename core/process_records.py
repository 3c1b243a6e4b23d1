"""What a process records in a folder for its launcher: how far it is, and why it failed.

::

    <folder>/
    ├── progress.json            of the one that shows a bar: title, n, total, unit, what is left
    └── failed/rank-<n>.json     an error: when, where, its kind, its message and traceback
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
from contamination.core.files import read_sealed, sealed, write_text
from contamination.core.stored_files import typed

PROGRESS = "progress.json"
FAILED = "failed"
PEERS = re.compile(
    r"GoneError|gloo|NCCL|Dist(Backend|Network|Store)Error|Connection (closed|reset|refused)"
)
_folder: Path | None = None


@dataclass(frozen=True)
class Progress:
    """How far a process is; the seconds left of it and of its sweep are None where not known."""

    title: str
    n: int
    total: int | None
    unit: str
    seconds_left: float | None
    sweep_left: float | None = None


@dataclass(frozen=True)
class Failure:
    """Why one process of several ended.

    `time` is in seconds of the epoch, `kind` the error's class, `status` the process's exit status,
    `trace` the traceback: empty for a user's error.
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
        """Whether it is none: a signal ended the process."""
        return self.kind == StoppedError.__name__

    @property
    def of_peers(self) -> bool:
        """Whether it only says that another process is gone."""
        first = (self.message.splitlines() or [""])[0] if self.trace else ""
        return bool(PEERS.search(f"{self.kind} {first}"))


def leave_in(folder: Path | str | None) -> None:
    """From now on this process leaves its records in the folder; None: nowhere."""
    global _folder
    _folder = None if folder is None else Path(folder)


def record_progress(now: Progress) -> None:
    """Write how far this process is."""
    if _folder is not None:
        with suppress(OSError):  # whoever looks on must not end the work
            write_text(_folder / PROGRESS, sealed(asdict(now)))


def read_progress(folder: Path) -> Progress | None:
    """What was left last; None where nothing was, or nothing that can be read."""
    with suppress(FileNotFoundError, ValueError):
        now: Progress = typed(read_sealed(folder / PROGRESS), Progress)
        return now
    return None


def record_failure(error: BaseException) -> bool:
    """Write why this process ends.

    Returns whether it should print the error itself: not a user's error, which the launcher prints,
    nor where another process has printed why, nor where it knows only that another is gone.
    """
    if _folder is None:
        return True
    said = error if isinstance(error, UserError | StoppedError) else None
    failure = Failure(
        rank=int(os.environ.get("RANK", "0")),
        host=socket.gethostname(),
        time=time.time(),
        kind=type(error).__name__,
        status=said.status if said else 1,
        message=str(error),
        trace="" if said else "".join(traceback.format_exception(error)),
    )
    with suppress(OSError):
        (_folder / FAILED).mkdir(parents=True, exist_ok=True)
        write_text(_folder / FAILED / f"rank-{failure.rank}.json", sealed(asdict(failure)))
        if said or failure.of_peers:
            return False
        try:
            (_folder / FAILED / "said").touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def read_failures(folder: Path) -> list[Failure]:
    """The failures, the first cause first: those that only miss their peers come last."""
    found = []
    for place in (folder / FAILED).glob("rank-*.json"):
        with suppress(FileNotFoundError, ValueError):  # another node starts again
            found.append(typed(read_sealed(place), Failure))
    return sorted(found, key=lambda f: (f.of_peers, f.time))


def forget(folder: Path) -> None:
    """Remove what an earlier attempt left."""
    shutil.rmtree(folder / FAILED, ignore_errors=True)
    (folder / PROGRESS).unlink(missing_ok=True)
