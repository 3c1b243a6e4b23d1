"""The logistic dose-response: P(member scores above a random non-member) = σ(a + b·log2(dose)).

docs/slope.md explains the model and how often its intervals are right. A member's placement p is
the share of the non-members below it, ties counted ½; a and b solve
Σ (p_i − σ(a_s + b x_i)) (1, x_i) = 0 over all members (AUROC regression, Dodd and Pepe 2003).
Shapes: M members and N non-members of a benchmark, S benchmarks, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from contamination.core.statistics.bootstrap import Resample, Scores
from contamination.core.statistics.estimates import Estimate, estimate_without_value

FEWEST = 5
"""Fewest members among the non-members, at doses above and at doses below the mean."""
EDGE = 0.01
"""Members above or below all but this share of the non-members say too little of the log-odds."""
STEPS = 100
"""Most steps of Newton's method; 5 to 14 are usual."""
FARTHEST = 2
"""Log-odds and slope move no more in one step: from far away, Newton's would overshoot."""
STEEPEST = 30.0
"""Log-odds within one fit; beyond, the scores separate the doses and b has no finite value."""
TINY = 1e-12
"""Smaller differences are rounding."""
VARIED = "members of one benchmark that differ in their occurrences"
AMONG = "that score between the lowest and the highest 1% of the non-members"
SEPARATED = f"members {AMONG} at several numbers of occurrences"


class BenchmarkScores(NamedTuple):
    """The scores of one benchmark."""

    log_occurrences: Scores
    """log2 of each member's occurrences (M)."""
    members: Scores
    nonmembers: Scores
    drawn: Resample


class Curves(NamedTuple):
    """R dose-responses: log-odds at log2(dose) = 0 (R×S) and their change per doubling (R)."""

    levels: Scores
    slope: Scores

    def auroc_at(self, log_occurrences: float | Scores) -> Scores:
        """Returns the mean AUROC over benchmarks at one log2(dose) per curve (R)."""
        log_odds = self.levels + (self.slope * log_occurrences)[:, None]
        mean_auroc: Scores = logistic(log_odds).mean(axis=1)
        return mean_auroc


class DoseResponse(NamedTuple):
    """A slope and the levels that go with it; both NaN where the slope `needs` more."""

    slope: Estimate
    levels: Scores
    """The estimates, then the draws ((1 + D)×S)."""
    doses: frozenset[float]

    @property
    def curves(self) -> Curves:
        """The estimated curve, then the draws."""
        return Curves(self.levels, np.r_[self.slope.value, self.slope.draws])


class _BenchmarkTerms(NamedTuple):
    """One benchmark of a fit: K members, or levels of several members."""

    share: Scores
    """p (K)."""
    away: Scores
    """x̃ (K)."""
    centre: float
    """The mean of x by weight."""
    fitted: Scores
    """μ (K)."""
    weight: Scores
    """Members times w (K)."""
    level: float
    """Log-odds at the centre."""


class _Fit(NamedTuple):
    slope: float
    curvature: float
    """A."""
    parts: Sequence[_BenchmarkTerms]


class _FitVariances(NamedTuple):
    """Variances of a fit."""

    levels: Sequence[float]
    """Of each part's level (S)."""
    slope: float
    together: Sequence[float]
    """Covariance of each part's level with the slope (S)."""


def dose_response(samples: Sequence[BenchmarkScores], confidence: float) -> DoseResponse:
    """Returns the benchmarks' common slope; its draws are as wide as its interval.

    Where the data are too few, `slope.needs` says what is missing and the value is NaN. A benchmark
    whose members all score above (or below) its non-members does not inform the slope: its level
    is infinite.
    """
    members = sum(len(sample.members) for sample in samples)
    nonmembers = sum(len(sample.nonmembers) for sample in samples)
    draws = len(samples[0].drawn.members)
    x = [sample.log_occurrences for sample in samples]
    doses = frozenset(np.exp2(np.concatenate(x)).round().tolist())
    placements = [_placements(sample) for sample in samples]
    overlapping = [index for index, p in enumerate(placements) if 0 < p.mean() < 1]
    needs = _describe_lacking_data(
        [samples[i] for i in overlapping], [placements[i] for i in overlapping]
    )
    needs = needs if any(np.ptp(log_occurrences) > 0 for log_occurrences in x) else VARIED
    log_occurrences = [
        (x[index], placements[index], np.ones(len(x[index]))) for index in overlapping
    ]
    fit = None if needs else _solve_regression(*zip(*log_occurrences, strict=True))
    levels = np.full((1 + draws, len(samples)), np.nan)
    if fit is None:
        slope = estimate_without_value((members, nonmembers), draws, needs or SEPARATED)
        return DoseResponse(slope, levels, doses)
    levels[:] = [np.inf if p.mean() > 0.5 else -np.inf for p in placements]
    curves = _curves_with_draws([samples[i] for i in overlapping], fit, confidence)
    levels[:, overlapping] = curves.levels
    slope = Estimate(members, nonmembers, float(curves.slope[0]), curves.slope[1:])
    return DoseResponse(slope, levels, doses)


def dose_response_of_groups(
    x: Scores, auroc: Scores, members: Scores, widening: float
) -> Curves | None:
    """Returns the same regression on the AUROCs of whole groups: the estimate, then its draws.

    Args:
        x: log2 of the levels (K), at least two different ones.
        auroc: the values, then their draws ((1 + D)×K).
        members: the weight of each level (K).
        widening: what the shifts of the draws are multiplied by, since draws of few examples vary
            too little.

    Returns:
        None where no line can be fitted: but for one level at most, the AUROC is 0 or 1.
    """
    is_interior = (auroc[0] > 0) & (auroc[0] < 1)
    fit = _solve_regression([x], [auroc[0]], [members]) if is_interior.sum() > 1 else None
    if fit is None:
        return None
    (part,) = fit.parts
    moved = (auroc[1:] - auroc[0]) * members
    level, slope = moved.sum(axis=1) / part.weight.sum(), moved @ part.away / fit.curvature
    (level_variance, together), (_, slope_variance) = np.cov([level, slope], bias=True)
    fit = _without_bias(fit, _FitVariances([level_variance], slope_variance, [together]))
    return _curves_at_zero(fit, widening * level[:, None], widening * slope)


def slope_interval(slopes: Scores, confidence: float) -> tuple[float, float]:
    """Returns the first slope ± the normal quantile times the others' standard deviation.

    A slope that differs from 0 by rounding has an interval that includes it.
    """
    half = max(TINY, NormalDist().inv_cdf((1 + confidence) / 2) * float(slopes[1:].std()))
    return float(slopes[0] - half), float(slopes[0] + half)


def log_dose_at_level(curves: Curves, low: float, high: float, level: float) -> Scores:
    """log2 of the dose at which each curve reaches an AUROC of `level`, between `low` and `high`.

    Where it doesn't: -inf if it would before `low`, inf if after `high`, by the first curve's
    direction.
    """
    first, last = (curves.auroc_at(end) - level for end in (low, high))
    rising = 1.0 if curves.slope[0] >= 0 else -1.0
    outside = np.where((first + last) * rising > 0, -np.inf, np.inf)
    below, above = np.full_like(curves.slope, low), np.full_like(curves.slope, high)
    for _ in range(50):  # halves any range of doses to less than rounding
        middle = (below + above) / 2
        before = np.sign(curves.auroc_at(middle) - level) == np.sign(first)
        below, above = np.where(before, middle, below), np.where(before, above, middle)
    reached = np.sign(first) * np.sign(last) <= 0
    log_doses: Scores = np.where(reached, (below + above) / 2, outside)
    return log_doses


def logistic(log_odds: Scores) -> Scores:
    """σ."""
    from scipy.special import expit

    probability: Scores = expit(log_odds)
    return probability


def _placements(sample: BenchmarkScores) -> Scores:
    """The share of the non-members below each member, ties counted ½ (M)."""
    ordered = np.sort(sample.nonmembers)
    twice = sum(np.searchsorted(ordered, sample.members, side) for side in ("left", "right"))
    return np.asarray(twice / (2 * len(ordered)), np.float64)


def _describe_lacking_data(samples: Sequence[BenchmarkScores], placements: Sequence[Scores]) -> str:
    """Returns what is missing for a slope; empty if nothing is.

    Args:
        samples: those that the slope is fitted to.
        placements: of the members of each.
    """
    n_below = n_above = 0
    for (x, *_), p in zip(samples, placements, strict=True):
        among = np.abs(p - 0.5) <= 0.5 - EDGE + TINY
        away = x - x.mean()
        n_below += int((among & (away < -TINY)).sum())
        n_above += int((among & (away > TINY)).sum())
    if min(n_below, n_above) < FEWEST:
        return (
            f"at least {FEWEST} members {AMONG}, both with fewer and with more occurrences than "
            f"the mean (there are {n_below} and {n_above})"
        )
    return "" if min(len(s.nonmembers) for s in samples) > 1 else "at least 2 non-members"


def _solve_regression(
    x: Sequence[Scores], share: Sequence[Scores], members: Sequence[Scores]
) -> _Fit | None:
    """Newton's method from a flat line; None where the slope has no finite value."""
    data = list(zip(share, members, strict=True))
    start = [float(np.average(p, weights=n).clip(0.01, 0.99)) for p, n in data]
    levels, slope = [float(np.log(p / (1 - p))) for p in start], 0.0
    centres = [
        float(np.average(log_doses, weights=n)) for log_doses, n in zip(x, members, strict=True)
    ]
    for _ in range(STEPS):
        parts = [
            _benchmark_terms(log_doses, p, n, level, slope, centre)
            for log_doses, (p, n), level, centre in zip(x, data, levels, centres, strict=True)
        ]
        curvature = sum(float(part.weight @ part.away**2) for part in parts)
        total = min(float(part.weight.sum()) for part in parts)
        if (
            min(total, curvature) < TINY
            or max(abs(np.ptp(log_doses) * slope) for log_doses in x) > STEEPEST
        ):
            return None
        residuals = [(p.share - p.fitted) * n for p, n in zip(parts, members, strict=True)]
        scores = [float(r @ p.away) for r, p in zip(residuals, parts, strict=True)]
        slope_step = sum(scores) / curvature
        level_steps = [
            float(r.sum() / p.weight.sum()) for r, p in zip(residuals, parts, strict=True)
        ]
        damping = min(1.0, FARTHEST / max(map(abs, [slope_step, *level_steps, 1e-300])))
        slope += damping * slope_step
        levels = [p.level + damping * up for p, up in zip(parts, level_steps, strict=True)]
        centres = [p.centre for p in parts]
        if max(map(abs, [slope_step, *level_steps])) < 1e-9:
            return _Fit(slope, curvature, parts)
    return None


def _benchmark_terms(
    x: Scores, share: Scores, members: Scores, level: float, slope: float, reference_x: float
) -> _BenchmarkTerms:
    """The terms of one benchmark, whose log-odds at `reference_x` are `level`."""
    fitted = logistic(level + slope * (x - reference_x))
    weight = members * fitted * (1 - fitted)
    centre = float(np.average(x, weights=weight)) if weight.any() else reference_x
    return _BenchmarkTerms(
        share, x - centre, centre, fitted, weight, level + slope * (centre - reference_x)
    )


def _without_bias(fit: _Fit, variances: _FitVariances) -> _Fit:
    """Returns the fit less its bias of first order (Cordeiro and McCullagh 1991).

    The bias is −½ A⁻¹ Σ x̃_i w_i (1 − 2μ_i) v_i, with the fitted μ_i, w = μ(1 − μ), x̃ the distance
    from the mean of x by w, A = Σ w x̃², and v_i the variance of the fitted log-odds.
    """
    slope, levels = fit.slope, []
    for part, level_variance, covariance in zip(
        fit.parts, variances.levels, variances.together, strict=True
    ):
        variance = level_variance + 2 * part.away * covariance + part.away**2 * variances.slope
        bias = -part.weight * (1 - 2 * part.fitted) * variance / 2
        slope -= float(bias @ part.away) / fit.curvature
        levels.append(part.level - float(bias.sum() / part.weight.sum()))
    parts = [part._replace(level=at) for part, at in zip(fit.parts, levels, strict=True)]
    return fit._replace(slope=slope, parts=parts)


def _curves_with_draws(samples: Sequence[BenchmarkScores], fit: _Fit, confidence: float) -> Curves:
    """Returns the estimate without its bias, then draws as wide as Student's interval.

    A draw is the estimate plus the influence of each example times how often it was drawn beyond
    once, scaled to the spread of that interval; so draws are paired wherever the resamples are.
    Satterthwaite's degrees of freedom: the members' are (Σ w x̃²)² / Σ (w x̃²)² − 1, few where a
    rare dose decides; the non-members' N − 1.
    """
    pairs = list(zip(samples, fit.parts, strict=True))
    influence = [_example_influences(sample, part, fit.curvature) for sample, part in pairs]
    member_covariances, nonmember_covariances = (
        np.array([sides[which].T @ sides[which] for sides in influence]) for which in (0, 1)
    )
    covariance = member_covariances + nonmember_covariances
    slope_variance = float(covariance[:, 1, 1].sum())
    fit = _without_bias(
        fit, _FitVariances(covariance[:, 0, 0], slope_variance, covariance[:, 0, 1])
    )
    moved = np.array(
        [
            _level_and_slope_shifts(s.drawn, *sides_influence)
            for s, sides_influence in zip(samples, influence, strict=True)
        ]
    )
    slope = moved[:, :, 1].sum(axis=0)
    terms = np.concatenate([part.weight * part.away**2 for part in fit.parts])
    freedoms = (
        max(float(terms.sum() ** 2 / (terms @ terms)) - 1, 1),
        sum(len(sample.nonmembers) - 1 for sample in samples),
    )
    variances = [
        float(side_covariances[:, 1, 1].sum())
        for side_covariances in (member_covariances, nonmember_covariances)
    ]
    wanted = slope_variance**0.5 * _student_factor(variances, freedoms, confidence)
    scale = wanted / slope.std() if slope.std() > TINY else 1.0
    return _curves_at_zero(fit, scale * moved[:, :, 0].T, scale * slope)


def _example_influences(
    sample: BenchmarkScores, part: _BenchmarkTerms, curvature: float
) -> tuple[Scores, Scores]:
    """Returns the influence of each member (M×2) and non-member (N×2) on level and slope.

    Members and non-members are both samples (DeLong, DeLong and Clarke-Pearson 1988). A member's
    residual is divided by √(1 − leverage) (HC2, MacKinnon and White 1985), and the sum over N
    non-members is multiplied by N / (N − 1).
    """
    per_win = np.stack([np.full(len(part.away), 1 / part.weight.sum()), part.away / curvature], 1)
    leverage = part.weight * (per_win[:, 0] + part.away * per_win[:, 1])
    residuals = (part.share - part.fitted) / np.sqrt(np.maximum(1 - leverage, TINY))
    order, n = np.argsort(sample.members), len(sample.nonmembers)
    sums = np.concatenate([np.zeros((1, 2)), np.cumsum(per_win[order], axis=0)])
    ranks = [
        np.searchsorted(sample.members[order], sample.nonmembers, side)
        for side in ("left", "right")
    ]
    wins = sums[-1] - (sums[ranks[0]] + sums[ranks[1]]) / 2
    return residuals[:, None] * per_win, (wins - wins.mean(axis=0)) / (n * (n - 1)) ** 0.5


def _level_and_slope_shifts(drawn: Resample, members: Scores, nonmembers: Scores) -> Scores:
    """Returns by how much each draw shifts the level and the slope (D×2)."""
    sides = (drawn.members, members), (drawn.nonmembers, nonmembers)
    moved: Scores = sum(counts @ side - side.sum(axis=0) for counts, side in sides)
    return moved


def _student_factor(
    variances: Sequence[float], freedoms: Sequence[float], confidence: float
) -> float:
    """Student's quantile, at Satterthwaite's degrees of freedom, over the normal one."""
    from scipy.special import stdtrit

    parts = sum(v**2 / freedom for v, freedom in zip(variances, freedoms, strict=True))
    tail = (1 + confidence) / 2
    freedom = sum(variances) ** 2 / parts if parts else np.inf
    return float(stdtrit(freedom, tail)) / NormalDist().inv_cdf(tail) if parts else 1.0


def _curves_at_zero(fit: _Fit, levels: Scores, slope: Scores) -> Curves:
    """Returns curves by their log-odds at log2(dose) = 0: the fit, then its D shifts (D×S, D)."""
    slopes = fit.slope + np.r_[0.0, slope]
    centres = np.array([part.centre for part in fit.parts])
    at_centre = np.array([part.level for part in fit.parts]) + np.vstack([0 * centres, levels])
    return Curves(at_centre - slopes[:, None] * centres, slopes)
