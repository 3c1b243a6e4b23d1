"""Values with draws, their mean and their spread."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import harmonic_mean

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from contamination.analysis.statistics.seed_pooling import Replicates, pooled_estimate
from contamination.core.statistics.bootstrap import Resample, draw_resample, rank_scores
from contamination.core.statistics.estimates import (
    Estimate,
    confidence_interval,
    confidence_intervals,
    estimate_metrics,
    joint_intervals,
    jointly_valid_confidence,
    mean_estimate,
    mean_over_benchmarks,
    mean_trials,
    needs_by_benchmark_text,
)
from contamination.core.statistics.metrics import (
    AUROC,
    chosen_metrics,
    fpr_at_tpr,
    metric_title,
    tpr_at_fpr,
)


def test_metrics_are_named_after_their_rates():
    names = [metric.name for metric in chosen_metrics([0.001, 0.05], [0.95])]
    assert names == ["auroc", "tpr_at_fpr_0.001", "tpr_at_fpr_0.05", "fpr_at_tpr_0.95"]
    titles = ["AUROC", "TPR at FPR ≤ 0.001", "TPR at FPR ≤ 0.05", "FPR at TPR ≥ 0.95"]
    assert [*map(metric_title, names)] == titles
    assert metric_title("someone_elses") == "someone_elses"


@pytest.mark.parametrize("which", range(5))
def test_a_guess_reaches_the_metrics_guess_and_a_shift_its_better_side(which):
    metric = chosen_metrics([0.05, 0.3], [0.95, 0.6])[which]
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=400), rng.normal(size=400)) for _ in range(100)]
    random = np.mean([metric.value(*pair) for pair in pairs])
    shifted = np.mean([metric.value(members + 0.5, others) for members, others in pairs])
    assert random == pytest.approx(metric.guess, abs=0.01)
    assert (shifted > random + 0.05) == metric.higher_is_better
    assert (shifted < random - 0.05) != metric.higher_is_better


def test_each_metric_keeps_its_own_rate():
    members, nonmembers = np.arange(25.0, 125.0), np.arange(100.0)
    wanted = chosen_metrics([0.05, 0.5], [0.95])
    found = estimate_metrics(members, nonmembers, draw_resample(100, 100, 50, 0), wanted)
    assert found["tpr_at_fpr_0.05"].value < found["tpr_at_fpr_0.5"].value
    rates = [found[metric.name] for metric in wanted[1:]]
    assert [rate.steps for rate in rates] == [(rate.value, rate.value) for rate in rates]
    assert found["tpr_at_fpr_0.05"].draws.mean() < found["tpr_at_fpr_0.5"].draws.mean()


def test_the_value_on_the_examples_themselves_is_a_draw_of_one_each():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(1, 1, 15).round(1), rng.normal(0, 1, 12).round(1)
    once = Resample(np.ones((1, 15), np.float32), np.ones((1, 12), np.float32))
    assert AUROC.draws(rank_scores(members, nonmembers, once)).tolist() == [
        AUROC.value(members, nonmembers)
    ]


def test_the_mean_averages_draws_and_adds_sizes():
    one = Estimate(3, 4, 0.5, np.array([0.4, 0.6]))
    other = Estimate(5, 6, 0.7, np.array([0.8, 0.6]))
    both = mean_estimate([one, other])
    assert (both.n_members, both.n_nonmembers) == (8, 10)
    assert both.value == pytest.approx(0.6)
    assert both.draws.tolist() == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize(
    ("kind", "rate", "sizes", "needs"),
    [
        (tpr_at_fpr, 0.05, (1, 100), ""),
        (tpr_at_fpr, 0.05, (999, 99), "≥ 100 non-members"),
        (tpr_at_fpr, 0.01, (999, 499), "≥ 500 non-members"),
        (tpr_at_fpr, 0.001, (999, 4999), "≥ 5,000 non-members"),
        (tpr_at_fpr, 0.3, (999, 16), "≥ 17 non-members"),
        (fpr_at_tpr, 0.95, (100, 1), ""),
        (fpr_at_tpr, 0.95, (99, 999), "≥ 100 members"),
        (fpr_at_tpr, 0.9, (50, 1), ""),
    ],
)
def test_a_rate_needs_five_expected_false_alarms(kind, rate, sizes, needs):
    assert kind(rate).needs(*sizes) == needs


def test_the_most_trials_that_an_estimate_is_as_certain_as():
    auroc, tpr, fpr = chosen_metrics([0.05], [0.95])
    assert auroc.trials(30, 20) == pytest.approx(4 * harmonic_mean([30, 20]))
    assert (tpr.trials(30, 20), fpr.trials(30, 20)) == (30, 20)
    known, unknown = Estimate(9, 9, 0.5, np.zeros(2), trials=7.0), Estimate(9, 9, 0.5, np.zeros(2))
    assert mean_estimate([known, known]).trials == pytest.approx(14)
    assert mean_estimate([known, unknown]).trials is None
    assert (
        estimate_metrics(
            np.arange(9.0), np.arange(9.0), draw_resample(9, 9, 5, 0), [replace(auroc, trials=None)]
        )["auroc"].trials
        is None
    )


def test_a_small_benchmark_makes_the_mean_less_certain():
    """The mean of rates of 100 and of 20 tosses varies as a rate of 66.7 does, not of 120."""
    parts = [Estimate(9, 9, 0.75, np.zeros(2), trials=n) for n in (100.0, 20.0)]
    tosses = mean_estimate(parts).trials
    variances = [0.75 * 0.25 / part.trials for part in parts]
    assert 0.75 * 0.25 / tosses == pytest.approx(sum(variances) / 4)
    assert mean_trials([100.0, 20.0], [2, 1]) == pytest.approx(9 / (4 / 100 + 1 / 20))
    assert mean_trials([100.0, None]) is None
    assert mean_trials([100.0, 100.0], overlap=np.ones((2, 2))) == pytest.approx(100)


def test_the_interval_of_a_mean_over_benchmarks_of_100_and_of_2_members_includes_the_truth():
    """Two members often score alike; with the sum of the trials 28% of the intervals missed."""
    rng, missed = np.random.default_rng(5), 0
    for plan in range(120):
        parts = []
        for members, nonmembers in ((100, 100), (2, 20)):
            scores = rng.normal(2**0.5 * norm.ppf(0.75), 1, members), rng.normal(size=nonmembers)
            drawn = draw_resample(members, nonmembers, 60, plan)
            parts.append(estimate_metrics(*scores, drawn, [AUROC])["auroc"])
        low, high = confidence_interval(mean_estimate(parts), 0.95)
        missed += not low <= 0.75 <= high
    assert missed <= binom.ppf(0.999, 120, 0.05)


def aurocs_of(rng, number, common, truth=0.75, size=40, draws=200):
    """The AUROCs of so many methods that share this part of their variance."""
    shared, own = rng.normal(size=2 * size), rng.normal(size=(number, 2 * size))
    scores = common**0.5 * shared + (1 - common) ** 0.5 * own
    scores[:, :size] += 2**0.5 * norm.ppf(truth)
    drawn = draw_resample(size, size, draws, int(rng.integers(1 << 30)))
    return [estimate_metrics(line[:size], line[size:], drawn, [AUROC])["auroc"] for line in scores]


@pytest.mark.parametrize(("number", "common"), [(2, 0.0), (6, 0.0), (6, 0.9)])
def test_the_interval_of_the_best_of_several_methods_does_not_lie_above_the_truth(number, common):
    """Its own lies above in 5%, 13% and 5% of 200; wanted are 2.5%."""
    rng, above = np.random.default_rng(0), 0
    for _ in range(200):
        found = aurocs_of(rng, number, common)
        winner = int(np.argmax([each.value for each in found]))
        above += joint_intervals(found, 0.95)[0][winner] > 0.75
    assert above <= binom.ppf(0.999, 200, 0.025)


def test_few_nonmembers_do_not_put_the_best_methods_interval_above_the_truth():
    """With the normal quantile the lower end lay above the truth in 15 to 20% of such choices."""
    rng, above = np.random.default_rng(3), 0
    for plan in range(100):
        scores = rng.normal(size=(18, 210))
        scores[:, :200] += 2**0.5 * norm.ppf(0.75)
        drawn = draw_resample(200, 10, 200, plan)
        found = [
            estimate_metrics(line[:200], line[200:], drawn, [AUROC])["auroc"] for line in scores
        ]
        winner = int(np.argmax([each.value for each in found]))
        above += joint_intervals(found, 0.95)[0][winner] > 0.75
    assert above <= binom.ppf(0.999, 100, 0.025)


def test_a_benchmark_of_few_nonmembers_does_not_put_the_best_methods_mean_above_the_truth():
    """With the quantile of 208 non-members the lower end lay above in 18% of such choices."""
    rng, above = np.random.default_rng(4), 0
    for plan in range(60):
        parts = []
        for nonmembers in (200, 8):
            scores = rng.normal(size=(12, 200 + nonmembers))
            scores[:, :200] += 2**0.5 * norm.ppf(0.75)
            drawn = draw_resample(200, nonmembers, 200, plan)
            parts.append(
                [estimate_metrics(m[:200], m[200:], drawn, [AUROC])["auroc"] for m in scores]
            )
        means = [mean_estimate(of_method) for of_method in zip(*parts, strict=True)]
        winner = int(np.argmax([each.value for each in means]))
        above += joint_intervals(means, 0.95)[0][winner] > 0.75
    assert above <= binom.ppf(0.999, 60, 0.025)


def test_the_smallest_side_is_that_of_any_benchmark_and_seed():
    sizes = [(9, 40), (30, 7), (8, 8)]
    parts = [Estimate(*pair, 0.5, np.zeros(2)) for pair in sizes]
    assert [part.smallest_side for part in parts] == [9, 7, 8]
    both = [mean_estimate(parts[:2]), mean_estimate(parts[2:])]
    assert [part.smallest_side for part in both] == [7, 8]
    pooled = pooled_estimate(both, Replicates.independent(2), 0)
    assert mean_estimate(both).smallest_side == pooled.smallest_side == 7


def test_methods_that_move_together_need_less_correction_and_one_needs_none():
    rng = np.random.default_rng(1)
    apart, together = (
        jointly_valid_confidence(aurocs_of(rng, 6, c, draws=1000), 0.95) for c in (0, 0.95)
    )
    assert 0.95 < together < apart <= 1 - 0.05 / 6
    (one, *_) = aurocs_of(rng, 1, 0.0)
    assert jointly_valid_confidence([one], 0.95) == 0.95
    assert jointly_valid_confidence([one, one], 0.95) == pytest.approx(0.95, abs=0.01)
    low, high = joint_intervals([one], 0.95)
    assert (low[0], high[0]) == confidence_interval(one, 0.95)


def test_what_does_not_vary_or_is_not_carried_needs_no_correction():
    (one,) = aurocs_of(np.random.default_rng(2), 1, 0.0)
    perfect = replace(one, value=1.0, draws=np.ones_like(one.draws))
    missing = replace(one, value=np.nan, draws=one.draws * np.nan, needs="members")
    assert jointly_valid_confidence([one, perfect, missing], 0.95) == 0.95
    assert jointly_valid_confidence([missing], 0.95) == 0.95
    low, _ = joint_intervals([one, perfect, missing], 0.95)
    assert (low[0], np.isnan(low[2])) == (confidence_interval(one, 0.95)[0], True)


@pytest.mark.parametrize(
    ("members", "nonmembers"), [(1, 1), (2, 2), (3, 3), (1, 9), (2, 6), (1, 60)]
)
def test_an_area_of_few_is_no_surer_than_their_orders(members, nonmembers):
    """Of all orders, which are alike where nothing tells the sides apart."""
    n, held = members + nonmembers, []
    for places in combinations(range(n), members):
        ranks = np.arange(float(n))
        sides = ranks[list(places)], np.delete(ranks, places)
        drawn = draw_resample(members, nonmembers, 60, 0)
        low, high = confidence_interval(estimate_metrics(*sides, drawn, [AUROC])["auroc"], 0.95)
        held.append(low <= 0.5 <= high)
    assert np.mean(held) >= 0.9


def test_a_rate_that_is_not_carried_is_no_number():
    rng = np.random.default_rng(0)
    scores = rng.normal(1, 1, 100), rng.normal(size=99)
    found = estimate_metrics(*scores, draw_resample(100, 99, 50, 0), [tpr_at_fpr(0.05)])[
        "tpr_at_fpr_0.05"
    ]
    assert found.needs == "≥ 100 non-members"
    assert np.isnan([found.value, *found.draws, *confidence_interval(found, 0.95)]).all()


def of_benchmark(nonmembers, rate=0.05):
    rng = np.random.default_rng(nonmembers)
    scores = rng.normal(1, 1, 60), rng.normal(size=nonmembers)
    (found,) = estimate_metrics(
        *scores, draw_resample(60, nonmembers, 50, 0), [tpr_at_fpr(rate)]
    ).values()
    return found


def test_a_mean_is_over_benchmarks_that_all_carry_the_rate_and_names_those_that_do_not():
    sizes = {"boolq": 100, "imdb": 64, "news": 120}
    each = {name: of_benchmark(size) for name, size in sizes.items()}
    whole = mean_over_benchmarks(each)
    assert np.isnan([whole.value, *whole.draws]).all()
    assert whole.needs == "≥ 100 non-members in imdb"
    carried = {name: found for name, found in each.items() if name != "imdb"}
    assert mean_over_benchmarks(carried).value == pytest.approx(
        np.mean([e.value for e in carried.values()])
    )
    assert not mean_over_benchmarks(carried).needs
    none = {name: of_benchmark(size, 0.01) for name, size in sizes.items()}
    assert mean_over_benchmarks(none).needs == "≥ 500 non-members per benchmark"


def test_what_each_benchmark_lacks_is_told_apart():
    assert AUROC.needs(0, 0) == "non-members and members"
    assert tpr_at_fpr(0.05).needs(0, 99) == "≥ 100 non-members and members"
    lacks = {"a": AUROC.needs(1, 0), "b": "", "c": AUROC.needs(0, 1), "d": AUROC.needs(1, 0)}
    assert needs_by_benchmark_text(lacks) == "non-members in a, d; members in c"
    assert needs_by_benchmark_text({"a": "", "b": ""}) == ""


def test_the_interval_of_auroc_is_the_roots_of_wilsons_equation():
    """(value − p)² = z²·p(1 − p) / tosses, as many tosses as vary like the draws, or `trials`."""
    rng = np.random.default_rng(2)
    scale = {0.7: (0.1, 99.0), 0.6: (0.01, 50.0), 0.9: (0.0, 12.0), 1.0: (0.0, 30.0)}
    given = [
        Estimate(9, 9, value, value + spread * rng.normal(size=40), trials)
        for value, (spread, trials) in scale.items()
    ]
    rounded = 1 - np.arange(40) % 2 * 2.0**-53  # 1 as sums of weighted pairs give it
    given.append(Estimate(9, 9, 1.0, rounded, 30.0))
    for found, low, high in zip(given, *confidence_intervals(given, 0.9), strict=True):
        spread = found.value * (1 - found.value)
        varied = np.mean((found.draws - np.mean(found.draws)) ** 2)
        tosses = min(spread / varied if varied > 1e-20 else np.inf, found.trials)
        share = 1.6448536269514722**2 / tosses
        ends = np.roots([1 + share, -2 * found.value - share, found.value**2])
        assert [low, high] == pytest.approx(sorted(ends), abs=1e-7)


def test_the_interval_of_a_rate_holds_its_moved_percentiles_and_jeffreys():
    rng = np.random.default_rng(3)
    given = [
        Estimate(9, 9, value, value + wide * (rng.exponential(size=80) - 0.7), trials, steps)
        for value, wide, trials, steps in [
            (0.5, 0.2, 500.0, (0.5, 0.5)),
            (0.4, 0.001, 40.0, (0.3, 0.6)),
            (0.1, 0.3, 60.0, (0.05, 0.1)),
            (0.9, 0.2, 30.0, (0.8, 0.9)),
            (0.0, 0.0, 20.0, (0.0, 0.0)),
            (1.0, 0.0, 20.0, (1.0, 1.0)),
        ]
    ]
    for found, low, high in zip(given, *confidence_intervals(given, 0.9), strict=True):
        move = np.mean(found.draws) - np.median(found.draws)
        percentiles = [np.percentile(found.draws, at) + move for at in (5, 95)]
        least, most = found.steps
        of_least = beta(found.trials * least + 0.5, found.trials * (1 - least) + 0.5)
        of_most = beta(found.trials * most + 0.5, found.trials * (1 - most) + 0.5)
        assert low == pytest.approx(max(0, min(percentiles[0], of_least.ppf(0.05), least)))
        assert high == pytest.approx(min(1, max(percentiles[1], of_most.ppf(0.95), most)))


def test_intervals_of_unknown_trials_are_percentiles_and_those_of_no_number_are_none():
    draws = np.random.default_rng(4).normal(size=50)
    bare = Estimate(9, 9, 0.5, draws)
    lacks = Estimate(9, 9, np.nan, np.full(50, np.nan), 7.0, needs="members")
    low, high = confidence_intervals([bare, lacks], 0.8)
    assert [low[0], high[0]] == pytest.approx(np.percentile(draws, [10, 90]))
    assert np.isnan([low[1], high[1]]).all()


def test_the_interval_of_an_auroc_of_0_or_1_stays_within():
    for trials in range(1, 300):
        both = [Estimate(9, 9, value, np.full(5, value), trials) for value in (0.0, 1.0)]
        low, high = confidence_intervals(both, 0.95)
        assert low.min() >= 0
        assert high.max() <= 1


def test_the_interval_of_tied_scores_reaches_jeffreys_beyond_both_steps():
    rng = np.random.default_rng(8)
    drawn = draw_resample(60, 100, 100, 0)
    (metric,), found = [tpr_at_fpr(0.05)], []
    for _ in range(3):
        scores = rng.normal(1, 1, 60).round(), rng.normal(size=100).round()
        found.append(estimate_metrics(*scores, drawn, [metric])[metric.name])
    whole = mean_estimate(found)
    least, most = np.mean([each.steps for each in found], axis=0)
    assert whole.steps == pytest.approx((least, most))
    low, high = confidence_interval(whole, 0.95)
    assert low <= beta.ppf(0.025, 180 * least + 0.5, 180 * (1 - least) + 0.5) < least
    assert high >= beta.ppf(0.975, 180 * most + 0.5, 180 * (1 - most) + 0.5) > most
    assert most - least > 0.1


def test_a_mean_with_a_benchmark_that_has_no_number_has_no_steps():
    lacks, whole = of_benchmark(64), of_benchmark(100)
    assert (mean_estimate([whole, lacks]).steps, mean_estimate([whole, lacks]).needs) == (
        None,
        lacks.needs,
    )
    assert mean_estimate([whole, whole]).needs == ""


def test_an_interval_holds_its_value():
    rng = np.random.default_rng(0)
    for repetition in range(60):
        scores = rng.normal(0, 1, 25), rng.normal(size=100).round(1)
        drawn = draw_resample(25, 100, 100, repetition)
        for found in estimate_metrics(*scores, drawn, chosen_metrics([0.05], [0.5])).values():
            low, high = confidence_interval(found, 0.95)
            assert low <= found.value <= high
