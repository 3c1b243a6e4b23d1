"""The regression of single members on their occurrences: its fit, its bias and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm, t

from contamination.analysis.statistics import dose_response as module
from contamination.analysis.statistics.dose_response import (
    BenchmarkScores,
    dose_response,
    dose_response_of_groups,
    logistic,
    slope_interval,
)
from contamination.analysis.statistics.seed_pooling import Replicates
from contamination.analysis.statistics.trends import mean_response
from contamination.analysis.summary import Direction
from contamination.core.statistics.bootstrap import Resample, draw_resample
from perf.slope_coverage import simulate_report

LADDER = np.array([1.0, 2.0, 4.0, 8.0])


def simulated(rng, doses, level=0.5, slope=0.7, nonmembers=60, draws=60) -> BenchmarkScores:
    """Unit normals whose AUROC at a dose has the log-odds level + slope · log2(dose)."""
    x = np.log2(np.asarray(doses, float))
    members = rng.normal(2**0.5 * norm.ppf(logistic(level + slope * x)))
    others = rng.normal(size=nonmembers)
    return BenchmarkScores(x, members, others, draw_resample(len(x), nonmembers, draws, seed=7))


def placements(sample):
    above = sample.members[:, None] > sample.nonmembers
    return (above + 0.5 * (sample.members[:, None] == sample.nonmembers)).mean(axis=1)


def uncorrected(monkeypatch):
    monkeypatch.setattr(module, "_without_bias", lambda fit, spread: fit)


def test_the_fit_is_the_maximum_of_the_likelihood_over_all_pairs(monkeypatch):
    """Two benchmarks have a level each and one slope; nothing is added to a dose."""
    uncorrected(monkeypatch)
    rng = np.random.default_rng(0)
    samples = [simulated(rng, LADDER[rng.integers(0, 4, 40)], level) for level in (0.0, 1.5)]
    samples[0] = samples[0]._replace(
        members=samples[0].members.round(), nonmembers=samples[0].nonmembers.round()
    )
    found = dose_response(samples, 0.95)

    def lost(line):
        total = 0.0
        for level, sample in zip(line[1:], samples, strict=True):
            p, share = logistic(level + line[0] * sample.log_occurrences), placements(sample)
            total -= (share * np.log(p) + (1 - share) * np.log(1 - p)).sum()
        return total

    best = minimize(lost, [0, 0, 0], tol=1e-10).x
    assert [found.slope.value, *found.levels[0]] == pytest.approx(best, abs=1e-4)
    assert (found.slope.n_members, found.slope.n_nonmembers) == (80, 120)
    assert found.doses == frozenset(LADDER.tolist())


def test_the_interval_is_students_from_the_influence_of_both_sides(monkeypatch):
    """By naive loops: HC2 residuals, wins of every pair, Satterthwaite's degrees of freedom."""
    uncorrected(monkeypatch)
    sample = simulated(np.random.default_rng(1), np.repeat(LADDER, [20, 8, 4, 1]), nonmembers=25)
    found = dose_response([sample], 0.9)
    x, p = sample.log_occurrences, placements(sample)
    mu = logistic(found.levels[0, 0] + found.slope.value * x)
    weight = mu * (1 - mu)
    design = np.stack([np.ones_like(x), x], axis=1)
    inverse = np.linalg.inv(design.T @ (weight[:, None] * design))
    members = nonmembers = 0.0
    for i in range(len(x)):
        leverage = weight[i] * design[i] @ inverse @ design[i]
        members += (inverse @ design[i] * (p[i] - mu[i]))[1] ** 2 / (1 - leverage)
    won = [inverse @ design.T @ ((sample.members > z) - p) for z in sample.nonmembers]
    nonmembers = sum(each[1] ** 2 for each in won) / (25 * 24)
    away = x - np.average(x, weights=weight)
    few = (weight @ away**2) ** 2 / ((weight * away**2) ** 2).sum() - 1
    variance = members + nonmembers
    freedom = variance**2 / (members**2 / few + nonmembers**2 / 24)
    half = t.ppf(0.95, freedom) * variance**0.5
    low, high = slope_interval(found.curves.slope, 0.9)
    assert (low, high) == pytest.approx((found.slope.value - half, found.slope.value + half))


def test_draws_move_with_what_was_drawn():
    """Their correlation with slopes that are fitted to each resample anew is high."""
    rng = np.random.default_rng(2)
    sample = simulated(rng, np.repeat(LADDER, 50), nonmembers=200, draws=40)
    found = dose_response([sample], 0.95)
    anew = []
    for members, others in zip(sample.drawn.members, sample.drawn.nonmembers, strict=True):
        rows = np.repeat(np.arange(200), members.astype(int))
        drawn = BenchmarkScores(
            sample.log_occurrences[rows], sample.members[rows],
            np.repeat(sample.nonmembers, others.astype(int)), sample.drawn,
        )  # fmt: skip
        anew.append(dose_response([drawn], 0.95).slope.value)
    assert np.corrcoef(found.slope.draws, anew)[0, 1] > 0.98
    assert found.slope.draws.std() == pytest.approx(np.std(anew), rel=0.3)


@pytest.mark.parametrize(
    ("doses", "members", "needs"),
    [
        ([2] * 30, "overlap", "members of one benchmark that differ in their occurrences"),
        ([1] * 30 + [2] * 4, "overlap", "more occurrences than the mean (there are"),
        ([1] * 15 + [4] * 15, "apart", "at least 5 members that score between the lowest and the"),
        ([1] * 15 + [4] * 15, "rare dose apart", "and 0)"),
    ],
)
def test_too_few_data_have_no_slope_and_say_what_they_need(doses, members, needs):
    sample = simulated(np.random.default_rng(3), doses, 0.5, 0.0)
    if members != "overlap":
        far = sample.log_occurrences > (1 if members == "rare dose apart" else -1)
        sample = sample._replace(members=np.where(far, 99.0, sample.members))
    found = dose_response([sample], 0.95)
    assert needs in found.slope.needs
    assert np.isnan(found.slope.value)
    assert np.isnan(found.slope.draws).all()


def test_only_benchmarks_that_the_slope_is_fitted_to_count():
    """Not one whose members all score above the non-members, nor one with a single dose."""
    rng = np.random.default_rng(15)
    lopsided = simulated(rng, [1] * 30 + [2] * 3)
    far = simulated(rng, np.repeat(LADDER, 10))
    far = far._replace(members=far.members + 99)
    assert "(there are" in dose_response([lopsided, far], 0.95).slope.needs
    near_one = simulated(rng, np.repeat(LADDER, 10))
    near_one = near_one._replace(members=np.r_[0.0, np.full(38, 99.0), 0.0])
    single = simulated(rng, [2] * 60)
    assert "(there are 1 and 1)" in dose_response([near_one, single], 0.95).slope.needs


def test_a_rare_dose_near_an_auroc_of_one_has_no_slope():
    """Of 8 members that almost all score above 99% of 400 others: the interval held too little."""
    rng = np.random.default_rng(16)
    sample = simulated(rng, [1] * 392 + [8] * 8, level=3.0, slope=0.4, nonmembers=400, draws=2)
    assert "more occurrences than the mean" in dose_response([sample], 0.95).slope.needs


def test_benchmarks_that_are_too_small_alone_have_a_slope_together():
    rng = np.random.default_rng(4)
    samples = [simulated(rng, [1] * 12 + [2] * 3, level) for level in (0.0, 0.5, 1.0)]
    assert all(dose_response([sample], 0.95).slope.needs for sample in samples)
    assert not dose_response(samples, 0.95).slope.needs


def test_a_benchmark_without_overlap_says_nothing_of_the_slope():
    """Its level is infinite, and its AUROC is 1 (or 0) at every dose."""
    rng = np.random.default_rng(14)
    sample, far = (simulated(rng, np.repeat(LADDER, 10)) for _ in range(2))
    alone = dose_response([sample], 0.95)
    for shift, level in ((99, np.inf), (-99, -np.inf)):
        both = dose_response([sample, far._replace(members=far.members + shift)], 0.95)
        assert both.slope.value == alone.slope.value
        assert (both.levels[:, 1] == level).all()
        at_one = alone.curves.auroc_at(0)[0]
        assert both.curves.auroc_at(0)[0] == pytest.approx((at_one + (shift > 0)) / 2)


def test_equal_scores_have_a_slope_of_zero():
    sample = simulated(np.random.default_rng(5), np.repeat(LADDER, 10))
    tied = sample._replace(members=np.zeros(40), nonmembers=np.zeros(60))
    found = dose_response([tied], 0.95)
    assert (found.slope.value, found.slope.draws.tolist()) == (0, [0] * 60)


def test_a_lone_member_of_a_benchmark_changes_nothing():
    rng = np.random.default_rng(6)
    sample, lone = simulated(rng, np.repeat(LADDER, 10)), simulated(rng, [4.0], 0.3, 0.0)
    both, alone = dose_response([sample, lone], 0.95), dose_response([sample], 0.95)
    assert both.slope.value == pytest.approx(alone.slope.value, abs=0.05)
    assert np.isfinite(both.slope.draws).all()


def test_seeds_are_averaged_and_one_without_a_slope_is_said():
    rng = np.random.default_rng(8)
    seeds = [dose_response([simulated(rng, np.repeat(LADDER, 10))], 0.95) for _ in range(2)]
    two = Replicates.independent(2)
    mean = mean_response(seeds, two, 0)
    assert mean.slope.value == pytest.approx(np.mean([seed.slope.value for seed in seeds]))
    assert mean.levels[0, 0] == pytest.approx(np.mean([seed.levels[0, 0] for seed in seeds]))
    assert mean.slope.draws.std() < seeds[0].slope.draws.std()
    few = dose_response([simulated(rng, [1] * 30 + [2] * 3)], 0.95)
    assert mean_response([seeds[0], few], two, 0).slope.needs == few.slope.needs


def test_levels_of_groups_are_fitted_like_their_members(monkeypatch):
    """A series' AUROCs by level are the means of its members' placements."""
    uncorrected(monkeypatch)
    sample = simulated(np.random.default_rng(9), np.repeat(LADDER, [20, 9, 8, 7]))
    p = placements(sample)
    by_dose = np.array([p[sample.log_occurrences == x].mean() for x in range(4)])
    members = np.array([20.0, 9, 8, 7])
    line = dose_response_of_groups(np.arange(4.0), np.stack([by_dose] * 3), members, 1.0)
    found = dose_response([sample], 0.95)
    assert line is not None
    assert line.slope[0] == pytest.approx(found.slope.value)
    assert line.levels[0, 0] == pytest.approx(found.levels[0, 0])


def test_constant_auroc_does_not_fall_with_poisson_doses():
    """Half an example that was added to every dose made 20% of such reports say "falls"."""
    rng, level = np.random.default_rng(10), float(np.log(0.92 / 0.08))
    counts = [rng.poisson(4, 100).astype(float) for _ in range(120)]
    made = [simulate_report([own[own > 0]], [100], level, 0.0, rng) for own in counts]
    values = np.array([each.slope for each in made])
    error = values.std() / len(values) ** 0.5
    assert abs(values.mean()) < 4 * error < 0.12
    assert sum(each.stated is not Direction.FLAT for each in made) <= 15  # 0.1% at 5%
    held = sum(each.low <= 0 <= each.high for each in made)
    assert held >= 105  # 0.1% at 94%


def test_a_true_slope_is_held_near_an_auroc_of_one():
    """The old intervals held .70 in 71% of such reports."""
    rng = np.random.default_rng(11)
    level = float(np.log(0.92 / 0.08)) - 2 * 0.7
    counts = [rng.poisson(4, 100).astype(float) for _ in range(120)]
    made = [simulate_report([own[own > 0]], [100], level, 0.7, rng) for own in counts]
    values = np.array([each.slope for each in made])
    assert values.mean() == pytest.approx(0.7, abs=4 * values.std() / len(values) ** 0.5)
    assert sum(each.low <= 0.7 <= each.high for each in made) >= 105


def test_the_bias_is_taken_off_the_fit(monkeypatch):
    """Of few members near 1 the likelihood's slope is a tenth too steep on average."""
    rng, level = np.random.default_rng(12), float(np.log(0.92 / 0.08)) - 1.5 * 0.7
    samples = [simulated(rng, np.resize(LADDER, 40), level, 0.7, 40, 2) for _ in range(150)]
    corrected = np.array([dose_response([each], 0.95).slope.value for each in samples])
    uncorrected(monkeypatch)
    plain = np.array([dose_response([each], 0.95).slope.value for each in samples])
    lower = (plain - corrected)[np.isfinite(plain)]
    assert 0.02 < np.median(lower) < 0.12


def test_a_draw_of_every_example_once_is_the_estimate():
    sample = simulated(np.random.default_rng(13), np.repeat(LADDER, 10), nonmembers=40, draws=2)
    others = np.ones((2, 40), np.float32)
    others[1] = np.repeat([2, 0], 20)
    drawn = Resample(np.ones((2, 40), np.float32), others)
    found = dose_response([sample._replace(drawn=drawn)], 0.95).slope
    assert found.draws[0] == pytest.approx(found.value)
    assert found.draws[1] != pytest.approx(found.value)
