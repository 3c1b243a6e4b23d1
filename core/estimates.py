"""A metric's value with its bootstrap draws, for one method on one group of examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from core import bootstrap, metrics
from core.bootstrap import Ranked, Resample
from core.metrics import Scores

ALL = "all"
"""The benchmark that stands for the mean over benchmarks, wherever one is printed or stored."""


@dataclass(frozen=True)
class Metric:
    """A metric's name in the results, its definition, and the same for all draws at once."""

    name: str
    value: Callable[[Scores, Scores], float]
    draws: Callable[[Ranked], Scores]
    guess: float
    """What scores that say nothing reach."""
    higher_is_better: bool = True
    worth: Callable[[int, int], float] | None = None
    """`Estimate.worth` from the numbers of members and non-members."""
    skewed: bool = False
    """`Estimate.skewed`."""
    least_members: int = 1
    least_nonmembers: int = 1
    """The fewest that carry the metric (`metrics.fewest_examples`)."""

    def needs(self, members: int, nonmembers: int) -> str:
        """What is missing to carry it, such as "≥ 500 non-members"; empty where nothing is."""
        sides = (
            (nonmembers, self.least_nonmembers, "non-members"),
            (members, self.least_members, "members"),
        )
        return " and ".join(
            kind if least == 1 else f"≥ {least:,} {kind}"
            for found, least, kind in sides
            if found < least
        )


@dataclass(frozen=True)
class Estimate:
    """A value on given examples and on their resamples.

    Draw d of two estimates on the same examples used the same resample: subtract the draws for a
    paired interval of a difference.
    """

    n_members: int
    n_nonmembers: int
    value: float
    draws: Scores
    worth: float | None = None
    """The most independent coin tosses that the value can be as certain as; None: unknown."""
    skewed: bool = False
    """Whether the draws' own percentiles say more than their variance: `intervals`."""
    needs: str = ""
    """What the examples lack to carry the metric: then the value and its draws are NaN."""


def auroc_worth(members: int, nonmembers: int) -> float:
    """Four times the harmonic mean of both sides.

    Scores of two normals make an AUROC of 0.5 to 0.9 worth about two harmonic means, and one near 1
    more. Twice that kept the coverage at 0.9 to 0.995 within 93 to 98.5% in simulations.
    """
    return 8 * members * nonmembers / (members + nonmembers)


AUROC = Metric("auroc", metrics.auroc, bootstrap.auroc, 0.5, worth=auroc_worth)


def tpr_at_fpr(rate: float) -> Metric:
    """At a known threshold it were a rate of as many tosses as there are members."""
    return Metric(
        f"tpr_at_fpr_{rate:g}",
        partial(metrics.tpr_at_fpr, fpr=rate),
        partial(bootstrap.tpr_at_fpr, fpr=rate),
        guess=rate,
        worth=lambda members, nonmembers: members,
        skewed=True,
        least_nonmembers=metrics.fewest_examples(rate),
    )


def fpr_at_tpr(rate: float) -> Metric:
    """The members that stay below the threshold are to it what false alarms are to `tpr_at_fpr`."""
    return Metric(
        f"fpr_at_tpr_{rate:g}",
        partial(metrics.fpr_at_tpr, tpr=rate),
        partial(bootstrap.fpr_at_tpr, tpr=rate),
        guess=rate,
        higher_is_better=False,
        worth=lambda members, nonmembers: nonmembers,
        skewed=True,
        least_members=metrics.fewest_examples(1 - rate),
    )


def chosen_metrics(fpr: Sequence[float], tpr: Sequence[float]) -> list[Metric]:
    """AUROC, then TPR at each false-positive rate, then FPR at each true-positive rate."""
    return [AUROC, *map(tpr_at_fpr, fpr), *map(fpr_at_tpr, tpr)]


def estimate(
    members: Scores, nonmembers: Scores, drawn: Resample, wanted: Sequence[Metric]
) -> dict[str, Estimate]:
    """Every wanted metric (by name) of one method's scores."""
    return estimate_ranked(bootstrap.rank(members, nonmembers, drawn), wanted)


def estimate_ranked(ranked: Ranked, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    """The same of scores that are ranked already."""
    return {metric.name: _estimate(ranked, metric) for metric in wanted}


def _estimate(ranked: Ranked, metric: Metric) -> Estimate:
    sizes = len(ranked.members), len(ranked.nonmembers)
    if needs := metric.needs(*sizes):
        return not_carried(sizes, len(ranked.hits), needs)
    value = metric.value(ranked.members, ranked.nonmembers)
    worth = metric.worth(*sizes) if metric.worth else None
    return Estimate(*sizes, value, metric.draws(ranked), worth, metric.skewed)


def not_carried(sizes: tuple[int, int], draws: int, needs: str) -> Estimate:
    """An estimate without a number."""
    return Estimate(*sizes, np.nan, np.full(draws, np.nan), needs=needs)


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over groups that were resampled independently; their sizes are added up.

    Where one of them can't carry the metric, their mean can't.
    """
    return Estimate(
        sum(e.n_members for e in estimates),
        sum(e.n_nonmembers for e in estimates),
        float(np.mean([e.value for e in estimates])),
        np.mean([e.draws for e in estimates], axis=0),
        total_worth(estimates),
        estimates[0].skewed,
        total_needs(estimates),
    )


def mean_over(benchmarks: Mapping[str, Estimate]) -> Estimate:
    """The same; its `needs` names the benchmarks that can't carry the metric."""
    needs = needs_over({name: e.needs for name, e in benchmarks.items()})
    return replace(mean(list(benchmarks.values())), needs=needs)


def needs_over(benchmarks: Mapping[str, str]) -> str:
    """What each benchmark lacks, such as "non-members in imdb"; empty where none lacks anything."""
    where: dict[str, list[str]] = {}
    for name, needs in benchmarks.items():
        where.setdefault(needs, []).append(name)
    return "; ".join(
        f"{needs} a benchmark" if names == list(benchmarks) else f"{needs} in {', '.join(names)}"
        for needs, names in where.items()
        if needs
    )


def total_needs(estimates: Sequence[Estimate]) -> str:
    """What is missing to carry the metric by each estimate: not by their sum."""
    return next((e.needs for e in estimates if e.needs), "")


def total_worth(estimates: Sequence[Estimate]) -> float | None:
    """What the mean of independent estimates is worth at most."""
    worths = [e.worth for e in estimates if e.worth is not None]
    return sum(worths) if len(worths) == len(estimates) else None


def interval(estimate: Estimate, confidence: float) -> tuple[float, float]:
    """`intervals` of a single estimate."""
    low, high = intervals([estimate], confidence)
    return float(low[0]), float(high[0])


def intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    """Lower and upper ends (NaN where the metric isn't carried).

    - AUROC: Wilson's interval (1927) for a rate of n tosses, n such that the tosses' variance is
      that of the draws (Newcombe 2006), and `worth` at most. Percentiles are too narrow near 1: at
      0.98 of 25 + 25 examples they hold the truth in 84% of the cases.
    - Skewed rates: the draws' percentiles, whose shape no symmetric variance has. They have no
      width where every draw is 0 or 1, so they reach as far as the interval of a known threshold
      does: Jeffreys' for `worth` tosses (Brown, Cai and DasGupta 2001).
    - Where the worth isn't known: the percentiles.
    """
    low, high = bootstrap.intervals(np.stack([e.draws for e in estimates]), confidence)
    known = [i for i, e in enumerate(estimates) if e.worth is not None and not e.needs]
    skewed = [i for i in known if estimates[i].skewed]
    if plain := [i for i in known if not estimates[i].skewed]:
        low[plain], high[plain] = _wilson([estimates[i] for i in plain], confidence)
    if skewed:
        lower, upper = _jeffreys([estimates[i] for i in skewed], confidence)
        low[skewed] = np.minimum(low[skewed], lower)
        high[skewed] = np.maximum(high[skewed], upper)
    return low, high


def _wilson(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    value, worth = _values(estimates)
    variance = np.array([e.draws.var() for e in estimates])
    spread = value * (1 - value)
    with np.errstate(divide="ignore", invalid="ignore"):
        tosses = np.fmin(spread / variance, worth)  # 0 / 0, where all draws agree: worth
    shrink = 1 + z**2 / tosses
    centre = (value + z**2 / (2 * tosses)) / shrink
    half = z / shrink * np.sqrt(spread / tosses + (z / (2 * tosses)) ** 2)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def _jeffreys(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    from scipy.special import betaincinv

    value, tosses = _values(estimates)
    hits, misses = value * tosses + 0.5, (1 - value) * tosses + 0.5
    tail = (1 - confidence) / 2
    lower, upper = betaincinv(hits, misses, tail), betaincinv(hits, misses, 1 - tail)
    return np.minimum(lower, value), np.maximum(upper, value)  # 0 and 1 of none and of all


def _values(estimates: Sequence[Estimate]) -> tuple[Scores, Scores]:
    return np.array([e.value for e in estimates]), np.array([e.worth for e in estimates], float)
