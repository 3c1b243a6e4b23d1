"""Runs a model over token sequences, in batches, for the statistics of every token.

Shapes: B texts, T tokens (padded), N rows that are real tokens, X hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.errors import ConfigError, DataError
from core.progress import progress as progress_bar
from detection.decoder import Decoder
from detection.passes import TokenStats
from detection.vocabulary import rows_at_once, statistics

FIELDS = tuple(f.name for f in fields(TokenStats))
T = TypeVar("T")


def run_sequences(
    decoder: Decoder,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch_tokens: int,
    progress: str | None = None,
) -> list[TokenStats]:
    """The statistics of each sequence, in the given order.

    Args:
        decoder: the model.
        sequences: token ids, at least 2 each.
        names: what to call each sequence in an error.
        batch_tokens: tokens in a batch, padding included; one text may exceed it.
        progress: the progress bar's title; none without.

    Raises:
        DataError: the model's logits for a text are not finite.
        ConfigError: a text alone does not fit into the device's memory.
    """

    def score(batch: Sequence[int], _: int) -> list[TokenStats]:
        stats = run_batch(decoder, [sequences[i] for i in batch])
        check_finite(stats, [names[i] for i in batch])
        return stats

    smaller = partial(_halved, sequences, names)
    return run_batches(sequences, batch_tokens, score, smaller, progress)


def run_batches(
    sequences: Sequence[Sequence[int]],
    batch_tokens: int,
    score: Callable[[Sequence[int], int], Sequence[T]],
    smaller: Callable[[Sequence[int], int, torch.cuda.OutOfMemoryError], int],
    progress: str | None = None,
) -> list[T]:
    """What `score` gives for each sequence, in the given order; it gets them longest first.

    Args:
        sequences: token ids.
        batch_tokens: tokens in a batch, padding included; one text may exceed it.
        score: from a batch, as places in `sequences`, and the budget a result for each.
        smaller: the budget after a batch, under a budget, ran out of memory; or it raises.
        progress: the progress bar's title; none without.
    """
    order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i))
    results: dict[int, T] = {}
    bar = progress_bar(total=len(order), desc=progress, unit=" texts", disable=progress is None)
    with bar:
        while len(results) < len(order):
            batch = next_batch(order[len(results) :], sequences, batch_tokens)
            try:
                found = score(batch, batch_tokens)
            except torch.cuda.OutOfMemoryError as error:
                batch_tokens = smaller(batch, batch_tokens, error)
                torch.cuda.empty_cache()
                continue
            results.update(zip(batch, found, strict=True))
            bar.update(len(batch))
    return [results[i] for i in range(len(sequences))]


def next_batch(
    waiting: Sequence[int], sequences: Sequence[Sequence[int]], batch_tokens: int
) -> list[int]:
    """The first of the waiting, longest first, that fit into the budget; at least one."""
    width = len(sequences[waiting[0]])
    return list(waiting[: max(1, batch_tokens // width)])


@torch.inference_mode()
def run_batch(decoder: Decoder, sequences: Sequence[Sequence[int]]) -> list[TokenStats]:
    """One forward over sequences padded on the right, which a causal model's rows never see."""
    width = max(map(len, sequences))
    ids = np.zeros((len(sequences), width), dtype=np.int64)
    scored = np.zeros((len(sequences), width - 1), dtype=bool)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        scored[row, : len(sequence) - 1] = True  # the positions whose *next* token is real
    ids_BT = torch.from_numpy(ids).to(decoder.device)
    scored_BT = torch.from_numpy(scored).to(decoder.device)
    hidden_BTX = decoder.hidden(ids_BT)[:, :-1]
    hidden_NX = hidden_BTX[scored_BT.to(hidden_BTX.device)]
    columns = token_columns(decoder, hidden_NX, ids_BT[:, 1:][scored_BT])
    ends = np.cumsum([len(s) - 1 for s in sequences])[:-1]
    pieces = [np.split(column, ends) for column in columns]
    return [TokenStats(*each) for each in zip(*pieces, strict=True)]


def token_columns(decoder: Decoder, hidden_NX: Tensor, targets_N: Tensor) -> list[NDArray[Any]]:
    """The five statistics (N,), from logits of a few rows at a time."""
    rows = rows_at_once(decoder.vocabulary, decoder.device)
    logits = (decoder.logits(hidden) for hidden in torch.split(hidden_NX, rows))
    *floats, top_id = (column.cpu().numpy() for column in statistics(logits, targets_N))
    return [*floats, top_id.astype(np.int32)]


def check_finite(stats: Sequence[TokenStats], names: Sequence[str]) -> None:
    """Raise a DataError that names the first text with a statistic that is not finite."""
    for one, name in zip(stats, names, strict=True):
        if not all(np.isfinite(getattr(one, field)).all() for field in FIELDS):
            raise DataError(
                f"text {name}: the model's logits for it are NaN or infinite, so it has no score. "
                "Check the model's weights, or score with detection.dtype=float32."
            )


def _halved(
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    batch: Sequence[int],
    _: int,
    error: torch.cuda.OutOfMemoryError,
) -> int:
    """The budget after the device ran out of memory: half of the batch that did not fit."""
    if len(batch) == 1:
        raise ConfigError(
            f"text {names[batch[0]]} of {len(sequences[batch[0]])} tokens does not fit into the "
            "device's memory, even alone. Use detection.dtype=bfloat16, a shorter text, or "
            "detection.device=cpu."
        ) from error
    return len(batch) * len(sequences[batch[0]]) // 2
