"""One pass by several processes or GPUs: each takes a slice of the texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, TypeVar

from detection.config import DetectionConfig
from detection.scored_model import ScoredModel

T = TypeVar("T")

# What a pass does: `task(decoder, sequences, names, *columns, progress=title)` gives a result for
# each sequence, in their order. For another process it must be a module's function, or a `partial`.
Task = Callable[..., list[T]]


def run_slices(
    task: Task[T],
    source: ScoredModel,
    settings: DetectionConfig,
    sequences: Sequence[Sequence[int]],
    *columns: Sequence[Any],
) -> list[T]:
    """The task's result for each sequence, in the given order, by `settings.processes` processes.

    Every n-th sequence goes to the same process, so that long and short ones are spread evenly.

    Args:
        task: what each process does with its slice.
        source: the model, which each process loads for itself.
        settings: the stage's settings; on CUDA process i takes GPU i modulo their number.
        sequences: token ids, at least 2 each.
        columns: what else the task takes of each sequence: first what to call it in an error.
    """
    rows = (sequences, *columns)
    n = max(1, min(settings.processes, len(sequences)))
    alone = replace(settings, processes=1)
    with ProcessPoolExecutor(n, get_context("spawn")) as pool:
        futures = [
            pool.submit(_run_slice, task, source, alone, i, n, [c[i::n] for c in rows])
            for i in range(n)
        ]
        parts = [future.result() for future in futures]
    return [parts[i % n][i // n] for i in range(len(sequences))]


def _run_slice(
    task: Task[T],
    source: ScoredModel,
    settings: DetectionConfig,
    number: int,
    processes: int,
    columns: Sequence[Sequence[Any]],
) -> list[T]:
    import torch

    from detection.decoder import load_decoder

    if torch.cuda.is_available() and settings.device in ("auto", "cuda"):
        device = f"cuda:{number % torch.cuda.device_count()}"
        settings = replace(settings, device=device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    decoder = load_decoder(source, settings)
    title = f"process {number}" if number == 0 else None
    return task(decoder, *columns, progress=title)
