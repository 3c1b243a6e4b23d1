"""A model with its tokenizer, and how a task is done on texts by one process or by several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from detection.config import DetectionConfig
from detection.forward.windows import leading_special, merge_copies, split
from detection.model import ScoredModel
from detection.model.language_model import LanguageModel
from detection.passes import Copies
from detection.ranks.slices import Task
from detection.ranks.spread import run_slices, spread
from detection.resources import Resources
from detection.texts import Text

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
        self, source: ScoredModel, settings: DetectionConfig, resources: Resources | None = None
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
