"""A causal language model as the passes see it, loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detection.passes import TokenStats

Tell = Callable[[int, int], None]
"""Called with how many of a batch's rows are done, and how many there are."""


def tell_nobody(done: int, total: int) -> None:
    """For a batch that no bar counts."""


@dataclass(frozen=True)
class Prompt:
    """What a model is to go on from.

    Attributes:
        ids: token ids, at least 1.
        tokens: how many it writes at most.
        seed: of its draws: what is drawn follows from it alone.
    """

    ids: Sequence[int]
    tokens: int
    seed: int = 0

    def __len__(self) -> int:
        """Tokens when all is written."""
        return len(self.ids) + self.tokens


class LanguageModel(ABC):
    """What every kind of model can do. What else a kind can, its `ScoredModel.gives` says."""

    takes_all: bool = False
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

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """The token ids that follow each prompt, without what ends the text.

        Args:
            prompts: those of one batch.
            temperature: of the draws; 0: the most probable token each time.
            tell: is told how far a batch is that takes long.
        """
        raise NotImplementedError
