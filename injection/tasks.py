"""Tasks that do not need one another: run here, by processes, or by datatrove's executors.

Each piece of a task leaves a file of JSON, written last, that says what it made. So what was
finished before a run was killed is found, whatever ran it, and the results are the same at any
number of workers.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from core.content import digests
from core.files import read_sealed, sealed, sync, temporary, write_text
from core.parent import end_with_parent
from injection.config import TasksConfig

log = logging.getLogger(__name__)


class Task(Protocol):
    """Work of one kind in pieces, numbered from 0. It is pickled where others run it."""

    def __len__(self) -> int:
        """How many pieces."""
        ...

    def files(self, piece: int) -> list[Path]:
        """What a piece writes."""
        ...

    def make(self, piece: int) -> dict[str, Any]:
        """Write the files and give the result, plain data for JSON."""
        ...


def made_or_found(
    done: Path, files: Sequence[Path], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What `make` gives, kept in `done`, which is written last; found if the files are whole."""
    if (found := _found(done, files)) is not None:
        return found
    done.unlink(missing_ok=True)
    made = make()
    for path in {*files, *(path.parent for path in files)}:
        sync(path)
    write_text(done, sealed({"made": made, "sha256": _hashes(files)}))
    return dict(read_sealed(done)["made"])


def _found(done: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """What `done` says; None: it is not there, or it or the files are damaged."""
    with suppress(OSError, ValueError):
        found = read_sealed(done)
        if found["sha256"] == _hashes(files):
            return dict(found["made"])
    return None


def _hashes(files: Sequence[Path]) -> list[str]:
    return [*digests({path.name: path for path in files}).values()]


@dataclass(frozen=True)
class Stored:
    """A task in its folder, which a worker reads once, whatever the number of its pieces."""

    folder: Path

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Finish a piece: as datatrove calls a step of its pipelines."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.finish(rank)

    def finish(self, piece: int) -> dict[str, Any]:
        """A piece's result, made or found."""
        return _finish(_load(self.folder), self.folder, piece)

    def result(self, piece: int) -> dict[str, Any] | None:
        """What a piece that is finished says, its files unread; None: it is not."""
        with suppress(OSError, ValueError):
            return dict(read_sealed(_done(self.folder, piece))["made"])
        return None


@dataclass(frozen=True)
class Runner:
    """What runs the tasks of one corpus."""

    folder: Path
    """For the tasks, a folder each; of the corpus nothing is kept there."""
    cluster: TasksConfig = TasksConfig()
    num_proc: int = 1
    """Processes, where `cluster` is this machine."""

    def run(self, kind: str, task: Task) -> list[dict[str, Any]]:
        """The results of all pieces, in order; `kind` is what they are called in names and logs.

        Raises:
            DataError: datatrove's workers ended without them.
        """
        folder, pieces = self.folder / kind, range(len(task))
        folder.mkdir(parents=True, exist_ok=True)
        if self.cluster.kind == "datatrove":
            from injection import on_datatrove

            _forget_damaged(task, folder)
            return on_datatrove.run(_store(task, folder), len(task), self.cluster)
        workers = min(self.num_proc, len(task))
        if workers <= 1:
            return [_finish(task, folder, piece) for piece in pieces]
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=one_thread) as pool:
            return [*pool.map(_store(task, folder).finish, pieces)]


def one_thread() -> None:
    """A worker is one thread, and ends with the process that started it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent(signal.SIGKILL, os.getppid())


def _done(folder: Path, piece: int) -> Path:
    return folder / f"{piece:05d}.json"


def _finish(task: Task, folder: Path, piece: int) -> dict[str, Any]:
    return made_or_found(_done(folder, piece), task.files(piece), partial(task.make, piece))


def _forget_damaged(task: Task, folder: Path) -> None:
    """Leave to be made again what an earlier run finished, and is not what it was."""
    for piece in range(len(task)):
        done = _done(folder, piece)
        if done.exists() and _found(done, task.files(piece)) is None:
            log.warning("%s of an earlier run is damaged: it is made again", done)
            done.unlink()


def _store(task: Task, folder: Path) -> Stored:
    part = temporary(folder / "task.pickle")
    part.write_bytes(pickle.dumps(task))
    part.rename(folder / "task.pickle")
    return Stored(folder)


@lru_cache(maxsize=1)
def _load(folder: Path) -> Task:
    with (folder / "task.pickle").open("rb") as stream:
        task: Task = pickle.load(stream)
    return task
