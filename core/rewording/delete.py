"""Random deletions of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.ranges import FRACTION, Ranged, limited
from core.rewording.base import portion
from core.seeds import derive

GAP = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Delete(Ranged, node="delete"):
    """The text without ⌊share·words⌋ random words, at least 1 and never all.

    Wei and Zou 2019 (EDA) drop each word with a fixed probability; a fixed number makes every
    text equally reworded. A text of fewer than two words is returned as it stands.
    """

    share: float = limited(0.1, FRACTION)
    """The share of the words to drop, above 0 and at most 1; EDA's default probability."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Each text without some of its words."""
        pairs = zip(texts, keys, strict=True)
        return [self._shortened(text, derive(seed, "delete", key)) for text, key in pairs]

    def _shortened(self, text: str, seed: int) -> str:
        core = text.strip()
        words, gaps = GAP.split(core)[::2], GAP.split(core)[1::2]
        if len(words) < 2:
            return text
        dropped = min(portion(self.share, len(words)), len(words) - 1)
        rng = np.random.default_rng(seed)
        kept = np.sort(rng.choice(len(words), size=len(words) - dropped, replace=False)).tolist()
        lead, tail = text[: text.index(core)], text[text.index(core) + len(core) :]
        parts = [lead, words[kept[0]]]
        for before, after in zip(kept, kept[1:], strict=False):
            parts += [_strongest(gaps[before:after]), words[after]]
        return "".join([*parts, tail])


def _strongest(gaps: Sequence[str]) -> str:
    """Of the gaps around dropped words the one with the most line ends: lines stay apart."""
    return max(gaps, key=lambda gap: gap.count("\n"))
