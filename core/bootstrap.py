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

NARROW, WIDE = 4, 2 / 3
"""The two weights of `tpr_at_fpr`: their variance is the threshold's own, V, divided by these.

With that of the threshold it is V + V/4 and V + 3V/2: the second is twice the first. A larger
NARROW makes noisier draws. A smaller one leaves more bias where the ROC bends sharply.
"""


STEP = 0.1
"""So large a share of the members at one score is a step of the TPR (`tpr_steps`)."""


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
    ties with it is not flagged). Its true false-positive rate is k / (n + 1) on average, with a
    variance of about V = α(1 − α) / (n + 1), where α is `fpr`. A mean over thresholds (Harrell and
    Davis 1982) adds the variance of its weights. Where the ROC is curved, variance makes a bias in
    proportion to it. It cancels in twice the mean with some variance less the mean with twice that
    variance (Richardson's extrapolation; some weights are negative):
    w_k = W((k + ½) / (n + 1)) − W((k − ½) / (n + 1)) and W = 2·B(NARROW) − B(WIDE). B(s) is the
    distribution function of Beta(αt, (1 − α)t), t = s·(n + 1) − 1, whose variance is V / s. What is
    left goes to k = 1 and n.

    Resampling adds V, and so its bias, once more. The draws are moved to have the mean that the
    same sum has on the examples themselves: a mean over benchmarks averages out noise, not bias.
    Draws may lie beyond 0 and 1.
    """
    draws, once = _mean_tpr(ranked, fpr), _mean_tpr(_undrawn(ranked), fpr)
    moved: Scores = draws + (once - draws.mean())
    return moved


def _undrawn(ranked: Ranked) -> Ranked:
    """The examples themselves, as a single draw."""
    each = (ranked.members, ranked.nonmembers)
    hits, alarms = (np.arange(len(side) + 1, dtype=np.float32)[None] for side in each)
    return Ranked(*each, hits, alarms)


def _mean_tpr(ranked: Ranked, fpr: float) -> Scores:
    """Σ_k w_k TPR_k of every draw (D)."""
    if fpr >= 1:
        return np.ones(len(ranked.hits))
    within = _threshold_within(len(ranked.nonmembers), fpr)
    certain = int(np.flatnonzero(within != 1)[-1]) + 1
    used = int((ranked.alarms >= certain).all(axis=0).argmax())
    weights = np.diff(within[ranked.alarms[:, : used + 1].astype(np.intp)], axis=1)
    flagged = np.searchsorted(-ranked.members, -ranked.nonmembers[:used], side="left")
    hits: Scores = np.einsum("dn,dn->d", weights, ranked.hits[:, flagged], dtype=np.float64)
    return hits / len(ranked.members)


def fpr_at_tpr(ranked: Ranked, tpr: float) -> Scores:
    """The false-positive rate at a true-positive rate in every draw (D): the same from below.

    With both sides exchanged and the scores turned round, the non-members that stay below the
    threshold are the hits, and the members that do are the alarms.
    """
    return 1 - tpr_at_fpr(_turned(ranked), 1 - tpr)


def _turned(ranked: Ranked) -> Ranked:
    """Both sides exchanged, and the scores turned round."""
    return Ranked(
        -ranked.nonmembers[::-1],
        -ranked.members[::-1],
        ranked.alarms[:, -1:] - ranked.alarms[:, ::-1],
        ranked.hits[:, -1:] - ranked.hits[:, ::-1],
    )


def tpr_steps(ranked: Ranked, fpr: float) -> tuple[float, float] | None:
    """The least and the most TPR that tied scores leave possible; None: the ties are few.

    Of n non-members, Binomial(n, `fpr`) lie above the true threshold: 95% of the time that leaves
    the non-members of a few ranks as thresholds. The TPR has a step there where they have at most
    half as many different scores, or where a share STEP of the members has the very score of
    one of them. One more false alarm can change it by the whole step.
    """
    fewest, most = _alarms_above(len(ranked.nonmembers), fpr)
    near = ranked.nonmembers[fewest : most + 1]
    values = np.unique(near)
    first, last = (
        np.searchsorted(-ranked.members, -values, side=side) for side in ("left", "right")
    )
    heaviest = (last - first).max() / len(ranked.members)
    if 2 * len(values) > len(near) and heaviest < STEP:
        return None
    least, highest = (float((ranked.members > threshold).mean()) for threshold in near[[0, -1]])
    return least, highest


def fpr_steps(ranked: Ranked, tpr: float) -> tuple[float, float] | None:
    """The same of the false-positive rate at a true-positive rate."""
    found = tpr_steps(_turned(ranked), 1 - tpr)
    return found and (1 - found[1], 1 - found[0])


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
    """W: the weight of the k highest of n non-members as thresholds, for k = 0 to n."""
    from scipy.special import betainc

    places = (np.arange(n + 1) + 0.5) / (n + 1)
    narrow, wide = (s * (n + 1) - 1 for s in (NARROW, WIDE))
    weight: Scores = 2 * betainc(fpr * narrow, (1 - fpr) * narrow, places)
    weight -= betainc(fpr * wide, (1 - fpr) * wide, places)
    weight[[0, -1]] = 0, 1
    return weight.round(12)  # a tail that is 1 is not looked at


@cache
def _alarms_above(n: int, fpr: float) -> tuple[int, int]:
    """How many of n non-members lie above the true threshold, 95% of the time (at most n − 1)."""
    from scipy.stats import binom

    fewest, most = binom.ppf([0.025, 0.975], n, fpr)
    return min(int(fewest), n - 1), min(int(most), n - 1)
