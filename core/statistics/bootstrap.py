"""The stratified bootstrap over examples, vectorised over draws.

Members and non-members are resampled separately, each with replacement and to its original size. A
draw is stored as the number of times that each example was drawn, so one `Resample` serves every
method, checkpoint and metric on the same examples, and their differences are paired.

Shapes: D draws, M members, N non-members. After one sort, the cost per method and draw is O(M + N):
counts are accumulated in descending order of score, and every metric is computed from these sums.
The results equal the D×M · M×N product with the comparison matrix of 1, ½ and 0.
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
"""Draws per batch of `draw_named_counts`: it limits memory, and changing it changes the draws."""
ARRIVALS_PER_WINDOW = 1.5
"""Expected arrivals of a name per window of `draw_named_counts`; one window is usually enough."""


@dataclass(frozen=True)
class Resample:
    """The number of times that each example was drawn: `members` is D×M, `nonmembers` is D×N."""

    members: Counts
    nonmembers: Counts


@dataclass(frozen=True)
class RankedScores:
    """One method's scores in descending order, with the counts accumulated in that order.

    Attributes:
        members: the members' scores (M).
        nonmembers: the non-members' scores (N).
        hits: `hits[d, i]` is how often draw d has any of the i highest members (D×(M+1)).
        alarms: the same for the non-members (D×(N+1)).
    """

    members: Scores
    nonmembers: Scores
    hits: Counts
    alarms: Counts


def draw_counts(n_examples: int, n_draws: int, seed: int) -> Counts:
    """Returns how often each of `n_examples` is drawn in `n_draws` resamples (draws × examples).

    Counts are float32, which halves the memory and is exact for sums of at most 2**24 examples.
    Products of two counts can be larger, so AUROC is summed in float64, where every half-integer
    below 2**52 is exact: the draws equal a loop over resampled scores.
    """
    drawn_indices = np.random.default_rng(seed).integers(0, n_examples, (n_draws, n_examples))
    drawn_indices += np.arange(n_draws)[:, None] * n_examples
    counts = np.bincount(drawn_indices.ravel(), minlength=n_draws * n_examples)
    return counts.reshape(n_draws, n_examples).astype(np.float32)


def draw_named_counts(names: Sequence[str], n_draws: int, seed: int) -> Counts:
    """Returns the counts of `draw_counts`, paired between sets of examples that share names.

    Each name has its own Poisson process, seeded by the name. A draw of n examples consists of the
    first n arrivals at their names. The next arrival is at each name with equal probability, so for
    a single set this is the usual draw with replacement. Two sets see the same arrivals at the
    names that they share, so estimates on both are paired, whatever else the sets contain. The
    draws of a set do not depend on other sets.

    Args:
        names: the examples' names (n), all different.
        n_draws: the number of resamples (D).
        seed: the seed, which must be the same for all sets that should be paired.

    Returns:
        How often each example is drawn (D × n).
    """
    first_draws = range(0, n_draws, DRAWS_AT_ONCE)
    count_blocks = [
        _first_arrival_counts(names, derive_seed(seed, first_draw)) for first_draw in first_draws
    ]
    return np.concatenate(count_blocks)[:n_draws]


def _first_arrival_counts(names: Sequence[str], seed: int) -> Counts:
    """The number of each draw's first n arrivals at each of n names (DRAWS_AT_ONCE × n)."""
    n, window = len(names), 0
    draw, name, time = _draw_arrivals(names, derive_seed(seed, window))
    while np.bincount(draw, minlength=DRAWS_AT_ONCE).min() < n:
        window += 1
        next_window = _draw_arrivals(names, derive_seed(seed, window))
        draw, name = np.r_[draw, next_window[0]], np.r_[name, next_window[1]]
        time = np.r_[time, window + next_window[2]]
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
        n_arrivals = rng.poisson(ARRIVALS_PER_WINDOW, DRAWS_AT_ONCE)
        draws.append(np.repeat(np.arange(DRAWS_AT_ONCE), n_arrivals))
        times.append(rng.random(len(draws[-1])))
    positions = np.repeat(np.arange(len(names)), [len(draws_of_name) for draws_of_name in draws])
    return np.concatenate(draws), positions, np.concatenate(times)


def draw_resample(n_members: int, n_nonmembers: int, n_draws: int, seed: int) -> Resample:
    """Resamples members and non-members separately, each to its original size."""
    return Resample(
        draw_counts(n_members, n_draws, derive_seed(seed, "members")),
        draw_counts(n_nonmembers, n_draws, derive_seed(seed, "nonmembers")),
    )


@dataclass(frozen=True)
class RankedSide:
    """The scores of members or non-members in descending order, and their accumulated counts."""

    scores: Scores
    sums: Counts


def rank_side(scores: Scores, drawn: Counts) -> RankedSide:
    """Returns one side's scores in descending order, with the draws' counts accumulated."""
    order = np.argsort(-scores)
    sums = np.zeros((len(drawn), len(order) + 1), np.float32)
    np.cumsum(drawn[:, order], axis=1, out=sums[:, 1:])
    return RankedSide(scores[order], sums)


def rank_scores(members: Scores, nonmembers: Scores, drawn: Resample) -> RankedScores:
    """Returns one method's scores in descending order, with the draws' counts accumulated."""
    return join_sides(rank_side(members, drawn.members), rank_side(nonmembers, drawn.nonmembers))


def join_sides(members: RankedSide, nonmembers: RankedSide) -> RankedScores:
    """Returns the two sides combined; several groups of members can share one non-member side."""
    return RankedScores(members.scores, nonmembers.scores, members.sums, nonmembers.sums)


def percentile_intervals(draws: Scores, confidence: float) -> tuple[Scores, Scores]:
    """Returns the percentile interval of each row of `draws` (R×D): R lower and R upper ends.

    If all draws are equal, as for a perfect detector, the interval has no width.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
    return low, high
