"""Comparisons between methods: p-values and their corrections."""

from __future__ import annotations

import numpy as np
import pytest

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.paired import (
    COLUMNS,
    Differences,
    comparison_rows,
    max_t_p_values,
    pairwise_p_values,
)
from contamination.analysis.statistics.results_table import Measure
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.core.statistics.estimates import Estimate
from contamination.core.statistics.significance import holm_correction


def differences(values: list[float], spread: float = 1.0, draws: int = 999) -> Differences:
    rng = np.random.default_rng(0)
    value = np.array(values)
    return Differences(value, value[:, None] + rng.normal(0, spread, (len(value), draws)))


def test_p_values_are_those_of_the_normal_and_never_zero():
    found = pairwise_p_values(differences([0.0, 1.96, -1.96, 50.0]))
    assert found[0] == 1
    assert found[1:3] == pytest.approx([0.05, 0.05], abs=0.02)
    assert found[3] == 1 / 1000


def test_methods_that_always_agree_differ_by_nothing():
    same = Differences(np.zeros(1), np.zeros((1, 99)))
    assert pairwise_p_values(same).tolist() == max_t_p_values(same).tolist() == [1.0]


def test_differences_that_never_vary_disturb_no_others():
    """One that is always there, and one that the examples don't have, whatever its draws."""
    noisy = differences([1.5], draws=99)
    value = np.r_[0.3, 0.0, noisy.value]
    found = Differences(value, np.vstack([np.full(99, 0.3), np.full(99, 0.1), noisy.draws]))
    alone = max_t_p_values(noisy)[0]
    assert 0.05 < alone < 0.3
    assert max_t_p_values(found).tolist() == [0.01, 1, alone]


def test_holm_by_hand():
    assert holm_correction(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx(
        [0.03, 0.06, 0.06]
    )
    assert holm_correction(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]


def test_max_t_corrects_independent_pairs_and_spares_copies():
    """Ten independent pairs cost about a factor of ten, ten copies of one pair nothing."""
    apart = differences([2.5, *[0.0] * 9])
    assert max_t_p_values(apart)[0] == pytest.approx(1 - (1 - 0.0124) ** 10, abs=0.03)
    one = differences([2.5])
    copies = Differences(np.repeat(one.value, 10), np.repeat(one.draws, 10, axis=0))
    assert max_t_p_values(copies).tolist() == pairwise_p_values(copies).tolist()


def stepped_down(found: Differences, monotone: bool = True) -> list[float]:
    """Romano and Wolf 2005, pair by pair: against the largest of the pairs that are left."""
    spread = [np.std(row) for row in found.draws]
    observed = [abs(v) / s for v, s in zip(found.value, spread, strict=True)]
    left = sorted(range(len(observed)), key=lambda i: -observed[i])
    adjusted, last = [0.0] * len(left), 0.0
    while left:
        first = left[0]
        count = 0
        for d in range(found.draws.shape[1]):
            largest = max(abs(found.draws[i][d] - found.value[i]) / spread[i] for i in left)
            count += largest >= observed[first]
        p_value = (1 + count) / (1 + found.draws.shape[1])
        last = max(last, p_value) if monotone else p_value
        adjusted[first] = last
        left.pop(0)
    return adjusted


def test_max_t_steps_down_and_never_turns_back():
    """The first pair's draws have long tails, so its own p-value is above the second's."""
    rng = np.random.default_rng(5)
    draws = np.stack([rng.standard_t(3, 400), *rng.normal(size=(3, 400))])
    value = np.array([3.3 * draws[0].std(), 3.2, -2.1, 0.4])
    found = Differences(value, draws + value[:, None])
    expected = stepped_down(found)
    assert max_t_p_values(found).tolist() == pytest.approx(expected)
    assert expected != stepped_down(found, monotone=False)  # the order of p-values had to be kept
    single = 1 + (np.abs(draws / draws.std(axis=1)[:, None]).max(axis=0) >= 2.1).sum()
    assert expected[2] < single / 401  # against those left alone, not against all


def test_every_two_methods_are_compared_over_all_members_of_a_benchmark():
    """By each method's default variant, on the contaminated model, in the methods' usual order."""
    draws = np.random.default_rng(0).normal(0.6, 0.05, (3, 50))
    of = [Estimate(9, 9, value, own) for value, own in zip((0.7, 0.6, 0.9), draws, strict=True)]
    lacks = Estimate(9, 9, np.nan, draws[0], needs="≥ 100 non-members")
    first = Measure("contaminated", "min_k", "k=0.2", "any", "auroc")
    other, blind = first._replace(method="zlib", variant=""), first._replace(method="blind")
    rest = {"checkpoint": "clean", "occurrences": "4", "variant": "k=0.1"}
    pooled = {
        first: {"a": of[0], "b": of[0], "c": of[0], "d": of[0]},
        **{first._replace(**{name: value}): {"b": of[2]} for name, value in rest.items()},
        blind._replace(variant=""): {"b": of[2]},
        other: {"e": of[1], "b": of[1], "c": lacks, "d": of[2]},
        other._replace(metric="tpr"): {"b": of[1]},
    }
    defaults = {"zlib": "", "min_k": "k=0.2", "blind": ""}
    rows = list(comparison_rows("trial", pooled, defaults, 0.9))
    for row, benchmark, k in zip(rows, "bd", (1, 2), strict=True):
        low, high = np.quantile(draws[k] - draws[0], [0.05, 0.95])
        expected = ["trial", benchmark, "zlib", "min_k", "auroc", of[k].value - 0.7, low, high]
        assert list(row.values())[:8] == pytest.approx(expected)
        assert row["p_holm"] == row["p_value"] == row["p_max_t"]


def test_the_table_finds_the_simulated_order(make):
    found = compute_statistics("trial", 0, [make(a_dose=20)], AnalysisConfig(draws=200)).comparisons
    assert tuple(found.columns) == COLUMNS
    assert not found.isna().any().any()
    rows = found.query("benchmark == 'all' and metric == 'auroc'")
    assert len(rows) == 3
    row = rows.query("method_a == 'loss' and method_b == 'min_k_plus_plus'").iloc[0]
    assert row["difference"] < 0
    assert row["ci_high"] < 0
    assert row["p_value"] <= row["p_max_t"] < 0.05
    assert (rows["p_value"] <= rows["p_holm"]).all()
