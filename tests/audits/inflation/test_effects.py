"""The effects against naive loops, their intervals, and planted leaks."""

import numpy as np
import pytest
from scipy.stats import t

from contamination.audits.inflation.effects import (
    DIRECT,
    EFFECTS,
    SPILLOVER,
    TOTAL,
    Effect,
    SeedResults,
    mean_effect,
    null_effects,
)
from perf.inflation import SCENARIOS, coverage


def random_results(seeds=3, items=12):
    rng = np.random.default_rng(3)
    inserted, left_out, twin = rng.normal(size=(3, seeds, items))
    left_out[0, :4] = np.nan
    return SeedResults(inserted, left_out, twin), np.repeat(["a", "b"], items // 2)


def test_a_naive_loop_gives_the_same_effects():
    results, benchmarks = random_results()
    expected = {
        DIRECT: results.inserted - results.left_out,
        SPILLOVER: results.left_out - results.twin,
        TOTAL: results.inserted - results.twin,
    }
    for name in EFFECTS:
        of_seeds = []
        for row in expected[name]:
            by_benchmark = []
            for benchmark in "ab":
                known = [v for v, b in zip(row, benchmarks, strict=True) if b == benchmark]
                known = [v for v in known if np.isfinite(v)]
                by_benchmark.append(sum(known) / len(known))
            of_seeds.append(sum(by_benchmark) / 2)
        mean = mean_effect(results.effect(name), benchmarks, 0.95)
        assert mean.value == pytest.approx(sum(of_seeds) / 3)
        assert (mean.seeds, mean.items) == (3, 12)


def test_the_direct_effect_and_the_spillover_add_up_to_the_total():
    results, benchmarks = random_results()
    complete = SeedResults(results.inserted, np.nan_to_num(results.left_out), results.twin)
    direct, spillover, total = (
        mean_effect(complete.effect(name), benchmarks, 0.95).value for name in EFFECTS
    )
    assert direct + spillover == pytest.approx(total)


def test_one_seed_has_the_interval_of_a_mean_over_items():
    values = np.random.default_rng(0).normal(size=(1, 30))
    mean = mean_effect(values, np.full(30, "a"), 0.95)
    margin = t.ppf(0.975, 29) * values.std() / np.sqrt(30)
    assert mean.high - mean.value == pytest.approx(margin)
    assert mean.seeds == 1


def test_equal_items_have_the_interval_of_a_mean_over_seeds():
    """Where items agree within a seed, the seeds alone vary."""
    of_seeds = np.array([0.1, 0.4, 0.2, 0.6])
    values = np.repeat(of_seeds[:, None], 50, axis=1)
    mean = mean_effect(values, np.full(50, "a"), 0.9)
    margin = t.ppf(0.95, 3) * of_seeds.std(ddof=1) / 2
    assert mean.value - mean.low == pytest.approx(margin)


def test_what_is_missing_is_left_out_and_nothing_at_all_is_nan():
    values = np.full((2, 4), np.nan)
    none = mean_effect(values, np.array([*"aabb"]), 0.95)
    assert np.isnan([none.value, none.low, none.high]).all()
    assert (none.seeds, none.items) == (0, 0)
    equal = mean_effect(np.zeros((2, 4)), np.array([*"aabb"]), 0.95)
    assert equal.value == 0
    assert np.isnan([equal.low, equal.high]).all()  # equal values say nothing of their spread
    values[0, :2] = 1, 3
    mean = mean_effect(values, np.array([*"aabb"]), 0.95)
    assert (mean.value, mean.seeds, mean.items) == (2, 1, 2)


def test_a_seed_without_one_of_the_benchmarks_is_left_out():
    values = np.array([[1.0, 1, 3, 3], [5, 5, np.nan, np.nan]])
    mean = mean_effect(values, np.array([*"aabb"]), 0.95)
    assert (mean.value, mean.seeds) == (2, 1)


def test_seeds_that_each_lack_another_benchmark_leave_nothing():
    values = np.array([[1.0, 1, np.nan, np.nan], [np.nan, np.nan, 3, 3]])
    mean = mean_effect(values, np.array([*"aabb"]), 0.95)
    assert np.isnan([mean.value, mean.low, mean.high]).all()
    assert (mean.seeds, mean.items) == (0, 0)


@pytest.mark.parametrize(
    ("value", "low", "items", "confidence", "expected"),
    [
        (1.0, 0.1, 2, 0.95, True), (1.0, 0.0, 99, 0.95, False), (1.0, -0.1, 99, 0.95, False),
        (0.5, np.nan, 6, 0.95, True), (0.5, np.nan, 5, 0.95, False), (0.0, np.nan, 99, 0.95, False),
        (-1.0, np.nan, 99, 0.95, False), (0.5, np.nan, 5, 0.9375, True),
    ],
)  # fmt: skip
def test_items_that_all_gain_are_above_zero_by_a_sign_test(value, low, items, confidence, expected):
    """Of 5 and 6 items that all gain, the two-sided p-value is 1/16 and 1/32."""
    assert Effect(value, low, 2.0, 1, items).is_above_zero(confidence) is expected


def test_clean_twins_are_compared_in_disjoint_pairs():
    twins = np.array([[1.0, 2], [4, 8], [16, 32], [64, 128], [0, 0]])
    member = np.array([[True, False]] * 5)
    effects = null_effects(twins, member)
    np.testing.assert_array_equal(effects[DIRECT], [[-3, 6], [-48, 96]])
    np.testing.assert_array_equal(effects[TOTAL], [[-3, np.nan], [-48, np.nan]])
    np.testing.assert_array_equal(effects[SPILLOVER], [[np.nan, -6], [np.nan, -96]])
    assert null_effects(twins[:1], member[:1])[DIRECT].shape == (0, 2)


@pytest.mark.parametrize("name", ["clean against clean", "both leak"])
def test_the_intervals_include_the_truth_as_often_as_they_say(name):
    shares = coverage(SCENARIOS[name], seeds=4, items=60, repetitions=60)
    assert min(shares.values()) > 0.85
