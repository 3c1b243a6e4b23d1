"""A causal language model as the passes see it, loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from detection.passes import TokenStats


class LanguageModel(ABC):
    """What every kind of model can do. What else a kind can, its `ScoredModel.gives` says."""

    @abstractmethod
    def stats(self, sequences: Sequence[Sequence[int]]) -> list[TokenStats]:
        """The statistics of each sequence's tokens after the first, from one batch.

        Args:
            sequences: token ids, at least 2 each.
        """
