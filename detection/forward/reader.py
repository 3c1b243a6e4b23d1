"""A model with its tokenizer, and how a task is done on texts by one process or by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from detection.config import DetectionConfig
from detection.forward.windows import leading_special, split
from detection.material import Material
from detection.model import ScoredModel
from detection.model.language_model import LanguageModel
from detection.passes import Pass, TokenStats
from detection.ranks.slices import Task
from detection.ranks.spread import run_slices, spread
from detection.texts import Text

T = TypeVar("T")
Merge = Callable[[Sequence[T], int], T]


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
    """The weights are loaded when they are first asked for."""

    def __init__(
        self, source: ScoredModel, settings: DetectionConfig, material: Material | None = None
    ) -> None:
        self.source = source
        self.settings = settings
        self.material = material or Material()
        self.tokenizer = source.tokenizer()

    @cached_property
    def model(self) -> LanguageModel:
        """The model on its device."""
        return self.source.load(self.settings)

    @property
    def each_alone(self) -> Task[TokenStats]:
        """What a pass does that reads each text by itself."""
        from detection.forward.batches import run_sequences  # it imports torch

        return partial(run_sequences, batch_tokens=self.settings.batch_tokens)

    def spread(
        self, task: Task[T], wanted: Pass, tokens: Sequence[Tokens], *columns: Sequence[int]
    ) -> list[T]:
        """The task's result for each of the texts, by one process or by several."""
        return self._spread(task, f"{self.source.slug} {wanted.view_key}", tokens, *columns)

    def spread_windows(
        self, task: Task[T], merged: Merge[T], wanted: Pass, tokens: Sequence[Tokens]
    ) -> list[T]:
        """The task's results for texts longer than the context, each from its windows' results."""
        context = self.source.context
        if not tokens or context is None:
            return []
        special = leading_special(self.tokenizer)
        pieces = [split(t.ids, context, special) for t in tokens]
        rows = [
            replace(t, ids=ids) for t, piece in zip(tokens, pieces, strict=True) for ids in piece
        ]
        title = f"{self.source.slug} {wanted.view_key}, windows"
        found = iter(self._spread(task, title, rows))
        return [merged([next(found) for _ in piece], context) for piece in pieces]

    def _spread(
        self, task: Task[T], title: str, tokens: Sequence[Tokens], *columns: Sequence[int]
    ) -> list[T]:
        if not tokens:
            return []
        ids, names = [t.ids for t in tokens], [t.owner.example_id for t in tokens]
        if spread(self.settings):
            return run_slices(task, self.source, self.settings, ids, names, *columns)
        return task(self.model, ids, names, *columns, progress=title)
