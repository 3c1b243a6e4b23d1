"""Tasks that do not need one another: run here, by processes, or by datatrove's executors.

Each leaves a file of JSON, written last, that says what it made. So what was finished before a run
was killed is found, whatever ran it, and the results are the same at any number of workers.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from core.content import digests
from core.files import sealed, temporary, unsealed, write_text
from core.parent import end_with_parent
from injection.config import TasksConfig


class Task(Protocol):
    """Work of one kind in pieces, numbered from 0. It is pickled where others run it."""

    def __len__(self) -> int:
        """How many pieces."""
        ...

    def done(self, piece: int) -> Path:
        """The file that says that a piece is finished, and its result."""
        ...

    def files(self, piece: int) -> list[Path]:
        """What else it writes."""
        ...

    def make(self, piece: int) -> dict[str, Any]:
        """Write the files and give the result, plain data for JSON."""
        ...


def finish(task: Task, piece: int) -> dict[str, Any]:
    """A piece's result, made or found."""
    return made_or_found(task.done(piece), task.files(piece), lambda: task.make(piece))


def made_or_found(
    done: Path, files: Sequence[Path], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What `make` gives, kept in `done`, which is written last; found if the files are whole."""
    if not _is_whole(done, files):
        done.unlink(missing_ok=True)
        made = make()
        write_text(done, sealed({**made, "sha256": _hashes(files)}))
    return unsealed(done.read_text())


def _is_whole(done: Path, files: Sequence[Path]) -> bool:
    """Whether the files are there as they were written."""
    try:
        return bool(unsealed(done.read_text())["sha256"] == _hashes(files))
    except (OSError, ValueError):
        return False


def _hashes(files: Sequence[Path]) -> list[str]:
    return [*digests({path.name: path for path in files}).values()]


@dataclass(frozen=True)
class Stored:
    """A task in a file, which a worker reads once, whatever the number of its pieces."""

    path: Path

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Finish a piece: as datatrove calls a step of its pipelines."""
        self.finish(rank)

    def finish(self, piece: int) -> dict[str, Any]:
        """A piece's result."""
        return finish(_load(self.path), piece)


@lru_cache(maxsize=1)
def _load(path: Path) -> Task:
    with path.open("rb") as stream:
        task: Task = pickle.load(stream)
    return task


@dataclass(frozen=True)
class Runner:
    """What runs the tasks of one corpus."""

    folder: Path
    """For the tasks and what runs them; of the corpus nothing is kept there."""
    cluster: TasksConfig = TasksConfig()
    num_proc: int = 1
    """Processes, where `cluster` is this machine."""

    def run(self, kind: str, task: Task) -> list[dict[str, Any]]:
        """The results of all pieces, in order; `kind` is what they are called in names and logs.

        Raises:
            DataError: datatrove's workers ended without them.
        """
        if self.cluster.kind == "datatrove":
            from injection import on_datatrove

            on_datatrove.run(self._store(kind, task), len(task), kind, self.cluster)
            return [unsealed(task.done(piece).read_text()) for piece in range(len(task))]
        workers = min(self.num_proc, len(task))
        if workers <= 1:
            return [finish(task, piece) for piece in range(len(task))]
        stored = self._store(kind, task)
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=one_thread) as pool:
            return [*pool.map(stored.finish, range(len(task)))]

    def _store(self, kind: str, task: Task) -> Stored:
        folder = self.folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        part = temporary(folder / "task.pickle")
        part.write_bytes(pickle.dumps(task))
        return Stored(part.rename(folder / "task.pickle"))


def is_done(stored: Stored, piece: int) -> bool:
    """Whether a piece says that it is finished."""
    with suppress(OSError, ValueError):
        return bool(unsealed(_load(stored.path).done(piece).read_text()))
    return False


def one_thread() -> None:
    """A worker is one thread, and ends with the process that started it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent(signal.SIGKILL, os.getppid())
