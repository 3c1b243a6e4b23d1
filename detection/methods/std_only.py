"""Min-K%++ without μ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contamination.core.config import FRACTION, ranged_field
from contamination.detection.methods._shared import mean_of_lowest
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class StdOnly(Method):
    """Min-K%++ without its subtraction of μ, an ablation (Zhang et al. 2024, table 3).

    score(x) = the mean of the ⌊k·n⌋ lowest log p(x_t | x_<t) / σ_t of the n = T-1 scored tokens, at
    least one; σ_t is the standard deviation of log p(v | x_<t) under the model's own distribution.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "std")

    k: float = ranged_field(0.2, FRACTION)
    """The fraction of the tokens, above 0 and at most 1."""

    def score(self, example: Example) -> float:
        """Returns the mean of the lowest log-likelihoods in units of their standard deviation."""
        stats = example.stats(ORIGINAL)
        return mean_of_lowest(stats.logprob / stats.std, self.k)
