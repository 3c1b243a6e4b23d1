"""Gap-K%."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contamination.core.config import FRACTION, at_least, ranged_field
from contamination.detection.methods._shared import mean_of_lowest
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class GapK(Method):
    """Gap-K% (Kwak and Kim, arXiv 2601.19936): how far the tokens are below the likeliest.

    g_t = (log p(x_t | x_<t) − max_v log p(v | x_<t)) / σ_t; score(x) = the mean of the ⌊k·m⌋
    lowest, at least one, of the m moving averages of g over `window` neighbouring tokens. A text
    with fewer scored tokens has one average, over all of them. The score has no unit.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "top_logprob", "std")

    k: float = ranged_field(0.2, FRACTION)
    """The fraction of the averages, above 0 and at most 1; the paper's default."""

    window: int = ranged_field(3, at_least(1))
    """The number of neighbouring tokens per average, 1 or more; the paper's default."""

    def score(self, example: Example) -> float:
        """Returns the mean of the lowest moving averages."""
        stats = example.stats(ORIGINAL)
        gaps = (stats.logprob - stats.top_logprob) / stats.std
        width = min(self.window, len(gaps))
        return mean_of_lowest(np.convolve(gaps, np.full(width, 1 / width), mode="valid"), self.k)
