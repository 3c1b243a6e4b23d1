"""Coverage of the intervals of TPR at an FPR and of FPR at a TPR, for many shapes of scores.

Each shape is a distribution of the members' scores, one of the non-members', and their numbers.
The true rate follows from the two distributions. Part of `python -m perf.coverage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

from contamination.analysis.statistics.seed_pooling import Replicates, pooled_estimate
from contamination.core.statistics.bootstrap import Resample, Scores, draw_resample
from contamination.core.statistics.estimates import (
    Estimate,
    confidence_intervals,
    estimate_metrics,
    mean_estimate,
)
from contamination.core.statistics.metrics import Metric, fpr_at_tpr, tpr_at_fpr

DRAWS = 1000
RATES = (*map(tpr_at_fpr, (0.001, 0.01, 0.05)), fpr_at_tpr(0.95))
MEANS = (1, 4, 8)
"""Over how many benchmarks the mean is taken."""

SINGLES = 4
"""How many benchmarks are simulated a repetition, half as many of more than `MANY` examples."""

MANY = 500

PLANS = 40
"""How many resamples there are: scores of different repetitions may share one."""

WITHIN = 0.93, 0.99
"""What a coverage must lie within: 1,000 repetitions tell a true 92% from a true 94%."""


class Shape(NamedTuple):
    """How members and non-members score."""

    name: str
    members: Any
    nonmembers: Any = norm()
    sizes: tuple[int, int] = (100, 100)
    seeds: int = 1
    """Models that score the same examples; half of a score's variance is the model's own."""
    rounded: float = 0
    """Scores are rounded to multiples of this."""

    def scores(self, rng: np.random.Generator) -> tuple[Scores, Scores]:
        """Of the members and of the non-members (seeds × examples each)."""
        sides = zip((self.members, self.nonmembers), self.sizes, strict=True)
        first, second = (side.ppf(self._quantiles(rng, size)) for side, size in sides)
        if self.rounded:
            return tuple(np.round(side / self.rounded) * self.rounded for side in (first, second))
        return first, second

    def _quantiles(self, rng: np.random.Generator, size: int) -> Scores:
        if self.seeds == 1:
            return rng.random((1, size))
        shared, noise = rng.normal(size=size), rng.normal(size=(self.seeds, size))
        quantiles: Scores = norm.cdf((shared + noise) / 2**0.5)
        return quantiles

    def truth(self, metric: Metric) -> float:
        """The rate of these distributions."""
        if metric.higher_is_better:
            return float(self.members.sf(self._edge(self.nonmembers.isf(metric.guess), np.ceil)))
        return float(self.nonmembers.sf(self._edge(self.members.isf(metric.guess), np.floor)))

    def _edge(self, threshold: float, towards: np.ufunc) -> float:
        """The least unrounded score that is flagged."""
        if not self.rounded:
            return threshold
        return float(towards(threshold / self.rounded + 0.5) - 0.5) * self.rounded


def _normals(size: int, distances: Sequence[float], **more: Any) -> Iterator[Shape]:
    for apart in distances:
        yield Shape(f"N({apart:g}, 1)", norm(apart), sizes=(size, size), **more)


SHAPES = (
    *_normals(100, (0, 1, 2, 3.29)),
    *_normals(500, (0, 1, 2, 3.29)),
    Shape("N(2, 0.3)", norm(2, 0.3)),
    Shape("N(2, 0.5)", norm(2, 0.5)),
    Shape("N(1, 2)", norm(1, 2)),
    Shape("N(2, 0.3)", norm(2, 0.3), sizes=(500, 500)),
    Shape("t3 + 1, t3", t(3, 1), t(3)),
    Shape("t3 + 3, t3", t(3, 3), t(3)),
    Shape("t2 + 2, t2", t(2, 2), t(2)),
    Shape("t3 + 3, t3", t(3, 3), t(3), sizes=(500, 500)),
    Shape("N(0, 1)", norm(0), sizes=(25, 100)),
    Shape("N(2, 1)", norm(2), sizes=(25, 100)),
    Shape("N(2, 0.3)", norm(2, 0.3), sizes=(25, 100)),
    Shape("N(0, 1)", norm(0), sizes=(400, 100)),
    Shape("N(2, 1)", norm(2), sizes=(400, 100)),
    Shape("N(0, 1)", norm(0), sizes=(1000, 100)),
    *_normals(100, (0, 2), seeds=3),
    Shape("N(2, 0.3)", norm(2, 0.3), seeds=3),
    *_normals(100, (0, 2), rounded=1.0),
    *_normals(100, (0, 2), rounded=0.5),
    *_normals(100, (2,), rounded=0.25),
    *_normals(1000, (0, 2)),
)


def simulate(shape: Shape, repetitions: int) -> dict[str, list[Estimate]]:
    """The estimates of every rate that the shape's sizes carry, benchmark by benchmark."""
    rng, wanted = np.random.default_rng(4), [m for m in RATES if not m.needs(*shape.sizes)]
    plans = [draw_resample(*shape.sizes, DRAWS, i) for i in range(PLANS)]
    estimates_by_metric: dict[str, list[Estimate]] = {metric.name: [] for metric in wanted}
    singles = repetitions * SINGLES // (2 if sum(shape.sizes) > MANY else 1)
    for i in range(singles):
        for name, value in _estimate_once(shape, rng, plans[i % PLANS], wanted).items():
            estimates_by_metric[name].append(value)
    return estimates_by_metric


def _estimate_once(
    shape: Shape, rng: np.random.Generator, plan: Resample, wanted: Sequence[Metric]
) -> dict[str, Estimate]:
    of_seeds = [
        estimate_metrics(*pair, plan, wanted) for pair in zip(*shape.scores(rng), strict=True)
    ]
    if shape.seeds == 1:
        return of_seeds[0]
    same = Replicates(tuple(range(shape.seeds)), np.ones((shape.seeds, shape.seeds)))
    return {m.name: pooled_estimate([e[m.name] for e in of_seeds], same, 0) for m in wanted}


def coverage_of_means(single: Sequence[Estimate], truth: float, benchmarks: int) -> float:
    """How often the 95% interval of the mean over so many benchmarks holds the truth.

    The simulated ones are grouped at random, several times: as many means as there are of them.
    """
    rng, held = np.random.default_rng(5), []
    for _ in range(benchmarks):
        order = rng.permutation(len(single))[: len(single) // benchmarks * benchmarks]
        groups = order.reshape(-1, benchmarks)
        means = [mean_estimate([single[i] for i in group]) for group in groups]
        low, high = confidence_intervals(means, 0.95)
        held += [(low <= truth) & (truth <= high)]
    return float(np.concatenate(held).mean())


def is_coverage_off(share: float, shape: Shape, truth: float, benchmarks: int) -> bool:
    """Whether a coverage leaves `WITHIN`.

    It may be more where fewer than ten members (or non-members) are expected to be hits, or
    misses: no interval of so few has 95%; where scores are rounded
    (`metrics.tpr_range_of_ties`); and over seeds, whose examples' spread enters twice
    (`analysis.statistics.pooled`).
    """
    few = min(truth, 1 - truth) * min(shape.sizes) * benchmarks < 10
    most = 1 if few or shape.rounded or shape.seeds > 1 else WITHIN[1]
    return not WITHIN[0] <= share <= most


def check_rates(repetitions: int) -> int:
    """Prints the rates' table; how many coverages are off."""
    print("\nrates: members + non-members, the members' scores (the non-members', where they are")
    print("not N(0, 1)), rate, truth (mean bias of the value): coverage of the interval of one")
    print(f"benchmark, of the means of {' and '.join(map(str, MEANS[1:]))}; ! is off")
    bad = 0
    for shape in SHAPES:
        extra = f", {shape.seeds} seeds" * (shape.seeds > 1)
        extra += f", rounded to {shape.rounded:g}" * bool(shape.rounded)
        where = f"{shape.sizes[0]:>5} + {shape.sizes[1]:<4} {shape.name + extra:<24}"
        for name, single in simulate(shape, repetitions).items():
            truth = shape.truth(next(m for m in RATES if m.name == name))
            shares = [coverage_of_means(single, truth, many) for many in MEANS]
            wrong = [
                is_coverage_off(share, shape, truth, k)
                for share, k in zip(shares, MEANS, strict=True)
            ]
            bias = np.mean([estimate_of_rate.value for estimate_of_rate in single]) - truth
            marked = "  ".join(f"{s:.1%}{'!' * w}" for s, w in zip(shares, wrong, strict=True))
            print(f"{where} {name:<16} {truth:.3f} ({bias:+.3f}): {marked}", flush=True)
            bad += sum(wrong)
    return bad
