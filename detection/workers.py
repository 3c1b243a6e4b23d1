"""Divides a pass among processes; each process keeps the model it loaded last.

The processes are those of a launcher (`process_group`), or else children of this process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from contamination.core.errors import ConfigError
from contamination.core.worker_pool import worker_pool
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import ModelHandle
from contamination.detection.process_group import current_group

if TYPE_CHECKING:
    from contamination.detection.models.base import LanguageModel

T = TypeVar("T")

# What a pass does: `task(model, sequences, names, *columns, progress=title)` returns one result per
# sequence, in order. To be sent to another process it must be a module's function, or a `partial`.
Task = Callable[..., list[T]]


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One process's share of a pass.

    Attributes:
        task: what to do with the sequences.
        source: the model, which this process loads.
        settings: the stage's settings.
        columns: the token sequences, their names, and further arguments of the task.
        title: the title of the progress bar; None shows no bar.
    """

    task: Task[T]
    source: ModelHandle
    settings: DetectionConfig
    columns: Sequence[Sequence[Any]]
    title: str | None

    def run(self, number: int) -> list[T]:
        """Returns the task's results; with CUDA, computed on GPU `number` modulo their number."""
        if not self.columns[0]:
            return []
        model = _last_model.load(self.source, _settings_for_gpu(self.settings, number))
        return self.task(model, *self.columns, progress=self.title)


class _LoadedModelCache:
    """The model loaded last, which the next pass often uses again."""

    def __init__(self) -> None:
        self._key: tuple[ModelHandle, DetectionConfig] | None = None
        self._model: LanguageModel | None = None

    def load(self, source: ModelHandle, settings: DetectionConfig) -> LanguageModel:
        """Returns the model on its device; a different model is freed before it is loaded."""
        if self._model is None or self._key != (source, settings):
            self._model = None
            gc.collect()
            self._model = source.load(settings)
            self._key = source, settings
        return self._model


_last_model = _LoadedModelCache()


def assigns_gpus(settings: DetectionConfig) -> bool:
    """Returns whether there is a GPU and the settings leave its choice to this module."""
    import torch

    return torch.cuda.is_available() and settings.device in ("auto", "cuda")


def _settings_for_gpu(settings: DetectionConfig, number: int) -> DetectionConfig:
    import torch

    if not assigns_gpus(settings):
        return settings
    return replace(settings, device=f"cuda:{number % torch.cuda.device_count()}")


def uses_several_processes(settings: DetectionConfig) -> bool:
    """Returns whether several processes share a pass, by `run_slices`.

    Raises:
        ConfigError: `detection.device_map` is set and a launcher started several processes.
    """
    group = current_group()
    if group is None:
        return settings.processes > 1
    if settings.device_map is not None:
        raise ConfigError(
            f"detection.device_map is {settings.device_map!r}: it spreads one model over all "
            f"devices, but each of WORLD_SIZE={group.size} processes loads a model. Choose one of "
            "them."
        )
    return True


def run_slices(
    task: Task[T],
    source: ModelHandle,
    settings: DetectionConfig,
    sequences: Sequence[Sequence[int]],
    *columns: Sequence[Any],
    title: str,
) -> list[T]:
    """Returns the task's result for each sequence, in the given order, from several processes.

    The processes are the launcher's if there is one, else `settings.processes` children. Every n-th
    sequence goes to the same process, so that long and short ones are distributed evenly.

    Args:
        task: what each process does with its slice.
        source: the model, which each process loads.
        settings: the stage's settings; with CUDA, process i uses GPU i modulo their number.
        sequences: token ids, at least 2 each.
        columns: further arguments of the task with one value per sequence, first its name, which
            is used in errors.
        title: the title of the progress bar, which the first process shows for its own slice.
    """
    group = current_group()
    rows = (sequences, *columns)
    n = group.size if group else max(1, min(settings.processes, len(sequences)))
    single = replace(settings, processes=1)
    bar_title = f"{title}, 1 of {n} processes" if n > 1 else title
    slices = [
        Slice(task, source, single, [c[i::n] for c in rows], None if i else bar_title)
        for i in range(n)
    ]
    results = group.run(slices) if group else _run_in_children(slices)
    return [results[i % n][i // n] for i in range(len(sequences))]


_children: list[ProcessPoolExecutor] | None = None  # pools of one process, each with its own GPU


@contextmanager
def keep_children_alive() -> Iterator[list[ProcessPoolExecutor]]:
    """Keeps child processes, and the model that each has loaded, until the context ends."""
    global _children
    if _children is not None:
        yield _children
        return
    with ExitStack() as stack:
        pools = _children = []
        try:
            yield pools
        finally:
            _children = None
            for pool in pools:
                stack.push(pool)


def _run_in_children(slices: Sequence[Slice[T]]) -> list[list[T]]:
    n = len(slices)
    with keep_children_alive() as pools:
        while len(pools) < n:
            pools.append(worker_pool(1))
        futures = [pools[i].submit(_run_in_child, piece, i, n) for i, piece in enumerate(slices)]
        return [future.result() for future in futures]


def _run_in_child(piece: Slice[T], number: int, processes: int) -> list[T]:
    import joblib
    import torch

    if not assigns_gpus(piece.settings):
        torch.set_num_threads(max(1, joblib.cpu_count() // processes))
    return piece.run(number)
