"""A model with its tokenizer, and how it performs the work of a view.

A view describes its work as a `ViewWork`, a task over token sequences. The `Reader` performs it, in
one process or several. The module also divides long texts into windows and merges their statistics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from contamination.core.errors import DataError
from contamination.core.seeds import derive_seed
from contamination.data.texts import Text
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import LanguageModel, ModelHandle, ProgressCallback, Prompt
from contamination.detection.passes import Copies, TokenStats
from contamination.detection.view_resources import Resources
from contamination.detection.workers import Task, run_slices, uses_several_processes

T = TypeVar("T")


@dataclass(frozen=True)
class Tokens:
    """The token ids of one version of a text.

    Attributes:
        owner: the example from whose text the version was made.
        copy: the number of the version in its view, from 0.
        ids: the token ids.
        truncated: whether tokens beyond the model's context were dropped.
        windowed: whether `ids` exceeds the model's context and is read in windows.
    """

    owner: Text
    copy: int
    ids: list[int]
    truncated: bool
    windowed: bool = False


@dataclass(frozen=True)
class ViewWork:
    """What a view asks of a model: one task over token sequences.

    Attributes:
        task: what each process does with its share of the sequences.
        tokens: the sequences to read.
        columns: further arguments of the task, each with one value per sequence.
        to_copies: makes the statistics of every text of the pass from the task's results.
    """

    task: Task[Any]
    tokens: Sequence[Tokens]
    columns: tuple[Sequence[int], ...] = ()
    to_copies: Callable[[list[Any]], list[Copies]] = list


class Reader:
    """A model's tokenizer, context and settings, as views see them; performs the work of a view.

    The tokenizer is loaded at once. The weights are loaded when `model` is first used, and never in
    this process if other processes do the work, because each of them loads its own.

    Args:
        source: the model, not yet loaded.
        settings: the stage's settings: device, batches, processes, long texts.
        resources: what views use in addition to the texts.
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

    def perform(self, work: ViewWork, title: str) -> list[Copies]:
        """Returns the statistics of every text of the work; `title` names the progress bar."""
        return work.to_copies(self.run_in_processes(work.task, title, work.tokens, *work.columns))

    def perform_in_windows(
        self, task: Task[Copies], title: str, tokens: Sequence[Tokens]
    ) -> list[Copies]:
        """Returns the statistics of texts longer than the context, merged from their windows."""
        context = self.source.context
        if not tokens or context is None:
            return []
        special = count_leading_special(self.tokenizer)
        windows_by_text = [split_into_windows(t.ids, context, special) for t in tokens]
        windows = [
            replace(text, ids=ids)
            for text, windows_of_text in zip(tokens, windows_by_text, strict=True)
            for ids in windows_of_text
        ]
        copies = iter(self.run_in_processes(task, f"{title}, windows", windows))
        return [
            merge_window_copies([next(copies) for _ in windows_of_text], context)
            for windows_of_text in windows_by_text
        ]

    def run_in_processes(
        self, task: Task[T], title: str, tokens: Sequence[Tokens], *columns: Sequence[int]
    ) -> list[T]:
        """Returns the task's result for each sequence, computed by one process or several.

        Args:
            task: called with the model, the token ids, the examples' ids and the columns.
            title: the title of the progress bar.
            tokens: the sequences.
            columns: further arguments of the task, each with one value per sequence.
        """
        if not tokens:
            return []
        ids, names = [t.ids for t in tokens], [t.owner.example_id for t in tokens]
        bar_title = self.source.bar_title(title)
        if uses_several_processes(self.settings):
            return run_slices(
                task, self.source, self.settings, ids, names, *columns, title=bar_title
            )
        return task(self.model, ids, names, *columns, progress=bar_title)


def count_leading_special(tokenizer: Any) -> int:
    """Returns the number of special tokens that the tokenizer puts before a text."""
    first = tokenizer("a", add_special_tokens=False)["input_ids"][0]
    with_special: list[int] = tokenizer("a")["input_ids"]
    return with_special.index(first)


def overlap_tokens(context: int) -> int:
    """Returns the number of leading tokens of a window that are not scored in it.

    Special tokens are included. In the first window, all tokens but the first are scored.
    """
    return context - context // 2


def split_into_windows(ids: Sequence[int], context: int, special: int) -> list[list[int]]:
    """Divides a text of more than `context` tokens into windows.

    Each window begins with the first `special` tokens of the text.
    """
    step = context // 2
    starts = range(0, len(ids) - overlap_tokens(context), step)
    return [[*ids[:special], *ids[s + special : s + context]] for s in starts]


def merge_windows(windows: Sequence[TokenStats], context: int, ahead: int = 0) -> TokenStats:
    """Merges the statistics of a text's windows.

    The result has one entry for each token after the first 1 + `ahead` tokens of the text. In the
    infilling pass `ahead` is the distance to the replaced token, otherwise 0.
    """
    starts = [0] + [overlap_tokens(context) - 1 - ahead] * (len(windows) - 1)
    return TokenStats.concatenate([w[s:] for w, s in zip(windows, starts, strict=True)])


def merge_window_copies(windows: Sequence[Copies], context: int) -> Copies:
    """Merges the copies of a text's windows in the infilling pass: copy j is j tokens ahead."""
    windows_by_copy = zip(*windows, strict=True)
    return tuple(
        merge_windows(copy_windows, context, j) for j, copy_windows in enumerate(windows_by_copy)
    )


def run_continuations(
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
    """Returns the token ids of `n` continuations of each sequence, in the given order.

    Args:
        model: the model.
        sequences: the prompts' token ids, at least 1 each.
        names: the names of the texts, for errors.
        tokens: the maximum number of new tokens of each continuation, per sequence.
        seeds: one seed per sequence. A continuation depends only on it and its own number.
        n: continuations per sequence.
        temperature: the sampling temperature; 0 selects the most probable token each time.
        batch_tokens: tokens per batch, including the new ones.
        progress: the title of the progress bar; None shows no bar.

    Raises:
        DataError: the model's logits are not finite.
        ConfigError: a single text does not fit into the device's memory.
    """
    from contamination.detection.forward.batches import run_batches  # it imports torch

    prompts = [
        Prompt(ids, max_tokens, derive_seed(seed, number))
        for ids, max_tokens, seed in zip(sequences, tokens, seeds, strict=True)
        for number in range(n)
    ]
    prompt_names = [name for name in names for _ in range(n)]

    def score(
        batch: Sequence[Prompt], batch_names: Sequence[str], _: int, on_progress: ProgressCallback
    ) -> list[list[int]]:
        try:
            return model.generate(batch, temperature, on_progress)
        except DataError as error:
            raise DataError(f"text {batch_names[0]}, or one of its batch: {error}") from error

    budget = sys.maxsize if model.batches_itself else batch_tokens
    continuations = run_batches(prompts, prompt_names, budget, score, progress)
    return [continuations[i : i + n] for i in range(0, len(continuations), n)]
