"""Random swaps of two words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.ranges import FRACTION, Ranged, limited
from core.rewording.base import portion
from core.seeds import derive

WORD_OR_GAP = re.compile(r"\S+|\s+")


@dataclass(frozen=True)
class Swap(Ranged, node="swap"):
    """⌊share·words⌋ random swaps of two words, at least 1 (PAC, Ye et al. 2024).

    Words are what stands between white space, which stays where it is, so that lines keep their
    number of words. A text of fewer than two words is returned as it stands, and swaps may happen
    to undo each other or to exchange equal words.
    """

    share: float = limited(0.3, FRACTION)
    """Swaps a word of the text, above 0 and at most 1; the paper's default."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Each text with some of its words in each other's places."""
        pairs = zip(texts, keys, strict=True)
        return [self._swapped(text, derive(seed, "swap", key)) for text, key in pairs]

    def _swapped(self, text: str, seed: int) -> str:
        pieces = WORD_OR_GAP.findall(text)
        places = [i for i, piece in enumerate(pieces) if not piece.isspace()]
        if len(places) < 2:
            return text
        rng = np.random.default_rng(seed)
        for _ in range(portion(self.share, len(places))):
            one, other = (places[i] for i in rng.choice(len(places), size=2, replace=False))
            pieces[one], pieces[other] = pieces[other], pieces[one]
        return "".join(pieces)
