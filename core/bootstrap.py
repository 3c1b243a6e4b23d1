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

import numpy as np
from numpy.typing import NDArray

from core.seeds import derive

Scores = NDArray[np.float64]
Counts = NDArray[np.float32]


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
    """Sort one side's scores and accumulate the draws' counts in that order, from zero."""
    order = np.argsort(-scores)
    sums = np.zeros((len(drawn), len(order) + 1), np.float32)
    np.cumsum(drawn[:, order], axis=1, out=sums[:, 1:])
    return Side(scores[order], sums)


def rank(members: Scores, nonmembers: Scores, drawn: Resample) -> Ranked:
    """Sort one method's scores and accumulate the draws' counts in that order."""
    return joined(ranked_side(members, drawn.members), ranked_side(nonmembers, drawn.nonmembers))


def joined(members: Side, nonmembers: Side) -> Ranked:
    """Both sides together: the non-members' is the same beside the members of each dose."""
    return Ranked(members.scores, nonmembers.scores, members.sums, nonmembers.sums)


def intervals(draws: Scores, confidence: float) -> tuple[Scores, Scores]:
    """The percentile interval of each row of `draws` (R×D): R lower and R upper ends.

    Where every draw agrees (a perfect detector) it has no width.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
    return low, high
