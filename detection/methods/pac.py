"""PAC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION, at_least, one_of, ranged_field
from contamination.detection.methods._shared import AUGMENTATIONS, augmented_pass, polarization
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass


@dataclass(frozen=True, kw_only=True)
class Pac(Method):
    """Polarized augment calibration (PAC; Ye et al. 2024, eq. 5 and 6).

    score(x) = −[PD(x) − the mean of PD(x̃) over N augmented versions x̃]; PD = the mean of the
    ⌊top·n⌋ highest log p(x_t | x_<t) − the mean of the ⌊bottom·n⌋ lowest, in nats. PD is smaller
    for a member, so the score is higher; the authors' code evaluates this sign.
    """

    augmentation: str = ranged_field("swap", one_of(AUGMENTATIONS))
    """swap (the paper's), delete, lowercase, masked_lm (table 2) or given (the benchmark's)."""

    n: int = ranged_field(5, at_least(1))
    """Augmented versions per text, 1 or more; the paper's default. Lower case has only one."""

    share: float = ranged_field(0.3, FRACTION)
    """The number of changes per word of the text, above 0 and at most 1; the paper's default."""

    top: float = ranged_field(0.05, FRACTION)
    """The fraction of the likeliest tokens, above 0 and at most 1; the paper's default."""

    bottom: float = ranged_field(0.3, FRACTION)
    """The fraction of the least likely tokens, above 0 and at most 1; the paper's default."""

    @property
    def versions_pass(self) -> Pass:
        """The pass over the augmented versions."""
        return augmented_pass(self.augmentation, self.n, self.share)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text and its augmented versions."""
        return (ORIGINAL, self.versions_pass)

    def score(self, example: Example) -> float:
        """Returns how much more polarized the augmented versions are than the text."""
        text_polarization = polarization(example.stats(ORIGINAL), self.top, self.bottom)
        versions = example.all_stats(self.versions_pass)
        return float(
            np.mean([polarization(s, self.top, self.bottom) - text_polarization for s in versions])
        )
