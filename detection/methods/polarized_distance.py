"""PAC's polarized distance alone."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import FRACTION, ranged_field
from contamination.detection.methods._shared import polarization
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class PolarizedDistance(Method):
    """The negative polarized distance of the text, without augmentation (Ye et al. 2024, eq. 5).

    score(x) = −PD(x); PD = the mean of the ⌊top·n⌋ highest log p(x_t | x_<t) − the mean of the
    ⌊bottom·n⌋ lowest of the n = T-1 scored tokens, in nats. Training raises the least likely tokens
    most, so PD is smaller for a member, and the score is higher.
    """

    top: float = ranged_field(0.05, FRACTION)
    """The fraction of the likeliest tokens, above 0 and at most 1; the paper's default."""

    bottom: float = ranged_field(0.3, FRACTION)
    """The fraction of the least likely tokens, above 0 and at most 1; the paper's default."""

    def score(self, example: Example) -> float:
        """Returns the negative polarized distance."""
        return -polarization(example.stats(ORIGINAL), self.top, self.bottom)
