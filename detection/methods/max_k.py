"""Max-K% Prob."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import FRACTION, ranged_field
from contamination.detection.methods._shared import mean_of_highest
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class MaxK(Method):
    """Max-K% Prob, the counterpart of Min-K% (Shi et al. 2024, eq. 1), an ablation.

    score(x) = the mean of the ⌊k·n⌋ highest log p(x_t | x_<t) of the n = T-1 scored tokens, at
    least one, in nats.
    """

    k: float = ranged_field(0.2, FRACTION)
    """The fraction of the tokens, above 0 and at most 1."""

    def score(self, example: Example) -> float:
        """Returns the mean log-likelihood of the likeliest tokens."""
        return mean_of_highest(example.stats(ORIGINAL).logprob, self.k)
