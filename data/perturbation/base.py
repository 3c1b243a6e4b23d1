"""The interface of rewordings."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Protocol


class Rewording(Protocol):
    """Creates other versions of texts; a frozen dataclass of hyperparameters."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns a new version of each text, in the given order.

        Args:
            texts: the texts. Pass all at once, since each call may load a model.
            keys: a key per text for its random draws, such as `(example_id, copy)`. The draws
                depend only on `seed` and the key, never on other texts. Versions of the same text
                need different keys.
            seed: the seed.
        """


def share_of_at_least_one(share: float, n: int) -> int:
    """Returns ⌊share·n⌋, but at least 1; a small term corrects rounding (0.29·100 = 28.999…)."""
    return max(1, floor(share * n + 1e-9))
