"""The stratified bootstrap over examples, all draws at once.

Members and non-members are resampled separately, each with replacement to its own size. A draw is
kept as how often each example was drawn, so one `Resample` serves every method, checkpoint and
metric on the same examples: their differences are paired by construction.

Shapes: D draws, M members, N non-members. Per method and draw the cost is O(M + N) after one sort:
counts are accumulated in descending order of score, and every metric is made of those sums
(the same numbers as the D×M · M×N product with the 1/½/0 comparison matrix, without the matrix).

Counts are float32: sums of at most 2**24 examples are exact in it, and it halves the memory that
is moved. Products of two counts can exceed that, so AUROC is added up in float64, where every
half-integer below 2**52 is exact: the draws equal a loop over resampled scores to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores
from core.seeds import derive

Counts = NDArray[np.float32]

SHARPNESS = 4
"""So much less than the threshold's own variance, α(1 − α) / (n + 1), is that of the weights. At
1 a curved ROC is flattened; without end a single non-member is the threshold."""


@dataclass(frozen=True)
class Resample:
    """How often each example was drawn: `members` is D×M, `nonmembers` is D×N."""

    members: Counts
    nonmembers: Counts


@dataclass(frozen=True)
class Ranked:
    """One method's scores in descending order, with the counts accumulated in that order.

    `hits[d, i]` is how many members are among the i highest in draw d (D×(M+1)); `alarms` is the
    same of the non-members (D×(N+1)).
    """

    members: Scores
    nonmembers: Scores
    hits: Counts
    alarms: Counts


def draw_counts(examples: int, draws: int, seed: int) -> Counts:
    """How often each of `examples` is drawn in `draws` resamples (draws × examples)."""
    picked = np.random.default_rng(seed).integers(0, examples, (draws, examples))
    picked += np.arange(draws)[:, None] * examples
    counts = np.bincount(picked.ravel(), minlength=draws * examples)
    return counts.reshape(draws, examples).astype(np.float32)


def resample(members: int, nonmembers: int, draws: int, seed: int) -> Resample:
    """Draw members and non-members separately, each to its own size."""
    return Resample(
        draw_counts(members, draws, derive(seed, "members")),
        draw_counts(nonmembers, draws, derive(seed, "nonmembers")),
    )


@dataclass(frozen=True)
class Side:
    """The members or the non-members in descending order, and their accumulated counts."""

    scores: Scores
    sums: Counts


def ranked_side(scores: Scores, drawn: Counts) -> Side:
    """Sort one side's scores and accumulate the draws' counts in that order."""
    order = np.argsort(-scores)
    return Side(scores[order], _accumulate(drawn, order))


def rank(members: Scores, nonmembers: Scores, drawn: Resample) -> Ranked:
    """Sort one method's scores and accumulate the draws' counts in that order."""
    return face(ranked_side(members, drawn.members), ranked_side(nonmembers, drawn.nonmembers))


def face(members: Side, nonmembers: Side) -> Ranked:
    """Both sides together: one side can face several others (the members of each dose)."""
    return Ranked(members.scores, nonmembers.scores, members.sums, nonmembers.sums)


def auroc(ranked: Ranked) -> Scores:
    """AUROC of every draw (D)."""
    above = np.searchsorted(-ranked.members, -ranked.nonmembers, side="left")
    above_or_tied = np.searchsorted(-ranked.members, -ranked.nonmembers, side="right")
    twice_won = ranked.hits[:, above] + ranked.hits[:, above_or_tied]
    pairs = 2 * len(ranked.members) * len(ranked.nonmembers)
    drawn = np.diff(ranked.alarms, axis=1)
    wins: Scores = np.einsum("dn,dn->d", twice_won, drawn, dtype=np.float64)
    return wins / pairs


def tpr_at_fpr(ranked: Ranked, fpr: float) -> Scores:
    """The true-positive rate at a false-positive rate in every draw (D): a mean over thresholds.

    It is Σ_k w_k TPR_k, with the k-th highest of the draw's n non-members as the threshold (who
    ties with it is not flagged). Its true false-positive rate is k / (n + 1) on average and about
    (k − 1/3) / (n + 1/3) in the median; half way between them its weight is
    w_k = B((k + 1/3) / (n + 2/3)) − B((k − 2/3) / (n + 2/3)), and what is left goes to k = 1 and n.
    B is the distribution function of Beta(α·s, (1 − α)·s), α is `fpr` and s = SHARPNESS·(n + 1) − 1
    (Harrell and Davis's quantile, 1982, has s = n + 1).

    With the one threshold of `metrics.tpr_at_fpr`, whose true false-positive rate is not α but
    (c + 1) / (n + 1) on average, c being the false alarms allowed, draws would be off and uneven.
    """
    if fpr >= 1:
        return np.ones(len(ranked.hits))
    within = _threshold_within(len(ranked.nonmembers), fpr)
    certain = int((within == 1).argmax())
    used = int((ranked.alarms >= certain).all(axis=0).argmax())
    weights = np.diff(within[ranked.alarms[:, : used + 1].astype(np.intp)], axis=1)
    flagged = np.searchsorted(-ranked.members, -ranked.nonmembers[:used], side="left")
    hits: Scores = np.einsum("dn,dn->d", weights, ranked.hits[:, flagged], dtype=np.float64)
    return np.minimum(hits / len(ranked.members), 1)


def fpr_at_tpr(ranked: Ranked, tpr: float) -> Scores:
    """The false-positive rate at a true-positive rate in every draw (D): the same from below.

    With both sides exchanged and the scores turned round, the non-members that stay below the
    threshold are the hits, and the members that do are the alarms.
    """
    turned = Ranked(
        -ranked.nonmembers[::-1],
        -ranked.members[::-1],
        ranked.alarms[:, -1:] - ranked.alarms[:, ::-1],
        ranked.hits[:, -1:] - ranked.hits[:, ::-1],
    )
    return 1 - tpr_at_fpr(turned, 1 - tpr)


def interval(draws: Scores, confidence: float) -> tuple[float, float]:
    """The percentile interval. Where every draw agrees (a perfect detector) it has no width."""
    low, high = intervals(draws[None], confidence)
    return float(low[0]), float(high[0])


def intervals(draws: Scores, confidence: float) -> tuple[Scores, Scores]:
    """The percentile interval of each row of `draws` (R×D): R lower and R upper ends."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
    return low, high


def _accumulate(counts: Counts, order: NDArray[np.intp]) -> Counts:
    """Running sums of the columns in `order`, with a first column of zeros."""
    sums = np.zeros((len(counts), len(order) + 1), np.float32)
    np.cumsum(counts[:, order], axis=1, out=sums[:, 1:])
    return sums


@cache
def _threshold_within(n: int, fpr: float) -> Scores:
    """The weight of the k highest of n non-members as thresholds, for k = 0 to n."""
    from scipy.special import betainc

    size = SHARPNESS * (n + 1) - 1
    places = (np.arange(n + 1) + 1 / 3) / (n + 2 / 3)
    weight: Scores = betainc(fpr * size, (1 - fpr) * size, places)
    weight[[0, -1]] = 0, 1
    return weight
