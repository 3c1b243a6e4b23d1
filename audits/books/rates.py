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
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores
from contamination.detection.evaluation import CONFIDENCE

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


RANKS, NORMAL = "ranks", "normal"
NULL_MODELS = (RANKS, NORMAL)


def rank_p_values(
    suspects: Scores, snippets: Scores, negatives: Rates, fold: NDArray[np.intp]
) -> Scores:
    """(1 + the number of negatives with at least the suspect's rate) / (1 + n), shape (S,).

    Each negative is compared by a threshold that was chosen without it, which is that of its fold
    (cross-conformal, Vovk 2015). It assumes only that a suspect that was not trained on is like the
    negatives. The least is 1 / (1 + n).

    The rate of a book of few snippets strays further, so one is not like a negative of many. It is
    like that negative with as few of its snippets, drawn at random: any one draw of them gives a
    valid p-value. The number is the median over all draws. (With the mean, a p-value of 0.05 at 20
    negatives asks that together they reach the suspect's rate in one draw of 20: short suspects
    were hardly ever found. `perf.corrections` has the shares of both.)

    Args:
        suspects: rates by suspect and fold (S × K).
        snippets: as how many independent snippets each suspect's count (S).
        negatives: the negatives' rates by the threshold of their own fold (n).
        fold: the negatives' folds (n).
    """
    own = zip(suspects[:, fold], snippets, strict=True)
    reaching = [_median_count(_reaching(rates, count, negatives)) for rates, count in own]
    found: Scores = (1 + np.array(reaching)) / (1 + len(fold))
    return found


def _median_count(chances: Scores) -> int:
    """The median number of independent events that happen, by the chance of each."""
    shares = np.ones(1)  # of 0, 1, 2, … events
    for chance in chances.tolist():
        shares = np.convolve(shares, [1 - chance, chance])
    return int(np.searchsorted(np.cumsum(shares), 0.5 - 1e-9))


def _reaching(rates: Scores, snippets: float, negatives: Rates) -> Scores:
    """How likely each negative has a rate with so many snippets, or with all of fewer, shape (n,).

    A number of snippets between two whole ones counts by its place between them.
    """
    from scipy.stats import hypergeom

    totals = np.round(negatives.snippets)
    above, wanted = np.round(negatives.values * totals), rates * snippets
    low = np.floor(wanted + 1e-9)
    part = np.maximum(wanted - low, 0)
    few = np.minimum(np.round(snippets), totals)
    at_least, more = (hypergeom.sf(low + step, totals, above, few) for step in (-1, 0))
    thinned = (1 - part) * at_least + part * more
    found: Scores = np.where(snippets < totals, thinned.clip(0, 1), negatives.values >= rates)
    return found


def normal_p_values(suspects: Scores, snippets: Scores, negatives: Rates) -> Scores:
    """How likely one more untrained book has at least this rate, if books are normal, shape (S,).

    On the scale of angles (see `rates`) a new book lies at the negatives' mean ± Student's t with
    n − 1 degrees of freedom: their variance times 1 / n for the mean, and for the book itself its
    variance between books and its own sampling error.

    Args:
        suspects: each suspect's mean rate (S).
        snippets: as how many independent snippets its snippets count (S).
        negatives: the negatives' rates.
    """
    from scipy.stats import t

    n, own = len(negatives.values), Rates(suspects, snippets)
    between = negatives.variance - negatives.noise
    variance = negatives.variance / n + between + 1 / (4 * snippets + 2)
    far = (own.angles - negatives.angles.mean()) / np.sqrt(variance)
    found: Scores = t.sf(far, n - 1)
    return found


def q_values(p_values: Scores) -> Scores:
    """Benjamini and Hochberg's (1995) correction over the suspects."""
    from scipy.stats import false_discovery_control

    found: Scores = false_discovery_control(p_values, method="bh")
    return found
