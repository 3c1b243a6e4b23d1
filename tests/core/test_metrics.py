"""The metrics against scikit-learn's curve and counting by hand."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from contamination.core.statistics import metrics
from contamination.core.statistics.metrics import AUROC, fpr_at_tpr, tpr_at_fpr


def scores(seed: int, tied: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    members = rng.normal(0.7, 1, rng.integers(1, 40))
    nonmembers = rng.normal(0, 1, rng.integers(1, 40))
    return (members.round(), nonmembers.round()) if tied else (members, nonmembers)


CASES = [scores(seed, tied) for seed in range(40) for tied in (False, True)]


@pytest.mark.parametrize(("members", "nonmembers"), CASES)
def test_auroc_equals_scikit_learn_and_counting_pairs(members, nonmembers):
    labels = np.repeat([1, 0], [len(members), len(nonmembers)])
    pairs = [(m > n) + 0.5 * (m == n) for m in members for n in nonmembers]
    found = AUROC.value(members, nonmembers)
    assert found == pytest.approx(roc_auc_score(labels, np.r_[members, nonmembers]), abs=1e-12)
    assert found == pytest.approx(np.mean(pairs), abs=1e-12)


@pytest.mark.parametrize(("members", "nonmembers"), CASES)
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3, 0.95])
def test_rates_equal_the_best_admissible_point_of_the_roc_curve(members, nonmembers, rate):
    labels = np.repeat([1, 0], [len(members), len(nonmembers)])
    fpr, tpr, _ = roc_curve(labels, np.r_[members, nonmembers], drop_intermediate=False)
    assert tpr_at_fpr(rate).value(members, nonmembers) == tpr[fpr <= rate].max()
    assert fpr_at_tpr(rate).value(members, nonmembers) == fpr[tpr >= rate].min()


def test_tpr_is_the_largest_admissible_one_never_the_nearest():
    nonmembers = np.array([3.0, 2.0, 1.0, 0.0])  # FPR steps of 0.25; 0.25 is nearest to 0.2
    members = np.array([4.0, 2.5, 2.5, 0.5])
    assert tpr_at_fpr(0.2).value(members, nonmembers) == 0.25
    assert tpr_at_fpr(0.25).value(members, nonmembers) == 0.75


def test_a_tie_across_the_bound_is_excluded_whole():
    members, nonmembers = np.array([1.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
    assert tpr_at_fpr(0.25).value(members, nonmembers) == 0
    assert tpr_at_fpr(0.5).value(members, nonmembers) == 1


@pytest.mark.parametrize("tpr", ["0.9", "0.95", "0.99", "0.999", "0.9999", "0.99999"])
def test_the_fewest_examples_are_those_of_exact_arithmetic(tpr):
    """5 / (1 - 0.9999) is 50,000.0000000055 and 5 / (1 - 0.95) is 99.99999999999991."""
    assert metrics.fewest_examples(1 - float(tpr)) == ceil(5 / (1 - Fraction(tpr)))
    assert metrics.fewest_examples(0.0123) == 407  # 406.5


def test_no_rate_is_lost_to_rounding():
    assert metrics.most_false_alarms(100, 0.29) == 29  # 0.29 * 100 is 28.999999999999996
    assert metrics.fewest_hits(100, 0.07) == 7  # 0.07 * 100 is 7.000000000000001
    assert metrics.most_false_alarms(19, 0.05) == 0
    assert tpr_at_fpr(1.0).value(np.array([0.0]), np.array([1.0])) == 1
    assert fpr_at_tpr(0.0).value(np.array([0.0]), np.array([1.0])) == 0


def test_perfect_and_useless_detectors():
    low, high = np.arange(10.0), np.arange(20.0, 30.0)
    assert AUROC.value(high, low) == 1
    assert tpr_at_fpr(0.05).value(high, low) == 1
    assert fpr_at_tpr(0.95).value(high, low) == 0
    assert AUROC.value(np.zeros(5), np.zeros(7)) == 0.5
