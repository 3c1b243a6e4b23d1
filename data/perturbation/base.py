"""The interface of rewordings."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Protocol


class Rewording(Protocol):
    """A frozen dataclass of hyperparameters that makes other versions of texts."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Return a new version of each text, in the given order.

        Args:
            texts: the texts; give all at once to a rewording that runs a model.
            keys: each text's name for its random draws, such as `(example_id, copy)`. The draws
                depend only on `seed` and this name, never on other texts. Keys must differ if
                versions should.
            seed: the seed of the purpose.
        """


def share_of_at_least_one(share: float, n: int) -> int:
    """Return ⌊share·n⌋, at least 1; the small term corrects 0.29·100 = 28.999…."""
    return max(1, floor(share * n + 1e-9))
