"""Runs a model over token sequences in batches, and returns the statistics of every token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence, Sized
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from contamination.core.errors import ConfigError, DataError
from contamination.core.progress import progress_bar
from contamination.detection.models.base import LanguageModel, ProgressCallback
from contamination.detection.passes import Copies, TokenStats

S = TypeVar("S", bound=Sized)
T = TypeVar("T")
MIN_PIECE_TOKENS = 64  # if a piece of this size does not fit into memory, a smaller one does not


def run_sequences(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    progress: str | None = None,
) -> list[TokenStats]:
    """Returns the statistics of each sequence, in the given order.

    Args:
        model: the model.
        sequences: token ids, at least 2 each.
        names: the names of the sequences, for errors.
        batch_tokens: tokens per batch, including padding; a single text may exceed it.
        progress: the title of the progress bar; None shows no bar.

    Raises:
        DataError: the model's logits for a text are not finite.
        ConfigError: a single text does not fit into the device's memory.
    """

    def score(
        batch: list[Sequence[int]], batch_names: list[str], _: int, on_progress: ProgressCallback
    ) -> list[TokenStats]:
        stats = model.score(batch, on_progress)
        check_finite(stats, batch_names)
        return stats

    budget = sys.maxsize if model.batches_itself else batch_tokens
    return run_batches(sequences, names, budget, score, progress)


def run_single_copies(*args: Any, **kwargs: Any) -> list[Copies]:
    """Returns the results of `run_sequences`, each as the only copy of its text."""
    return [(stats,) for stats in run_sequences(*args, **kwargs)]


def run_batches(
    sequences: Sequence[S],
    names: Sequence[str],
    batch_tokens: int,
    score: Callable[..., Sequence[T]],
    progress: str | None = None,
    *,
    in_pieces: bool = False,
) -> list[T]:
    """Returns the result of `score` for each sequence, in the given order.

    Args:
        sequences: token ids or prompts; the longest are run first.
        names: see `run_sequences`.
        batch_tokens: see `run_sequences`. It is halved for the rest of the run whenever the
            device's memory runs out.
        score: called with a batch's sequences, their names, the current `batch_tokens`, and
            `on_progress`, which reports progress; returns one result per sequence.
        progress: see `run_sequences`.
        in_pieces: whether `score` also divides a text to stay within `batch_tokens`.

    Raises:
        ConfigError: a single text does not fit into the device's memory.
    """
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    results: dict[int, T] = {}
    bar_options = {"unit": "text", "disable": progress is None}
    bar = progress_bar(total=len(order), desc=progress, stage="detect", **bar_options)
    with bar:
        while waiting := order[len(results) :]:
            width = len(sequences[waiting[0]])
            batch = waiting[: max(1, batch_tokens // width)]
            batch_names = [names[i] for i in batch]
            try:
                on_progress = partial(bar.count_batch_rows, len(batch))
                batch_results = score(
                    [sequences[i] for i in batch],
                    batch_names,
                    batch_tokens,
                    on_progress=on_progress,
                )
            except torch.cuda.OutOfMemoryError as error:
                used = batch_tokens if in_pieces else len(batch) * width
                if used <= (MIN_PIECE_TOKENS if in_pieces else width):
                    raise _out_of_memory_error(batch_names[0], used, in_pieces=in_pieces) from error
                batch_tokens = used // 2
                torch.cuda.empty_cache()
                continue
            results.update(zip(batch, batch_results, strict=True))
            bar.update(len(batch))
    return [results[i] for i in range(len(sequences))]


def _out_of_memory_error(text_name: str, tokens: int, *, in_pieces: bool) -> ConfigError:
    size = f"even in pieces of {tokens} tokens" if in_pieces else "even alone"
    return ConfigError(
        f"text {text_name}{'' if in_pieces else f' of {tokens} tokens'} does not fit into the "
        f"device's memory, {size}. Use detection.dtype=bfloat16, a shorter text, or "
        "detection.device=cpu."
    )


def run_by_key(keys: Sequence[int], run: Callable[[int, list[int]], Sequence[T]]) -> list[T]:
    """Returns one result per key, in order.

    Args:
        keys: one key per item.
        run: computes the results of all items with one key, from the key and their indices.
    """
    results: dict[int, T] = {}
    for key in sorted(set(keys)):
        indices = [i for i, other in enumerate(keys) if other == key]
        results.update(zip(indices, run(key, indices), strict=True))
    return [results[i] for i in range(len(keys))]


def check_finite(stats: Sequence[TokenStats], names: Sequence[str]) -> None:
    """Raises a DataError that names the first text with a statistic that is not finite."""
    for text_stats, name in zip(stats, names, strict=True):
        if not all(np.isfinite(column).all() for column in vars(text_stats).values()):
            raise DataError(
                f"text {name}: the model's logits for it are NaN or infinite, so it has no score. "
                "Check the model's weights, or score with detection.dtype=float32."
            )
