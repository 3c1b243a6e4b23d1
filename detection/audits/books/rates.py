"""What share of a book was trained on: its contamination rate, corrected for false alarms.

Of a book of which the share π was trained on, π·t + (1 − π)·f of the snippets are above the
threshold, where t and f are the shares above it among snippets that were trained on, and among
others. So π = (observed − f) / (t − f) (Rogan and Gladen 1978), clipped to [0, 1]; t and f are
those of validation books that the threshold was not chosen on.

Books differ, though: t and f of the suspect are its own, and no one knows them. The interval
therefore takes them as those of one more book of the validation books' kind, not as their means.
On the scale of the angle arcsin √rate (Anscombe 1948), where the sampling error is the same for all
rates, books are taken as normal, so that one more lies at the mean ± Student's t with n − 1 degrees
of freedom. A book whose untrained snippets score high is taken to score high when trained on, too:
both are drawn at one quantile, which makes the interval widest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.metrics import Scores
from detection.evaluation import CONFIDENCE

DRAWS = 2_000


@dataclass(frozen=True)
class Rates:
    """The shares above the threshold of some books' snippets.

    Attributes:
        values: of each book, shape (n,), n ≥ 2.
        snippets: as how many independent snippets each book's count, shape (n,).
    """

    values: Scores
    snippets: Scores

    @property
    def mean(self) -> float:
        """The mean over books."""
        return float(self.values.mean())

    @property
    def angles(self) -> Scores:
        """The rates on the scale where their sampling error is that of `noise`."""
        found: Scores = np.arcsin(
            np.sqrt((self.values * self.snippets + 0.375) / (self.snippets + 0.75))
        )
        return found

    @property
    def noise(self) -> float:
        """The sampling variance of an angle, the mean over books."""
        return float(np.mean(1 / (4 * self.snippets + 2)))

    @property
    def variance(self) -> float:
        """The angles' variance over books, which can't be below the sampling error."""
        return max(float(self.angles.var(ddof=1)), self.noise)

    def of_another(self, quantiles: Scores) -> Scores:
        """The true rate of one more book at these quantiles of what is known of it."""
        from scipy.stats import t

        n, between = len(self.values), self.variance - self.noise
        spread = np.sqrt(between + self.variance / n)
        angles = self.angles.mean() + spread * t.ppf(quantiles, n - 1)
        found: Scores = np.sin(np.clip(angles, 0, np.pi / 2)) ** 2
        return found


@dataclass(frozen=True)
class Corrected:
    """The share of a book that was trained on, with its 95% interval."""

    value: float
    low: float
    high: float


def separates(positives: Rates, negatives: Rates) -> bool:
    """Whether t is above f for certain: else a share can't be told."""
    from scipy.stats import t

    sides = (positives, negatives)
    error = np.sqrt(sum(max(float(s.values.var(ddof=1)), 1e-9) / len(s.values) for s in sides))
    freedom = min(len(s.values) for s in sides) - 1
    return bool(positives.mean - negatives.mean > t.ppf((1 + CONFIDENCE) / 2, freedom) * error)


def correct(
    observed: float, snippets: int, positives: Rates, negatives: Rates, seed: int
) -> Corrected:
    """Rogan and Gladen's estimate of a suspect's share, with an interval.

    Args:
        observed: the share of its snippets above the threshold.
        snippets: as how many independent snippets they count.
        positives: of books that were trained on.
        negatives: of books that were not.
        seed: draws the suspect's true rate, as Jeffreys has it: where none or all of its snippets
            are above the threshold, drawing them anew would leave no doubt.
    """
    quantiles = (np.arange(DRAWS) + 0.5) / DRAWS
    t, f = positives.of_another(quantiles), negatives.of_another(quantiles)
    above = observed * snippets
    drawn = np.random.default_rng(seed).beta(above + 0.5, snippets - above + 0.5, DRAWS)
    told = t > f
    shares = np.clip((drawn - f) / np.where(told, t - f, 1), 0, 1)
    tail = (1 - CONFIDENCE) / 2
    low = np.quantile(np.where(told, shares, 0), tail, method="lower")
    high = np.quantile(np.where(told, shares, 1), 1 - tail, method="higher")
    value = rogan_gladen(observed, positives.mean, negatives.mean)
    return Corrected(value, min(float(low), value), max(float(high), value))


def rogan_gladen(observed: float, t: float, f: float) -> float:
    """(observed − f) / (t − f), clipped to [0, 1], for t > f."""
    return float(np.clip((observed - f) / (t - f), 0, 1))
