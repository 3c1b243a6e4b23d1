"""SaMIA."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contamination.core.config import POSITIVE, PROPER_FRACTION, at_least, ranged_field
from contamination.data.words import split_at_share
from contamination.detection.methods.base import Method
from contamination.detection.passes import Example, Pass


@dataclass(frozen=True, kw_only=True)
class Samia(Method):
    """Sampling-based pseudo-likelihood (SaMIA; Kaneko et al. 2024, arXiv 2404.11262, eq. 1 and 2).

    score(x) = the mean over n continuations c, sampled after the first half of x, of ROUGE-N(c, r):
    the share of the word N-grams of r, the rest of x, that also occur in c, counted at most as
    often as in c. With `compressed` each term is multiplied by len(zlib(c)) in bytes, so that a
    repetitive continuation counts less. No probabilities are read. The authors sample from the 50
    likeliest tokens, up to 1,024 tokens in all; here from all tokens, and c is as long as r.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    generates: ClassVar[bool] = True

    n: int = ranged_field(10, at_least(1))
    """Continuations per text, 1 or more; the paper's default."""

    gram: int = ranged_field(1, at_least(1))
    """N, the number of words per N-gram, 1 or more; the paper's default."""

    compressed: bool = False
    """Whether to weight a continuation by its compressed size, as in the paper's SaMIA*zlib."""

    share: float = ranged_field(0.5, PROPER_FRACTION)
    """The share of the words used as the prompt; the paper's default."""

    tokens: int = ranged_field(128, at_least(1))
    """The maximum number of tokens per continuation."""

    temperature: float = ranged_field(1.0, POSITIVE)
    """The sampling temperature; the paper's."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The continuations of the text's first part."""
        parameters = {"share": self.share, "tokens": self.tokens, "temperature": self.temperature}
        return (Pass("target", "sampled", n=self.n, **parameters),)

    def score(self, example: Example) -> float:
        """Returns the mean over the continuations, or 0 if the rest has no N-gram."""
        (wanted,) = self.passes
        rest_ngrams = self._count_ngrams(split_at_share(example.text, self.share)[1])
        sampled = [continuation.text for continuation in example.continuations(wanted)[: self.n]]
        if not rest_ngrams:
            return 0.0
        return float(np.mean([self._rouge_recall(text, rest_ngrams) for text in sampled]))

    def flag(self, example: Example) -> str:
        """Returns a flag if the text has too few words."""
        rest_ngrams = self._count_ngrams(split_at_share(example.text, self.share)[1])
        return "" if rest_ngrams else f"fewer than {self.gram} words after the prompt, scored 0"

    def _rouge_recall(self, text: str, rest_ngrams: Counter[tuple[str, ...]]) -> float:
        recall = (self._count_ngrams(text) & rest_ngrams).total() / rest_ngrams.total()
        return recall * len(zlib.compress(text.encode())) if self.compressed else recall

    def _count_ngrams(self, text: str) -> Counter[tuple[str, ...]]:
        words = text.split()
        return Counter(zip(*(words[i:] for i in range(self.gram)), strict=False))
