"""Rewordings that swap, delete or lowercase words, or leave the text as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION, Ranged, ranged_field
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.base import share_of_at_least_one

WORD_OR_GAP = re.compile(r"\S+|\s+")


@dataclass(frozen=True)
class Swap(Ranged, node="swap"):
    """Swaps two random words ⌊share·words⌋ times, at least once (PAC, Ye et al. 2024).

    Words are separated by white space, which does not move, so lines keep their number of words. A
    text with fewer than two words is not changed. Swaps may undo each other or exchange equal
    words.
    """

    share: float = ranged_field(0.3, FRACTION)
    """Swaps per word of the text, above 0 and at most 1; the paper's default."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns each text with some of its words swapped."""
        pairs = zip(texts, keys, strict=True)
        return [self._swap_words(text, derive_seed(seed, "swap", key)) for text, key in pairs]

    def _swap_words(self, text: str, seed: int) -> str:
        pieces = WORD_OR_GAP.findall(text)
        places = [i for i, piece in enumerate(pieces) if not piece.isspace()]
        if len(places) < 2:
            return text
        rng = np.random.default_rng(seed)
        for _ in range(share_of_at_least_one(self.share, len(places))):
            first, second = (places[i] for i in rng.choice(len(places), size=2, replace=False))
            pieces[first], pieces[second] = pieces[second], pieces[first]
        return "".join(pieces)


GAP = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Delete(Ranged, node="delete"):
    """Deletes ⌊share·words⌋ random words: at least one word, but never all words.

    Wei and Zou 2019 (EDA) delete each word with a fixed probability; here the number is fixed, so
    that all texts change to the same degree. A text with fewer than two words is not changed.
    """

    share: float = ranged_field(0.1, FRACTION)
    """The share of the words to delete, above 0 and at most 1; EDA's default probability."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns each text without some of its words."""
        pairs = zip(texts, keys, strict=True)
        return [self._delete_words(text, derive_seed(seed, "delete", key)) for text, key in pairs]

    def _delete_words(self, text: str, seed: int) -> str:
        stripped = text.strip()
        words, gaps = GAP.split(stripped)[::2], GAP.split(stripped)[1::2]
        if len(words) < 2:
            return text
        n_deleted = min(share_of_at_least_one(self.share, len(words)), len(words) - 1)
        rng = np.random.default_rng(seed)
        remaining = np.sort(rng.choice(len(words), size=len(words) - n_deleted, replace=False))
        indices = remaining.tolist()
        start = text.index(stripped)
        lead, tail = text[:start], text[start + len(stripped) :]
        parts = [lead, words[indices[0]]]
        for before, after in zip(indices, indices[1:], strict=False):
            parts += [_strongest_gap(gaps[before:after]), words[after]]
        return "".join([*parts, tail])


def _strongest_gap(gaps: Sequence[str]) -> str:
    """Returns the gap with the most line breaks, so that lines stay separate."""
    return max(gaps, key=lambda gap: gap.count("\n"))


@dataclass(frozen=True)
class Lowercase:
    """Converts texts to lower case (the lowercase attack of Carlini et al. 2021, section 5.2).

    The result is not random: all keys give the same version.
    """

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns each text in lower case."""
        return [text.lower() for text in texts]


@dataclass(frozen=True)
class Exact:
    """Does not change the texts."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Returns the texts."""
        return list(texts)
