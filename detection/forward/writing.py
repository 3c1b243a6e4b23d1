"""What a model writes after the first part of a text: one continuation, or several."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from core.errors import DataError
from core.seeds import derive
from detection.forward.batches import run_batches
from detection.model.language_model import LanguageModel, Prompt, Tell


def run_written(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    tokens: Sequence[int],
    seeds: Sequence[int],
    *,
    n: int,
    temperature: float,
    batch_tokens: int,
    progress: str | None = None,
) -> list[list[list[int]]]:
    """The token ids of `n` continuations of each sequence, in the given order.

    Args:
        model: the model.
        sequences: the prompts' token ids, at least 1 each.
        names: what to call each in an error.
        tokens: how many tokens follow each, at most.
        seeds: a seed for each; that of a continuation follows from it and the number alone.
        n: continuations of each.
        temperature: of the draws; 0: the most probable token each time.
        batch_tokens: tokens in a batch, with those that are written.
        progress: the progress bar's title; none without.

    Raises:
        DataError: the model's logits are not finite.
        ConfigError: a text alone does not fit into the device's memory.
    """
    prompts = [
        Prompt(ids, most, derive(seed, number))
        for ids, most, seed in zip(sequences, tokens, seeds, strict=True)
        for number in range(n)
    ]
    called = [name for name in names for _ in range(n)]

    def score(
        batch: Sequence[Prompt], called: Sequence[str], _: int, tell: Tell
    ) -> list[list[int]]:
        try:
            return model.write(batch, temperature, tell)
        except DataError as error:
            raise DataError(f"text {called[0]}, or one of its batch: {error}") from error

    budget = sys.maxsize if model.takes_all else batch_tokens
    rows = run_batches(prompts, called, budget, score, progress)
    return [rows[i : i + n] for i in range(0, len(rows), n)]
