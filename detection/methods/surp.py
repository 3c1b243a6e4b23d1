"""SURP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contamination.core.config import FRACTION, POSITIVE, ranged_field
from contamination.detection.methods._shared import count_for_fraction
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Floats


@dataclass(frozen=True, kw_only=True)
class Surp(Method):
    """SURP (Zhang and Wu, arXiv 2407.21248): the likelihood of the surprising tokens.

    A token is surprising if the model was sure (the entropy −μ_t is below `entropy`) and wrong
    (log p(x_t | x_<t) is among the ⌊k·n⌋ lowest of the text, at least one). score(x) = the mean
    log p of these, in nats. A text without any is scored by all of its ⌊k·n⌋ lowest, and flagged.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "mean")

    k: float = ranged_field(0.4, FRACTION)
    """The fraction of least likely tokens, above 0 and at most 1."""

    entropy: float = ranged_field(2.0, POSITIVE)
    """The entropy in nats below which the model counts as sure, above 0."""

    def score(self, example: Example) -> float:
        """Returns the mean log-likelihood of the surprising tokens."""
        surprising, lowest = self._surprising_and_lowest(example)
        return float((surprising if len(surprising) else lowest).mean(dtype=np.float64))

    def flag(self, example: Example) -> str:
        """Returns a flag if there is no surprising token."""
        return (
            ""
            if len(self._surprising_and_lowest(example)[0])
            else "no surprising token, scored as min_k"
        )

    def _surprising_and_lowest(self, example: Example) -> tuple[Floats, Floats]:
        """Returns the log-likelihoods of the surprising tokens and of all the ⌊k·n⌋ lowest."""
        stats = example.stats(ORIGINAL)
        lowest = np.argsort(stats.logprob, kind="stable")[: count_for_fraction(self.k, len(stats))]
        sure = -stats.mean[lowest] < self.entropy
        return stats.logprob[lowest[sure]], stats.logprob[lowest]
