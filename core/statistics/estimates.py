"""Estimates of metrics with bootstrap draws, and their confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import RankedScores, Resample, Scores
from contamination.core.statistics.metrics import Metric, TieRange

ALL_BENCHMARKS = "all"
"""The benchmark name that stands for the mean over benchmarks in results and tables."""
ROUNDING_VARIANCE = 1e-15  # a smaller variance is a rounding error


@dataclass(frozen=True)
class Estimate:
    """A metric's value on some examples and on each of their resamples.

    Draw d of two estimates on the same examples uses the same resample, so the differences of
    their draws give a paired interval.
    """

    n_members: int
    n_nonmembers: int
    value: float
    draws: Scores
    trials: float | None = None
    """Upper bound on the number of independent trials that the value is equivalent to; None:
    unknown."""
    steps: TieRange | None = None
    """For a rate: the lowest and highest value that ties allow; without ties, both are the
    value."""
    needs: str = ""
    """What is missing for the metric, such as "≥ 500 non-members"; the value and draws are then
    NaN."""
    smallest: int | None = None
    """For a mean: the smallest number of members or non-members behind any of its terms."""

    @property
    def smallest_side(self) -> int:
        """The smallest number of members or non-members behind any term of the value."""
        return min(self.n_members, self.n_nonmembers) if self.smallest is None else self.smallest


def estimate_metrics(
    members: Scores, nonmembers: Scores, drawn: Resample, metrics: Sequence[Metric]
) -> dict[str, Estimate]:
    """Returns the estimates of the metrics, by name, from one method's scores."""
    return estimate_ranked(bootstrap.rank_scores(members, nonmembers, drawn), metrics)


def estimate_ranked(ranked: RankedScores, metrics: Sequence[Metric]) -> dict[str, Estimate]:
    """Returns the estimates of the metrics, by name, from one method's ranked scores."""
    return {metric.name: _estimate_metric(ranked, metric) for metric in metrics}


def _estimate_metric(ranked: RankedScores, metric: Metric) -> Estimate:
    sizes = len(ranked.members), len(ranked.nonmembers)
    if needs := metric.needs(*sizes):
        return estimate_without_value(sizes, len(ranked.hits), needs)
    value = metric.value(ranked.members, ranked.nonmembers)
    trials = metric.trials(*sizes) if metric.trials else None
    steps = (metric.steps(ranked) or (value, value)) if metric.steps else None
    return Estimate(*sizes, value, metric.draws(ranked), trials, steps)


def estimate_without_value(sizes: tuple[int, int], n_draws: int, needs: str) -> Estimate:
    """Returns an estimate whose value and draws are NaN, with what is missing for it."""
    return Estimate(*sizes, np.nan, np.full(n_draws, np.nan), needs=needs)


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """Returns the mean over groups that were resampled independently, with the sum of their sizes.

    If an estimate has no value, neither has the mean.
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
    """Returns the mean over benchmarks; its `needs` names the benchmarks with too few examples."""
    needs = needs_by_benchmark_text({name: e.needs for name, e in estimate_by_benchmark.items()})
    return replace(mean_estimate(list(estimate_by_benchmark.values())), needs=needs)


def needs_by_benchmark_text(needs_by_benchmark: Mapping[str, str]) -> str:
    """Returns what is missing by benchmark, such as "non-members in imdb"; empty if nothing is."""
    names_by_needs: dict[str, list[str]] = {}
    for name, needs in needs_by_benchmark.items():
        names_by_needs.setdefault(needs, []).append(name)
    return "; ".join(
        f"{needs} per benchmark"
        if names == list(needs_by_benchmark)
        else f"{needs} in {', '.join(names)}"
        for needs, names in names_by_needs.items()
        if needs
    )


def first_needs_text(estimates: Sequence[Estimate]) -> str:
    """Returns the `needs` of the first estimate that has no value; empty if all have one."""
    return next((e.needs for e in estimates if e.needs), "")


def mean_trials(
    trials: Sequence[float | None],
    weights: Sequence[float] | None = None,
    overlap: Scores | None = None,
) -> float | None:
    """Returns the number of trials that the weighted mean of estimates is equivalent to.

    With weights w (Σ w = 1, equal by default) and n trials per estimate, the mean of independent
    rates has the variance p(1 − p) Σ w² / n. This is the variance of 1 / Σ (w² / n) trials: the sum
    of the trials if all are equal, and less if some estimates have fewer trials than others.

    Args:
        trials: the trials of each estimate (K); if any is None, the result is None.
        weights: the weight of each estimate (K).
        overlap: the correlations ρ of the estimates (K×K); the variance is then
            p(1 − p) Σ_ij ρ_ij (w_i / √n_i) (w_j / √n_j). None: they are independent.
    """
    known_trials = [n for n in trials if n is not None]
    if len(known_trials) < len(trials):
        return None
    w = np.ones(len(known_trials)) if weights is None else np.array(weights, float)
    correlation = np.eye(len(w)) if overlap is None else overlap
    spread = np.outer(w, w) * correlation / np.sqrt(np.outer(known_trials, known_trials))
    return float(w.sum() ** 2 / spread.sum())


def mean_steps(estimates: Sequence[Estimate]) -> TieRange | None:
    """Returns the means of the lowest and of the highest values that ties allow."""
    steps = [e.steps for e in estimates if e.steps is not None]
    if len(steps) < len(estimates):
        return None
    lowest, highest = np.mean(steps, axis=0)
    return float(lowest), float(highest)


def confidence_interval(estimate: Estimate, confidence: float) -> tuple[float, float]:
    """Returns the `confidence_intervals` of a single estimate."""
    low, high = confidence_intervals([estimate], confidence)
    return float(low[0]), float(high[0])


def confidence_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    """Returns the lower and upper ends of the intervals (NaN if `needs` is not empty).

    - AUROC: Wilson's interval (1927) for the rate of n Bernoulli trials, where n is chosen so that
      their variance is that of the draws (Newcombe 2006), and is at most `trials`. Percentiles are
      too narrow near 1: for an AUROC of 0.98 with 25 + 25 examples they cover 84%.
    - Rates: the percentiles of the draws, shifted so that their median is the mean of the draws
      (see `metrics.tpr_draws`). Equal draws would give no width, and draws of tied scores don't
      reach the next step, so the interval also includes Jeffreys' interval for `trials` trials at a
      known threshold (Brown, Cai and DasGupta 2001), from the lowest to the highest of `steps`.
    - If `trials` is None: the percentiles of the draws.
    """
    draws = np.stack([e.draws for e in estimates])
    low, high = bootstrap.percentile_intervals(draws, confidence)
    with_trials = [i for i, e in enumerate(estimates) if e.trials is not None and not e.needs]
    rates = [i for i in with_trials if estimates[i].steps is not None]
    if aurocs := [i for i in with_trials if estimates[i].steps is None]:
        low[aurocs], high[aurocs] = _wilson_intervals([estimates[i] for i in aurocs], confidence)
    if rates:
        lower, upper = _jeffreys_intervals([estimates[i] for i in rates], confidence)
        shift = draws[rates].mean(axis=1) - np.median(draws[rates], axis=1)
        low[rates] = np.minimum(low[rates] + shift, lower).clip(0)
        high[rates] = np.maximum(high[rates] + shift, upper).clip(max=1)
    return low, high


def pairwise_standardised_differences(estimates: Sequence[Estimate], confidence: float) -> Scores:
    """Returns how clearly each AUROC differs from each other AUROC (K×K).

    Entry (i, j) is estimate j minus estimate i, divided by the distance between that difference and
    the end of its interval that is nearer to 0: the interval excludes 0 if the entry is above 1 or
    below −1. The interval is computed from both `confidence_intervals` and the covariance of the
    draws (Zou and Donner 2008), so that estimates on the same examples are paired. Both intervals
    use Student's quantile for the smaller side of the estimate instead of the normal quantile.

    Args:
        estimates: AUROCs with draws that belong together (K).
        confidence: the joint confidence of the intervals of all K (K − 1) / 2 differences
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
    correlation = np.where(
        scale > ROUNDING_VARIANCE, covariance / np.maximum(scale, ROUNDING_VARIANCE), 0.0
    ).clip(-1, 1)
    squares = above[:, None] ** 2 + below**2 - 2 * correlation * np.outer(above, below)
    margin = np.sqrt(squares.clip(ROUNDING_VARIANCE))
    difference = value - value[:, None]
    standardised: Scores = difference / np.where(difference > 0, margin, margin.T)
    return standardised


def _variance_of_draws(estimate: Estimate) -> float:
    """The variance of the draws, but at least that of `trials` Bernoulli trials."""
    variance = float(estimate.draws.var())
    if estimate.trials is None:
        return variance
    return max(variance, estimate.value * (1 - estimate.value) / estimate.trials)


def joint_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    """Returns simultaneous confidence intervals of AUROCs on the same examples.

    With the given confidence, all intervals include their true values at once, so the interval of
    any of them is valid, even of the highest AUROC. They are `confidence_intervals` at
    `jointly_valid_confidence`, with Student's quantile instead of the normal quantile. Its degrees
    of freedom are those of the smallest side in any benchmark, whose variance is the least certain
    and may dominate the variance of the mean.
    """
    joint = jointly_valid_confidence(estimates, confidence)
    fewest = min(e.smallest_side for e in estimates)
    return confidence_intervals(
        estimates, _student_confidence(joint, fewest) if joint > confidence else joint
    )


def jointly_valid_confidence(estimates: Sequence[Estimate], confidence: float) -> float:
    """Returns the confidence per interval at which all intervals are jointly valid (max-T).

    It is estimated from the draws, and is at most Bonferroni's correction; correlated draws need a
    smaller correction. Distances are measured on the scale of arcsin √AUROC, on which draws near 1
    are not skewed.
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
    """Returns the half width of an interval of n examples, in standard deviations of the draws.

    It is Student's quantile times √(n / (n − 1)), which corrects the draws' too small variance. A
    single example has no variance, so the normal quantile is returned.
    """
    from scipy.special import stdtrit

    tail = (1 + confidence) / 2
    if n_examples < 2:
        return NormalDist().inv_cdf(tail)
    return float(stdtrit(n_examples - 1, tail) * np.sqrt(n_examples / (n_examples - 1)))


def _student_confidence(confidence: float, n_examples: int) -> float:
    """The confidence at which a normal interval is as wide as Student's of `n_examples`."""
    max_width = 8.0  # standard deviations: beyond them, the normal distribution is 1 in float64
    return 2 * NormalDist().cdf(min(student_quantile(confidence, n_examples), max_width)) - 1


def _wilson_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    value, trials = _values_and_trials(estimates)
    variance = np.array([e.draws.var() for e in estimates])
    variance = np.where(variance > ROUNDING_VARIANCE, variance, 0)
    spread = value * (1 - value)
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.fmin(spread / variance, trials)  # 0 / 0 gives `trials`: all draws are equal
    shrink = 1 + z**2 / n
    centre = (value + z**2 / (2 * n)) / shrink
    half_width = z / shrink * np.sqrt(spread / n + (z / (2 * n)) ** 2)
    return np.clip(centre - half_width, 0, 1), np.clip(centre + half_width, 0, 1)


def _jeffreys_intervals(estimates: Sequence[Estimate], confidence: float) -> tuple[Scores, Scores]:
    from scipy.special import betaincinv

    _, trials = _values_and_trials(estimates)
    lowest, highest = np.array([e.steps for e in estimates], float).T
    tail = (1 - confidence) / 2
    lower = betaincinv(lowest * trials + 0.5, (1 - lowest) * trials + 0.5, tail)
    upper = betaincinv(highest * trials + 0.5, (1 - highest) * trials + 0.5, 1 - tail)
    return np.minimum(lower, lowest), np.maximum(
        upper, highest
    )  # the ends are 0 and 1 at rates of 0 and 1


def _values_and_trials(estimates: Sequence[Estimate]) -> tuple[Scores, Scores]:
    return np.array([e.value for e in estimates]), np.array([e.trials for e in estimates], float)
