"""A causal language model as the passes see it, loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from detection.passes import TokenStats

Tell = Callable[[int, int], None]
"""Called with how many of a batch's rows are done, and how many there are."""


def tell_nobody(done: int, total: int) -> None:
    """For a batch that no bar counts."""


class LanguageModel(ABC):
    """What every kind of model can do. What else a kind can, its `ScoredModel.gives` says."""

    takes_all: ClassVar[bool] = False
    """Whether it takes any number of sequences at once and divides them itself."""

    @abstractmethod
    def stats(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """The statistics of each sequence's tokens after the first, from one batch.

        Args:
            sequences: token ids, at least 2 each.
            tell: is told how far a batch is that takes long.
        """
