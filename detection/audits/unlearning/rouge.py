"""ROUGE-L: how much of a text comes back, in its order (Lin 2004, section 3.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class RougeL:
    """With L words in common, in one order: L / |reference|, L / |written|, and both's F1."""

    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """Their harmonic mean; 0 where nothing is common."""
        both = self.recall + self.precision
        return 2 * self.recall * self.precision / both if both else 0.0


def rouge_l(written: str, reference: str) -> RougeL:
    """Lin's equations 2 and 3; 0 where either has no word.

    Words are runs of letters and digits, in lower case: on English those of the package rouge-score
    without its stemmer.
    """
    own, wanted = words(written), words(reference)
    common = longest_common(own, wanted)
    return RougeL(common / max(1, len(wanted)), common / max(1, len(own)))


def words(text: str) -> list[str]:
    """The text's words."""
    return WORD.findall(text.lower())


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of their longest common subsequence, a row of bits a word (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(one)) - 1
    row = every
    for word in other:
        kept = row & places.get(word, 0)
        row = (row + kept | row - kept) & every
    return len(one) - row.bit_count()
