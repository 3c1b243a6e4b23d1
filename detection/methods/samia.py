"""SaMIA."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contamination.core.config import PART, POSITIVE, at_least, limited
from contamination.data.text import halves
from contamination.detection.methods.base import Method
from contamination.detection.passes import Example, Pass


@dataclass(frozen=True, kw_only=True)
class Samia(Method):
    """Sampling-based pseudo-likelihood (SaMIA; Kaneko et al. 2024, arXiv 2404.11262, eq. 1 and 2).

    score(x) = the mean over n continuations c, drawn after the first half of x, of ROUGE-N(c, r):
    the share of the N-grams of words of r, the rest of x, that are in c as well, each as often as c
    has it. With `compressed` each term is times len(zlib(c)) in bytes, so that a continuation that
    repeats itself counts less. It reads no probability. The authors draw from the 50 likeliest
    tokens, up to 1,024 in all; here from all tokens, and c has as many tokens as r.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    generates: ClassVar[bool] = True

    n: int = limited(10, at_least(1))
    """Continuations of a text, 1 or more; the paper's default."""

    gram: int = limited(1, at_least(1))
    """N: words in a row that are compared, 1 or more; the paper's default."""

    compressed: bool = False
    """Whether a continuation counts by its compressed size: the paper's SaMIA*zlib."""

    share: float = limited(0.5, PART)
    """The share of the words that are the prompt; the paper's default."""

    tokens: int = limited(128, at_least(1))
    """Tokens of a continuation, at most; no more than the rest has."""

    temperature: float = limited(1.0, POSITIVE)
    """Of the draws; the paper's."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The continuations of the text's first part."""
        parameters = {"share": self.share, "tokens": self.tokens, "temperature": self.temperature}
        return (Pass("target", "sampled", n=self.n, **parameters),)

    def score(self, example: Example) -> float:
        """The mean over the continuations; 0 where the rest has no N-gram."""
        (wanted,) = self.passes
        rest = self._grams(halves(example.text, self.share)[1])
        drawn = [continuation.text for continuation in example.continuations(wanted)[: self.n]]
        return float(np.mean([self._worth(text, rest) for text in drawn])) if rest else 0.0

    def flag(self, example: Example) -> str:
        """That the text has too few words."""
        rest = self._grams(halves(example.text, self.share)[1])
        return "" if rest else f"fewer than {self.gram} words after the prompt, scored 0"

    def _worth(self, text: str, rest: Counter[tuple[str, ...]]) -> float:
        recall = (self._grams(text) & rest).total() / rest.total()
        return recall * len(zlib.compress(text.encode())) if self.compressed else recall

    def _grams(self, text: str) -> Counter[tuple[str, ...]]:
        words = text.split()
        return Counter(zip(*(words[i:] for i in range(self.gram)), strict=False))
