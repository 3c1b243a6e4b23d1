"""Whether a book was trained on at all: p-values against the negatives' rates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores
from detection.audits.books.rates import Rates

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
    were hardly ever found. `benchmarks.corrections` has the shares of both.)

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
