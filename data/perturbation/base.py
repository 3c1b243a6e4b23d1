"""What every rewording is."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Protocol


class Rewording(Protocol):
    """A frozen dataclass of hyperparameters that makes other versions of texts."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """One new version of each text, in the given order.

        Args:
            texts: the texts; give all at once to a rewording that runs a model.
            keys: a text's name for its draws, such as `(example_id, copy)`: what is drawn for it
                follows from `seed` and this alone, never from its place or its neighbours. Keys
                must differ where versions should.
            seed: the purpose's seed.
        """


def portion(share: float, n: int) -> int:
    """⌊share·n⌋, at least 1; the small term keeps 0.29·100 = 28.999… from losing a word."""
    return max(1, floor(share * n + 1e-9))
