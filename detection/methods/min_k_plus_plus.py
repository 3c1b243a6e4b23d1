"""Min-K%++."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contamination.core.config import FRACTION, ranged_field
from contamination.detection.methods._shared import mean_of_lowest, standardised_logprobs
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class MinKPlusPlus(Method):
    """Min-K%++ (Zhang et al. 2024, eq. 3 and 4): Min-K% of the normalised log-likelihoods.

    z_t = (log p(x_t | x_<t) − μ_t) / σ_t, with μ and σ of log p(v | x_<t) under the model's own
    distribution, not uniform over the vocabulary; score(x) = the mean of the ⌊k·n⌋ lowest z_t of
    the n = T-1 scored tokens, at least one. The score has no unit.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "mean", "std")

    k: float = ranged_field(0.2, FRACTION)
    """The fraction of the tokens, above 0 and at most 1; the paper's default."""

    def score(self, example: Example) -> float:
        """Returns the mean of the lowest normalised log-likelihoods."""
        return mean_of_lowest(standardised_logprobs(example.stats(ORIGINAL)), self.k)
