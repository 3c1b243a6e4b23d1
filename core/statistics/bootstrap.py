"""The stratified bootstrap over examples, all draws at once.

Members and non-members are resampled separately, each with replacement to its own size. A draw is
kept as how often each example was drawn, so one `Resample` serves every method, checkpoint and
metric on the same examples: their differences are paired by construction.

Shapes: D draws, M members, N non-members. Per method and draw the cost is O(M + N) after one sort:
counts are accumulated in descending order of score, and every metric is computed from those sums
(the same numbers as the D×M · M×N product with the 1/½/0 comparison matrix, without the matrix).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive_seed

Scores = NDArray[np.float64]
Counts = NDArray[np.float32]

DRAWS_AT_ONCE = 250
"""Draws of `draw_named_counts` per batch: it bounds memory, and seeds the streams."""
WINDOW = 1.5
"""Expected arrivals of a name per window of `draw_named_counts`; a second is rarely needed."""


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


def draw_counts(n_examples: int, n_draws: int, seed: int) -> Counts:
    """Returns how often each of `n_examples` is drawn in `n_draws` resamples (draws × examples).

    Counts are float32: sums of at most 2**24 examples are exact in it, and it halves the memory
    that is moved. Products of two counts can exceed that, so AUROC is added up in float64, where
    every half-integer below 2**52 is exact: the draws equal a loop over resampled scores.
    """
    drawn_indices = np.random.default_rng(seed).integers(0, n_examples, (n_draws, n_examples))
    drawn_indices += np.arange(n_draws)[:, None] * n_examples
    counts = np.bincount(drawn_indices.ravel(), minlength=n_draws * n_examples)
    return counts.reshape(n_draws, n_examples).astype(np.float32)


def draw_named_counts(names: Sequence[str], n_draws: int, seed: int) -> Counts:
    """Like `draw_counts`, of examples with names: sets that share names are drawn together.

    Every name has a Poisson process of its own, seeded by the name. A draw is the first n arrivals
    at n names. Each next arrival is at any of the names with equal probability, so that for a
    single set this is the usual draw with replacement to its own size. Two sets see the same
    arrivals at the names that they share: what is measured on both is paired, whatever else they
    contain. A set's draws depend on no other set.

    Args:
        names: the examples' names (n), all different.
        n_draws: how many resamples (D).
        seed: the same for all sets that are to be drawn together.

    Returns:
        How often each example is drawn (D × n).
    """
    first_draws = range(0, n_draws, DRAWS_AT_ONCE)
    count_blocks = [
        _first_arrival_counts(names, derive_seed(seed, first_draw)) for first_draw in first_draws
    ]
    return np.concatenate(count_blocks)[:n_draws]


def _first_arrival_counts(names: Sequence[str], seed: int) -> Counts:
    """How many of each draw's first n arrivals are at each of n names (DRAWS_AT_ONCE × n)."""
    n, window = len(names), 0
    draw, name, time = _draw_arrivals(names, derive_seed(seed, window))
    while np.bincount(draw, minlength=DRAWS_AT_ONCE).min() < n:
        window += 1
        later = _draw_arrivals(names, derive_seed(seed, window))
        draw, name = np.r_[draw, later[0]], np.r_[name, later[1]]
        time = np.r_[time, window + later[2]]
    order = np.lexsort((time, draw)) if window else np.argsort(draw + time)
    n_arrivals = np.bincount(draw, minlength=DRAWS_AT_ONCE)
    first = (np.cumsum(n_arrivals) - n_arrivals)[:, None] + np.arange(n)
    drawn_positions = name[order[first]] + n * np.arange(DRAWS_AT_ONCE)[:, None]
    counts = np.bincount(drawn_positions.ravel(), minlength=n * DRAWS_AT_ONCE)
    return counts.reshape(DRAWS_AT_ONCE, n).astype(np.float32)


def _draw_arrivals(
    names: Sequence[str], seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], Scores]:
    """The draw, the name's position and the time in [0, 1) of each arrival in one window."""
    draws, times = [], []
    for name in names:
        rng = np.random.Generator(np.random.Philox(key=derive_seed(seed, name)))
        arrived = rng.poisson(WINDOW, DRAWS_AT_ONCE)
        draws.append(np.repeat(np.arange(DRAWS_AT_ONCE), arrived))
        times.append(rng.random(len(draws[-1])))
    positions = np.repeat(np.arange(len(names)), [len(part) for part in draws])
    return np.concatenate(draws), positions, np.concatenate(times)


def draw_resample(n_members: int, n_nonmembers: int, n_draws: int, seed: int) -> Resample:
    """Draw members and non-members separately, each to its own size."""
    return Resample(
        draw_counts(n_members, n_draws, derive_seed(seed, "members")),
        draw_counts(n_nonmembers, n_draws, derive_seed(seed, "nonmembers")),
    )


@dataclass(frozen=True)
class RankedSide:
    """The members or the non-members in descending order, and their accumulated counts."""

    scores: Scores
    sums: Counts


def rank_side(scores: Scores, drawn: Counts) -> RankedSide:
    """Sorts one side's scores and accumulates the draws' counts in that order, from zero."""
    order = np.argsort(-scores)
    sums = np.zeros((len(drawn), len(order) + 1), np.float32)
    np.cumsum(drawn[:, order], axis=1, out=sums[:, 1:])
    return RankedSide(scores[order], sums)


def rank_scores(members: Scores, nonmembers: Scores, drawn: Resample) -> Ranked:
    """Sorts one method's scores and accumulates the draws' counts in that order."""
    return join_sides(rank_side(members, drawn.members), rank_side(nonmembers, drawn.nonmembers))


def join_sides(members: RankedSide, nonmembers: RankedSide) -> Ranked:
    """Returns both sides together; members of different doses share the non-members' side."""
    return Ranked(members.scores, nonmembers.scores, members.sums, nonmembers.sums)


def percentile_intervals(draws: Scores, confidence: float) -> tuple[Scores, Scores]:
    """Returns the percentile interval of each row of `draws` (R×D): R lower and R upper ends.

    Where every draw agrees (a perfect detector) it has no width.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
    return low, high
