"""A model with its tokenizer, and how a task is done on texts by one process or by several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from contamination.core.errors import DataError
from contamination.core.seeds import derive
from contamination.data.texts import Text
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import LanguageModel, ModelHandle, Prompt, Tell
from contamination.detection.passes import Copies, TokenStats
from contamination.detection.resources import Resources
from contamination.detection.workers import Task, run_slices, spread


def leading_special(tokenizer: Any) -> int:
    """How many special tokens the tokenizer puts before a text."""
    first = tokenizer("a", add_special_tokens=False)["input_ids"][0]
    with_special: list[int] = tokenizer("a")["input_ids"]
    return with_special.index(first)


def overlap(context: int) -> int:
    """The tokens of a window, special ones included, that are not scored in it; but the first's."""
    return context - context // 2


def split(ids: Sequence[int], context: int, special: int) -> list[list[int]]:
    """The windows of a text of more than `context` tokens, the first `special` of them leading."""
    step = context // 2
    starts = range(0, len(ids) - overlap(context), step)
    return [[*ids[:special], *ids[s + special : s + context]] for s in starts]


def merge(windows: Sequence[TokenStats], context: int, ahead: int = 0) -> TokenStats:
    """The text's statistics from its windows'; `ahead`: of the tokens so far after a replaced one.

    The result has an entry for each token after the text's first, or after its first 1 + `ahead`.
    """
    starts = [0] + [overlap(context) - 1 - ahead] * (len(windows) - 1)
    return TokenStats.joined([w[s:] for w, s in zip(windows, starts, strict=True)])


def merge_copies(windows: Sequence[Copies], context: int) -> Copies:
    """A text's copies of the infilling pass from its windows': copy j is j tokens ahead."""
    copies = zip(*windows, strict=True)
    return tuple(merge(each, context, j) for j, each in enumerate(copies))


T = TypeVar("T")


@dataclass(frozen=True)
class Tokens:
    """One text of a view as the model reads it; `owner` is the example's text it was made from.

    A `windowed` one has more tokens than the model takes at once.
    """

    owner: Text
    copy: int
    ids: list[int]
    truncated: bool
    windowed: bool = False


class Reader:
    """Reads tokens with one model; a view says what is done with them.

    The tokenizer comes from the model's files at once. The weights are loaded when `model` is first
    asked for: never here where other processes do the work, for each of them loads its own.

    Args:
        source: the model, not yet loaded.
        settings: the stage's settings: device, batches, processes, long texts.
        resources: what views draw on beside the texts.
    """

    def __init__(
        self, source: ModelHandle, settings: DetectionConfig, resources: Resources | None = None
    ) -> None:
        self.source = source
        self.settings = settings
        self.resources = resources or Resources()
        self.tokenizer = source.tokenizer()

    @cached_property
    def model(self) -> LanguageModel:
        """The model on its device."""
        return self.source.load(self.settings)

    def spread(
        self, task: Task[T], title: str, tokens: Sequence[Tokens], *columns: Sequence[int]
    ) -> list[T]:
        """The task's result for each of the texts, by one process or by several.

        Args:
            task: called with the model, the token ids, the examples' ids and the columns.
            title: of the progress bar.
            tokens: the texts.
            columns: what else the task takes of each text.
        """
        if not tokens:
            return []
        ids, names = [t.ids for t in tokens], [t.owner.example_id for t in tokens]
        shown = self.source.titled(title)
        if spread(self.settings):
            return run_slices(task, self.source, self.settings, ids, names, *columns, title=shown)
        return task(self.model, ids, names, *columns, progress=shown)

    def spread_windows(
        self, task: Task[Copies], title: str, tokens: Sequence[Tokens]
    ) -> list[Copies]:
        """The results for texts longer than the context, each merged from its windows'."""
        context = self.source.context
        if not tokens or context is None:
            return []
        special = leading_special(self.tokenizer)
        windows = [split(t.ids, context, special) for t in tokens]
        each = zip(tokens, windows, strict=True)
        rows = [replace(text, ids=ids) for text, own in each for ids in own]
        found = iter(self.spread(task, f"{title}, windows", rows))
        return [merge_copies([next(found) for _ in own], context) for own in windows]


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
    from contamination.detection.forward.batches import run_batches  # it imports torch

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
            return model.generate(batch, temperature, tell)
        except DataError as error:
            raise DataError(f"text {called[0]}, or one of its batch: {error}") from error

    budget = sys.maxsize if model.batches_itself else batch_tokens
    rows = run_batches(prompts, called, budget, score, progress)
    return [rows[i : i + n] for i in range(0, len(rows), n)]
