"""A metric's value with its bootstrap draws, for one method on one group of examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import Ranked, Resample, Scores
from contamination.core.statistics.metrics import Metric, Steps

ALL = "all"
"""The benchmark that stands for the mean over benchmarks, wherever one is printed or stored."""
TINY = 1e-15  # a variance below it is rounding


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
    trials: float | None = None
    """The most independent trials that the value can be as certain as; None: unknown."""
    steps: Steps | None = None
    """Of a rate: the least and the most that ties leave possible, without ties the value twice."""
    needs: str = ""
    """What the examples lack for the metric: then the value and its draws are NaN."""
    smallest: int | None = None
    """Of a mean: the fewest members or non-members behind any of its values."""

    @property
    def smallest_side(self) -> int:
        """The fewest members or non-members behind any part of the value."""
        return min(self.n_members, self.n_nonmembers) if self.smallest is None else self.smallest


def estimate_metrics(
    members: Scores, nonmembers: Scores, drawn: Resample, wanted: Sequence[Metric]
) -> dict[str, Estimate]:
    """Returns every wanted metric, by name, of one method's scores."""
    return estimate_ranked(bootstrap.rank_scores(members, nonmembers, drawn), wanted)


def estimate_ranked(ranked: Ranked, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    """Returns every wanted metric, by name, of one method's ranked scores."""
    return {metric.name: _estimate_metric(ranked, metric) for metric in wanted}


def _estimate_metric(ranked: Ranked, metric: Metric) -> Estimate:
    sizes = len(ranked.members), len(ranked.nonmembers)
    if needs := metric.needs(*sizes):
        return estimate_without_value(sizes, len(ranked.hits), needs)
    value = metric.value(ranked.members, ranked.nonmembers)
    trials = metric.trials(*sizes) if metric.trials else None
    steps = (metric.steps(ranked) or (value, value)) if metric.steps else None
    return Estimate(*sizes, value, metric.draws(ranked), trials, steps)


def estimate_without_value(sizes: tuple[int, int], n_draws: int, needs: str) -> Estimate:
    """Returns an estimate without a number."""
    return Estimate(*sizes, np.nan, np.full(n_draws, np.nan), needs=needs)


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over groups that were resampled independently; their sizes are added up.

    Where one of them lacks examples for the metric, so does their mean.
    """
    return Estimate(
        sum(e.n_members for e in estimates),
        sum(e.n_nonmembers for e in estimates),
        float(np.mean([e.value for e in estimates])),
        np.mean([e.draws for e in estimates], axis=0),
        mean_trials([e.trials for e in estimates]),
        mean_steps(estimates),
        first_needs_text(estimates),
        min(e.smallest_side for e in estimates),
    )


def mean_over_benchmarks(estimate_by_benchmark: Mapping[str, Estimate]) -> Estimate:
    """The mean over benchmarks; its `needs` names those with too few examples."""
    needs = needs_by_benchmark_text({name: e.needs for name, e in estimate_by_benchmark.items()})
    return replace(mean_estimate(list(estimate_by_benchmark.values())), needs=needs)


def needs_by_benchmark_text(needs_by_benchmark: Mapping[str, str]) -> str:
    """Returns what each benchmark lacks, such as "non-members in imdb"; empty if nothing."""
    where: dict[str, list[str]] = {}
    for name, needs in needs_by_benchmark.items():
        where.setdefault(needs, []).append(name)
    return "; ".join(
        f"{needs} a benchmark"
        if names == list(needs_by_benchmark)
        else f"{needs} in {', '.join(names)}"
        for needs, names in where.items()
        if needs
    )


def first_needs_text(estimates: Sequence[Estimate]) -> str:
    """Returns what is missing for the metric in any single estimate."""
    return next((e.needs for e in estimates if e.needs), "")


def mean_trials(
    trials: Sequence[float | None],
    weights: Sequence[float] | None = None,
    overlap: Scores | None = None,
) -> float | None:
    """Returns the most trials that the weighted mean of estimates can be as certain as.

    With weights w (equal by default) and n trials each, the mean of independent rates has the
    variance p(1 − p) Σ w² / n, for Σ w = 1. So many trials have the same: 1 / Σ (w² / n). It is the
    sum of the trials where all are equal, and less where some estimates have fewer than others.

    Args:
        trials: of each estimate (K).
        weights: of each estimate.
        overlap: the correlation ρ of every two estimates (K×K); None: they are independent. The
            variance is then p(1 − p) Σ_ij ρ_ij (w_i / √n_i) (w_j / √n_j).
    """
    known_trials = [n for n in trials if n is not None]
    if len(known_trials) < len(trials):
        return None
    w = np.ones(len(known_trials)) if weights is None else np.array(weights, float)
    correlation = np.eye(len(w)) if overlap is None else overlap
    spread = np.outer(w, w) * correlation / np.sqrt(np.outer(known_trials, known_trials))
    return float(w.sum() ** 2 / spread.sum())


def mean_steps(estimates: Sequence[Estimate]) -> Steps | None:
    """The means of the least and of the most: as if all fell on the same side."""
    steps = [e.steps for e in estimates if e.steps is not None]
    if len(steps) < len(estimates):
        return None
    lowest, highest = np.mean(steps, axis=0)
    return float(lowest), float(highest)


def confidence_interval(estimate: Estimate, confidence: float) -> tuple[float, float]:
    """`intervals` of a single estimate."""
    low, high = confidence_intervals([estimate], confidence)
    return float(low[0]), float(high[0])


def confidence_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    """Returns lower and upper ends (NaN where `needs` is not empty).

    - AUROC: Wilson's interval (1927) for a rate of n tosses, n such that the tosses' variance is
      that of the draws (Newcombe 2006), and `trials` at most. Percentiles are too narrow near 1: at
      0.98 of 25 + 25 examples they include the truth in 84% of the cases.
    - Rates: the percentiles of the draws, moved to have their median where the draws have their
      mean (`metrics.tpr_draws` puts it there). Draws that agree have no width, and draws of tied
      scores don't reach the next step. So the interval also includes Jeffreys', that of a known
      threshold: of `trials` tosses (Brown, Cai and DasGupta 2001), from `steps`' least to its most.
    - Where the trials aren't known: the percentiles.
    """
    draws = np.stack([e.draws for e in estimates])
    low, high = bootstrap.percentile_intervals(draws, confidence)
    with_trials = [i for i, e in enumerate(estimates) if e.trials is not None and not e.needs]
    rates = [i for i in with_trials if estimates[i].steps is not None]
    if areas := [i for i in with_trials if estimates[i].steps is None]:
        low[areas], high[areas] = _wilson_intervals([estimates[i] for i in areas], confidence)
    if rates:
        lower, upper = _jeffreys_intervals([estimates[i] for i in rates], confidence)
        move = draws[rates].mean(axis=1) - np.median(draws[rates], axis=1)
        low[rates] = np.minimum(low[rates] + move, lower).clip(0)
        high[rates] = np.maximum(high[rates] + move, upper).clip(max=1)
    return low, high


def pairwise_standardised_differences(estimates: Sequence[Estimate], confidence: float) -> Scores:
    """Returns how clearly each AUROC differs from each other one (K×K).

    Entry (i, j) is estimate j minus estimate i, divided by the distance between that difference and
    the end of its interval that is nearer to 0: the interval excludes 0 where the entry is above 1
    or below −1. The interval is made of both `intervals` and of the covariance of the draws (Zou
    and Donner 2008), so that estimates on the same examples are paired. Both `intervals` have
    Student's quantile for the normal one, of the fewest examples on a side of the estimate.

    Args:
        estimates: AUROCs with draws that belong together (K).
        confidence: with which the intervals of all K (K − 1) / 2 differences include the truth
            (Bonferroni).
    """
    pairs = max(1.0, len(estimates) * (len(estimates) - 1) / 2)
    corrected = 1 - (1 - confidence) / pairs
    low, high = np.array(
        [confidence_interval(e, _student_confidence(corrected, e.smallest_side)) for e in estimates]
    ).T
    value = np.array([e.value for e in estimates])
    below, above = value - low, high - value
    variance = np.array([_variance_of_draws(e) for e in estimates])
    covariance = np.atleast_2d(np.cov([e.draws for e in estimates], bias=True))
    scale = np.sqrt(np.outer(variance, variance))
    correlation = np.where(scale > TINY, covariance / np.maximum(scale, TINY), 0.0).clip(-1, 1)
    squares = above[:, None] ** 2 + below**2 - 2 * correlation * np.outer(above, below)
    margin = np.sqrt(squares.clip(TINY))
    difference = value - value[:, None]
    evidence: Scores = difference / np.where(difference > 0, margin, margin.T)
    return evidence


def _variance_of_draws(estimate: Estimate) -> float:
    """The variance of the draws; at least that of as many tosses as `trials`."""
    variance = float(estimate.draws.var())
    if estimate.trials is None:
        return variance
    return max(variance, estimate.value * (1 - estimate.value) / estimate.trials)


def joint_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    """Returns joint intervals of AUROCs on the same examples: all include the truth at once.

    Whichever of them is looked at, even the highest, its interval includes the truth as often.
    They are `intervals` of a higher confidence: that of `jointly_valid_confidence`, with Student's
    quantile for the normal one, since far out the variance of few examples on a side counts: of the
    fewest in any benchmark, whose variance is the least certain and may be most of the mean's.
    """
    joint = jointly_valid_confidence(estimates, confidence)
    fewest = min(e.smallest_side for e in estimates)
    return confidence_intervals(
        estimates, _student_confidence(joint, fewest) if joint > confidence else joint
    )


def jointly_valid_confidence(estimates: Sequence[Estimate], confidence: float) -> float:
    """Returns the confidence of each interval at which all are jointly valid (max-T of the draws).

    Draws that move together ask for less than Bonferroni's correction, and none for more. Distances
    are measured on the scale of the angle arcsin √AUROC, on which draws near 1 are not skewed.
    """
    draws = np.array([e.draws for e in estimates if not e.needs])
    angles = np.arcsin(np.sqrt(draws.clip(0, 1)))  # a mean of ones may be above 1 by rounding
    angles = angles[angles.std(axis=1) > 1e-9] if len(angles) else angles
    if len(angles) < 2:
        return confidence
    spread = angles.std(axis=1, keepdims=True)
    distances = np.abs(angles - angles.mean(axis=1, keepdims=True)) / spread
    z = float(np.quantile(distances.max(axis=0), confidence))
    single, bonferroni = confidence, 1 - (1 - confidence) / len(angles)
    return min(max(2 * NormalDist().cdf(z) - 1, single), bonferroni)


def student_quantile(confidence: float, n_examples: int) -> float:
    """Returns how many of the draws' standard deviations an interval of n examples reaches.

    It is Student's quantile, times √(n / (n − 1)), since draws vary that much too little. A single
    example has no variance: it gets the normal quantile.
    """
    from scipy.special import stdtrit

    tail = (1 + confidence) / 2
    if n_examples < 2:
        return NormalDist().inv_cdf(tail)
    return float(stdtrit(n_examples - 1, tail) * np.sqrt(n_examples / (n_examples - 1)))


def _student_confidence(confidence: float, n_examples: int) -> float:
    """The confidence of a normal interval that is as wide as Student's of so many examples."""
    widest = 8.0  # standard deviations: the normal distribution is 1 beyond, in float64
    return 2 * NormalDist().cdf(min(student_quantile(confidence, n_examples), widest)) - 1


def _wilson_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    value, trials = _values_and_trials(estimates)
    variance = np.array([e.draws.var() for e in estimates])
    spread = value * (1 - value)
    with np.errstate(divide="ignore", invalid="ignore"):
        tosses = np.fmin(spread / variance, trials)  # 0 / 0, where all draws agree: trials
    shrink = 1 + z**2 / tosses
    centre = (value + z**2 / (2 * tosses)) / shrink
    half = z / shrink * np.sqrt(spread / tosses + (z / (2 * tosses)) ** 2)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def _jeffreys_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    from scipy.special import betaincinv

    _, tosses = _values_and_trials(estimates)
    lowest, highest = np.array([e.steps for e in estimates], float).T
    tail = (1 - confidence) / 2
    lower = betaincinv(lowest * tosses + 0.5, (1 - lowest) * tosses + 0.5, tail)
    upper = betaincinv(highest * tosses + 0.5, (1 - highest) * tosses + 0.5, 1 - tail)
    return np.minimum(lower, lowest), np.maximum(upper, highest)  # 0 and 1 of none and of all


def _values_and_trials(estimates: Sequence[Estimate]) -> tuple[Scores, Scores]:
    return np.array([e.value for e in estimates]), np.array([e.trials for e in estimates], float)
