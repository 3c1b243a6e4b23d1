"""The share of a book that was trained on, estimated from its contamination rate, and p-values.

If the share π of a book was trained on, π·t + (1 − π)·f of its snippets are above the threshold,
where t and f are the shares above it among snippets that were trained on, and among others. So
π = (observed − f) / (t − f) (Rogan and Gladen 1978), clipped to [0, 1]; t and f are those of
validation books that the threshold was not chosen on.

Books differ, however, and the suspect's own t and f are unknown. The interval therefore treats them
as those of one more book like the validation books, not as the means over these books. On the scale
of the angle arcsin √rate (Anscombe 1948), where the sampling error is the same for all rates, books
are assumed to be normally distributed. A new book then lies at the mean ± Student's t with n − 1
degrees of freedom. A book whose untrained snippets score high is assumed to score high when trained
on, too: t and f are drawn at the same quantile, which makes the interval widest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores

DRAWS = 2_000
"""The number of draws for the interval of a corrected rate."""


@dataclass(frozen=True)
class Rates:
    """The contamination rates of several books: the shares of their snippets above the threshold.

    Attributes:
        values: the rate of each book, shape (n,), n ≥ 2.
        snippets: the effective number of independent snippets of each book, shape (n,).
    """

    values: Scores
    snippets: Scores

    @property
    def mean(self) -> float:
        """The mean over books."""
        return float(self.values.mean())

    @property
    def angles(self) -> Scores:
        """The variance-stabilised rates, arcsin √rate (Anscombe 1948), shape (n,)."""
        angles: Scores = np.arcsin(
            np.sqrt((self.values * self.snippets + 0.375) / (self.snippets + 0.75))
        )
        return angles

    @property
    def sampling_variance(self) -> float:
        """The sampling variance of an angle, the same for all rates, averaged over books."""
        return float(np.mean(1 / (4 * self.snippets + 2)))

    @property
    def angle_variance(self) -> float:
        """The variance of the angles over books, at least the sampling variance."""
        return max(float(self.angles.var(ddof=1)), self.sampling_variance)

    def predictive_quantiles(self, levels: Scores) -> Scores:
        """Returns the quantiles of the predictive distribution of a new book's true rate."""
        from scipy.stats import t

        n, between_books = len(self.values), self.angle_variance - self.sampling_variance
        spread = np.sqrt(between_books + self.angle_variance / n)
        angles = self.angles.mean() + spread * t.ppf(levels, n - 1)
        rates: Scores = np.sin(np.clip(angles, 0, np.pi / 2)) ** 2
        return rates


@dataclass(frozen=True)
class CorrectedRate:
    """The share of a book that was trained on, with its 95% interval."""

    value: float
    low: float
    high: float


def is_significantly_higher(positives: Rates, negatives: Rates) -> bool:
    """Returns whether t is significantly above f; otherwise no share can be estimated."""
    from scipy.stats import t

    from contamination.detection.evaluation import CONFIDENCE

    squared_errors = (
        max(float(rates.values.var(ddof=1)), 1e-9) / len(rates.values)
        for rates in (positives, negatives)
    )
    error = np.sqrt(sum(squared_errors))
    degrees_of_freedom = min(len(positives.values), len(negatives.values)) - 1
    quantile = t.ppf((1 + CONFIDENCE) / 2, degrees_of_freedom)
    return bool(positives.mean - negatives.mean > quantile * error)


def correct_rate(
    observed_rate: float, effective_snippets: int, positives: Rates, negatives: Rates, seed: int
) -> CorrectedRate:
    """Returns Rogan and Gladen's estimate of a suspect's share, with a 95% interval.

    The suspect's true rate is drawn from Jeffreys' posterior. Resampling its snippets would leave
    no uncertainty if none or all of them are above the threshold.

    Args:
        observed_rate: the share of the suspect's snippets above the threshold.
        effective_snippets: the effective number of its independent snippets.
        positives: rates of books that were trained on.
        negatives: rates of books that were not trained on.
        seed: the seed of the draws.
    """
    from contamination.detection.evaluation import CONFIDENCE

    quantiles = (np.arange(DRAWS) + 0.5) / DRAWS
    t, f = positives.predictive_quantiles(quantiles), negatives.predictive_quantiles(quantiles)
    above = observed_rate * effective_snippets
    drawn_rates = np.random.default_rng(seed).beta(
        above + 0.5, effective_snippets - above + 0.5, DRAWS
    )
    identified = t > f
    shares = np.clip((drawn_rates - f) / np.where(identified, t - f, 1), 0, 1)
    tail = (1 - CONFIDENCE) / 2
    low = np.quantile(np.where(identified, shares, 0), tail, method="lower")
    high = np.quantile(np.where(identified, shares, 1), 1 - tail, method="higher")
    value = rogan_gladen(observed_rate, positives.mean, negatives.mean)
    return CorrectedRate(value, min(float(low), value), max(float(high), value))


def rogan_gladen(observed_rate: float, t: float, f: float) -> float:
    """Returns (observed − f) / (t − f), clipped to [0, 1]; t must be above f."""
    return float(np.clip((observed_rate - f) / (t - f), 0, 1))


RANKS, NORMAL = "ranks", "normal"
NULL_MODELS = (RANKS, NORMAL)


def rank_p_values(
    suspect_rates: Scores, effective_snippets: Scores, negatives: Rates, folds: NDArray[np.intp]
) -> Scores:
    """Returns the rank of each suspect among the negatives as a p-value, shape (S,).

    This is (1 + the number of negatives with at least the suspect's rate) / (1 + n). Each negative
    is compared by a threshold that was chosen without it, the threshold of its fold
    (cross-conformal, Vovk 2015). The only assumption is that a suspect that was not trained on is
    like the negatives. The lowest p-value is 1 / (1 + n).

    The rate of a book with few snippets varies more, so such a book is not like a negative with
    many snippets. It is like that negative with equally few snippets, drawn at random: any single
    draw gives a valid p-value. The count is the median over all draws. (With the mean, a p-value of
    0.05 from 20 negatives would require that all of them together reach the suspect's rate in one
    draw of 20, so that short suspects would hardly ever be significant. `perf.corrections` compares
    both.)

    Args:
        suspect_rates: rates by suspect and fold (S × K).
        effective_snippets: the effective number of independent snippets of each suspect (S).
        negatives: the negatives' rates by the threshold of their own fold (n).
        folds: the negatives' folds (n).
    """
    rates_and_snippets = zip(suspect_rates[:, folds], effective_snippets, strict=True)
    counts = [
        _median_event_count(_reach_probabilities(rates, number, negatives))
        for rates, number in rates_and_snippets
    ]
    p_values: Scores = (1 + np.array(counts)) / (1 + len(folds))
    return p_values


def _median_event_count(probabilities: Scores) -> int:
    """Returns the median number of independent events that happen, from their probabilities."""
    distribution = np.ones(1)  # the probability of 0, 1, 2, … events
    for probability in probabilities.tolist():
        distribution = np.convolve(distribution, [1 - probability, probability])
    return int(np.searchsorted(np.cumsum(distribution), 0.5 - 1e-9))


def _reach_probabilities(rates: Scores, effective_snippets: float, negatives: Rates) -> Scores:
    """Returns the probability that each negative reaches the rate, shape (n,).

    Only `effective_snippets` of its snippets are drawn, or all if it has fewer. If the required
    number of snippets is not an integer, the probabilities of its neighbours are interpolated.
    """
    from scipy.stats import hypergeom

    totals = np.round(negatives.snippets)
    above, required = np.round(negatives.values * totals), rates * effective_snippets
    floor = np.floor(required + 1e-9)
    fraction = np.maximum(required - floor, 0)
    drawn = np.minimum(np.round(effective_snippets), totals)
    at_least, more = (hypergeom.sf(floor + step, totals, above, drawn) for step in (-1, 0))
    thinned = (1 - fraction) * at_least + fraction * more
    probabilities: Scores = np.where(
        effective_snippets < totals, thinned.clip(0, 1), negatives.values >= rates
    )
    return probabilities


def normal_p_values(suspect_rates: Scores, effective_snippets: Scores, negatives: Rates) -> Scores:
    """Returns the probability that a new untrained book has at least each rate, shape (S,).

    On the scale of angles (see the module) a new book lies at the negatives' mean ± Student's t
    with n − 1 degrees of freedom. The variance is the sum of the variance of the mean, the variance
    between books, and the sampling variance of the book's own rate.

    Args:
        suspect_rates: each suspect's mean rate (S).
        effective_snippets: the effective number of independent snippets of each suspect (S).
        negatives: the negatives' rates.
    """
    from scipy.stats import t

    n = len(negatives.values)
    between_books = negatives.angle_variance - negatives.sampling_variance
    variance = negatives.angle_variance / n + between_books + 1 / (4 * effective_snippets + 2)
    distance = Rates(suspect_rates, effective_snippets).angles - negatives.angles.mean()
    p_values: Scores = t.sf(distance / np.sqrt(variance), n - 1)
    return p_values


def q_values(p_values: Scores) -> Scores:
    """Returns the p-values with Benjamini and Hochberg's (1995) correction over the suspects."""
    from scipy.stats import false_discovery_control

    corrected: Scores = false_discovery_control(p_values, method="bh")
    return corrected
