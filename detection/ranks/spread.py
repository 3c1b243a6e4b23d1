"""One pass by several processes or GPUs: each takes a slice of the texts.

The processes are children of this one (`detection.processes`), or a launcher's (see `group`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, TypeVar

from core.errors import ConfigError
from detection.config import DetectionConfig
from detection.model import ScoredModel
from detection.ranks.group import joined
from detection.ranks.slices import Slice, Task, takes_gpu

T = TypeVar("T")


def spread(settings: DetectionConfig) -> bool:
    """Whether several processes share a pass, by `run_slices`.

    Raises:
        ConfigError: `detection.device_map` beside a launcher's processes.
    """
    group = joined()
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
    source: ScoredModel,
    settings: DetectionConfig,
    sequences: Sequence[Sequence[int]],
    *columns: Sequence[Any],
    title: str,
) -> list[T]:
    """The task's result for each sequence, in the given order, by several processes.

    They are the launcher's where it started some, else `settings.processes`. Every n-th sequence
    goes to the same process, so that long and short ones are spread evenly.

    Args:
        task: what each process does with its slice.
        source: the model, which each process loads for itself.
        settings: the stage's settings; on CUDA process i takes GPU i modulo their number.
        sequences: token ids, at least 2 each.
        columns: what else the task takes of each sequence: first what to call it in an error.
        title: of the progress bar, which the first process shows for its own slice.
    """
    group = joined()
    rows = (sequences, *columns)
    n = group.size if group else max(1, min(settings.processes, len(sequences)))
    alone = replace(settings, processes=1)
    slices = [
        Slice(task, source, alone, [c[i::n] for c in rows], None if i else _titled(title, n))
        for i in range(n)
    ]
    parts = group.run(slices) if group else _by_children(slices)
    return [parts[i % n][i // n] for i in range(len(sequences))]


def _titled(title: str, processes: int) -> str:
    return f"{title}, 1 of {processes} processes" if processes > 1 else title


_children: list[ProcessPoolExecutor] | None = None  # of one process each, which has its own GPU


@contextmanager
def staying() -> Iterator[list[ProcessPoolExecutor]]:
    """Child processes that are started within it stay until its end, each with its model."""
    global _children
    if _children is not None:
        yield _children
        return
    _children = []
    try:
        yield _children
    finally:
        for pool in _children:
            pool.shutdown(wait=True, cancel_futures=True)
        _children = None


def _by_children(slices: Sequence[Slice[T]]) -> list[list[T]]:
    n = len(slices)
    with staying() as pools:
        while len(pools) < n:
            pools.append(ProcessPoolExecutor(1, get_context("spawn")))
        futures = [pools[i].submit(_run_child, work, i, n) for i, work in enumerate(slices)]
        return [future.result() for future in futures]


def _run_child(work: Slice[T], number: int, processes: int) -> list[T]:
    import torch

    if not takes_gpu(work.settings):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    return work.run(number)
