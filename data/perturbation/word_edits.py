"""Random swaps of two words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION, Ranged, limited
from contamination.core.seeds import derive
from contamination.data.perturbation.base import portion

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


@dataclass(frozen=True)
class Lowercase:
    """The text in lower case (the view of the lowercase attack, Carlini et al. 2021, section 5.2).

    Nothing is drawn: all keys give the same version, and a text without capitals is its own.
    """

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Each text in lower case."""
        return [text.lower() for text in texts]


@dataclass(frozen=True)
class Exact:
    """Every text as it stands."""

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """The texts themselves."""
        return list(texts)
