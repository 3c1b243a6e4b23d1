"""How much a contaminated benchmark raises a score: direct effect, spillover and their sum.

For item i of a benchmark and seed s, y is a result of one model on the item (1 if the answer is
right, or the right answer's margin):

    direct(s, i)    = y(i inserted) − y(i not inserted)        swapped replicates of the seed
    spillover(s, i) = y(i not inserted) − y(clean twin)
    total(s, i)     = y(i inserted) − y(clean twin) = direct(s, i) + spillover(s, i)

Of swapped replicates one inserts the items that the other leaves out, so each item has both. The
clean twin was trained alike without any copy. An effect is the mean over the items of a benchmark,
then over benchmarks, then over seeds.

Its variance is clustered by items and by seeds (Cameron, Gelbach and Miller 2011), and its interval
has Student's quantile with the degrees of freedom of Satterthwaite (1946).

Shapes: S seeds, N items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.audits.reference_attack.strength import mean_over_examples

Results = NDArray[np.float64]
Flags = NDArray[np.bool_]
DIRECT, SPILLOVER, TOTAL = EFFECTS = ("direct", "spillover", "total")


@dataclass(frozen=True)
class SeedResults:
    """One measure of the items under the models of each seed; all (S, N).

    Attributes:
        inserted: under the replicate that inserts the item; NaN: there is none.
        left_out: under the replicate that does not; NaN: there is none.
        twin: under the clean twin.
    """

    inserted: Results
    left_out: Results
    twin: Results

    def effect(self, name: str) -> Results:
        """Returns an effect of each item and seed, shape (S, N); NaN where a model is missing."""
        first, second = {
            DIRECT: (self.inserted, self.left_out),
            SPILLOVER: (self.left_out, self.twin),
            TOTAL: (self.inserted, self.twin),
        }[name]
        return first - second


@dataclass(frozen=True)
class Effect:
    """A mean effect with its interval.

    Attributes:
        value: the mean; NaN if there is no item.
        low, high: the ends of the interval; NaN if all values are equal.
        seeds: the number of seeds. With one, the interval is over items alone.
        items: the number of items.
    """

    value: float
    low: float
    high: float
    seeds: int
    items: int

    def is_above_zero(self, confidence: float) -> bool:
        """Whether the interval is above 0; of equal values, whether a sign test says so.

        The two-sided p-value of N items that all gain is 2 · ½ᴺ.
        """
        if np.isfinite(self.low):
            return bool(self.low > 0)
        return bool(self.value > 0 and 2 * 0.5**self.items <= 1 - confidence)


def mean_effect(values: Results, benchmarks: NDArray[np.str_], confidence: float) -> Effect:
    """Returns the mean of an effect over items, benchmarks and seeds.

    A benchmark without items is left out, and so is a seed that lacks one of the others.

    Args:
        values: an effect of each item and seed, shape (S, N); NaN where it is not known.
        benchmarks: the benchmark of each item, shape (N,).
        confidence: the confidence of the interval.
    """
    is_known = np.isfinite(values)
    names = [name for name in np.unique(benchmarks) if is_known[:, benchmarks == name].any()]
    of_names = [benchmarks == name for name in names]
    complete = [s for s, row in enumerate(is_known) if all(row[mask].any() for mask in of_names)]
    if not names or not complete:
        return Effect(np.nan, np.nan, np.nan, 0, 0)
    mean = mean_over_examples(values[complete], is_known[complete], benchmarks)
    assert mean is not None  # each of these rows has answers
    low, high = mean.student_interval(confidence)
    if mean.error == 0:  # no answer differs, which says nothing of how they vary
        low = high = np.nan
    items = int(is_known[complete].any(axis=0).sum())
    return Effect(mean.value, low, high, len(complete), items)


def null_effects(twins: Results, member: Flags) -> dict[str, Results]:
    """Returns the effects between clean twins, in disjoint pairs of seeds: (S // 2, N) each.

    The first twin of a pair takes the place of the contaminated model, and the second that of the
    swapped replicate and of the clean twin. All effects are 0 in truth.

    Args:
        twins: the results of the clean twins, shape (S, N).
        member: the members of each twin's draw, which were not inserted, shape (S, N).
    """
    pairs = [(start, start + 1) for start in range(0, len(twins) - 1, 2)]
    difference = np.array([twins[a] - twins[b] for a, b in pairs]).reshape(-1, twins.shape[1])
    is_member = np.array([member[a] for a, _ in pairs]).reshape(difference.shape)
    return {
        DIRECT: np.where(is_member, difference, -difference),
        SPILLOVER: np.where(is_member, np.nan, difference),
        TOTAL: np.where(is_member, difference, np.nan),
    }
