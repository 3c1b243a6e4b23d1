"""The equations of the corrected scores against naive loops."""

import math

import numpy as np
import pytest

from contamination.audits.score.constat import bootstrap_p_value, expected_accuracy
from contamination.audits.score.epg_ipw import epg_ipw_score
from contamination.audits.score.platt import (
    estimate_prevalence,
    fit_platt,
    log_likelihood_ratios,
    membership_probabilities,
)
from contamination.audits.score.weighted_scores import (
    combined_score,
    imputed_score,
    ipw_score,
    naive_score,
)


def draw(seed, n=60):
    rng = np.random.default_rng(seed)
    correct = (rng.random(n) < 0.6).astype(float)
    return correct, rng.random(n), rng.random(n), rng.integers(0, 3, n).astype(float)


def repeated(counts, *columns):
    """Each item as often as it was drawn, as lists."""
    rows = [i for i, count in enumerate(counts) for _ in range(int(count))]
    return [[float(column[i]) for i in rows] for column in columns]


@pytest.mark.parametrize("seed", range(5))
def test_weighted_scores_are_their_sums(seed):
    correct, membership, predicted, counts = draw(seed)
    y, d, c = repeated(counts, correct, membership, predicted)
    n = len(y)
    assert naive_score(correct, counts) == pytest.approx(sum(y) / n)
    expected = sum((1 - d[i]) * y[i] for i in range(n)) / sum(1 - d[i] for i in range(n))
    assert ipw_score(correct, membership, counts) == pytest.approx(expected)
    assert imputed_score(predicted, counts) == pytest.approx(sum(c) / n)
    expected = sum(d[i] * c[i] + (1 - d[i]) * y[i] for i in range(n)) / n
    assert combined_score(correct, membership, predicted, counts) == pytest.approx(expected)


def test_ipw_without_weight_is_not_a_number():
    assert math.isnan(ipw_score(np.ones(3), np.ones(3), np.ones(3)))


def epg_by_loops(y, d):
    n = len(y)
    mean = sum(y) / n
    sigma = math.sqrt(sum((value - mean) ** 2 for value in y) / n)
    best_z, best = 0.0, mean
    for t in np.linspace(max(d), min(d), 200):
        kept = [y[i] for i in range(n) if d[i] <= t]
        if not kept or len(kept) / n < 0.1:
            continue
        z = (mean - sum(kept) / len(kept)) / (sigma / math.sqrt(len(kept)))
        if z > best_z + 1e-12:
            best_z, best = z, sum(kept) / len(kept)
    return best


@pytest.mark.parametrize("seed", range(20))
def test_epg_ipw_is_its_loop(seed):
    correct, membership, _, counts = draw(seed)
    y, d = repeated(counts, correct, membership)
    expected = pytest.approx(epg_by_loops(y, d))
    assert epg_ipw_score(correct, membership, counts) == expected
    far = np.append(membership, [-1_000, 1_000])  # thresholds are of the items that are drawn
    found = epg_ipw_score(np.append(correct, [1, 0]), far, np.append(counts, [0, 0]))
    assert found == expected


def test_epg_ipw_keeps_a_tenth_and_all_if_nothing_is_inflated():
    membership = np.linspace(0, 1, 100)
    correct = np.ones(100)
    correct[:5] = 0  # the 5 lowest alone would be the largest difference
    kept = epg_ipw_score(correct, membership, np.ones(100))
    assert kept == pytest.approx(0.5, abs=0.06)
    falling = (membership < 0.5).astype(float)
    assert epg_ipw_score(falling, membership, np.ones(100)) == pytest.approx(0.5)
    assert epg_ipw_score(np.ones(100), membership, np.ones(100)) == 1


def test_platt_has_the_likelihood_equations_of_its_targets():
    rng = np.random.default_rng(4)
    member = np.arange(40) < 15
    scores, counts = rng.normal(5 + member, 1), rng.integers(1, 4, 40).astype(float)
    intercept, slope = fit_platt(scores, member, counts)
    n_members, n_nonmembers = counts[member].sum(), counts[~member].sum()
    gradient = [0.0, 0.0]
    for s, is_member, count in zip(scores, member, counts, strict=True):
        target = (n_members + 1) / (n_members + 2) if is_member else 1 / (n_nonmembers + 2)
        residual = count * (target - 1 / (1 + math.exp(-(intercept + slope * s))))
        gradient[0] += residual
        gradient[1] += residual * s
    assert gradient == pytest.approx([0, 0], abs=1e-6)


def test_platt_is_finite_for_separated_and_for_equal_scores():
    member = np.arange(10) < 5
    separated = fit_platt(np.where(member, 1.0, -1.0), member, np.ones(10))
    # Of two groups, the fit is exact: σ(a ± b) are the targets 6/7 and 1/7.
    assert separated == pytest.approx((0, math.log(6)), abs=1e-6)
    intercept, slope = fit_platt(np.ones(10), member, np.ones(10))
    ratios = log_likelihood_ratios(np.ones(3), intercept, slope, 5, 5)
    assert ratios == pytest.approx(0, abs=1e-6)


def test_prevalence_is_the_maximum_of_its_likelihood_and_half_without_information():
    rng = np.random.default_rng(5)
    ratios, counts = rng.normal(0, 2, 80), rng.integers(0, 3, 80).astype(float)
    grid = np.linspace(0.001, 0.999, 999)
    logs = [
        sum(c * math.log(p * math.exp(r) + 1 - p) for r, c in zip(ratios, counts, strict=True))
        + math.log(p * (1 - p))
        for p in grid
    ]
    assert estimate_prevalence(ratios, counts) == pytest.approx(grid[np.argmax(logs)], abs=1e-3)
    assert estimate_prevalence(np.zeros(50), np.ones(50)) == pytest.approx(0.5)


def test_a_spiked_sample_with_another_prevalence_gives_the_same_ratios():
    """With r known, d̂ is Bayes's rule, whatever the share of members in the spiked sample."""
    ratios = np.array([-1.0, 0.0, 2.0])
    expected = [0.1 * math.exp(r) / (0.1 * math.exp(r) + 0.9) for r in ratios]
    assert membership_probabilities(ratios, 0.1) == pytest.approx(expected)
    rng = np.random.default_rng(6)
    fitted = []
    for n_members in (4000, 20000):
        member = np.arange(n_members + 10000) < n_members
        scores = rng.normal(1.0 * member, 1)
        a, b = fit_platt(scores, member, np.ones(len(member)))
        fitted.append(log_likelihood_ratios(np.array([0.0, 2.0]), a, b, n_members, 10000))
        assert fitted[-1] == pytest.approx([-0.5, 1.5], abs=0.15)  # s − ½, for two unit normals


def test_the_line_of_constat_is_exact_without_noise_and_parallel_for_one_model():
    x, y = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.1, 0.1, 0.9, 0.9])
    assert expected_accuracy(0.5, x, y, 100) == pytest.approx(0.5)
    assert expected_accuracy(0.25, x, y, 100) == pytest.approx(0.3)
    assert expected_accuracy(0.6, np.array([0.5]), np.array([0.4]), 100) == pytest.approx(0.5)
    assert expected_accuracy(0.05, np.array([0.5]), np.array([0.3]), 100) == 0


def test_the_slope_of_constat_is_its_loop():
    x, y, n = [0.3, 0.5, 0.8], [0.35, 0.5, 0.7], 50
    mean = sum(x) / 3
    gain = [b - a for a, b in zip(x, y, strict=True)]
    top = sum((a - mean) * g for a, g in zip(x, gain, strict=True))
    bottom = sum((a - mean) ** 2 for a in x) + sum(a * (1 - a) / n for a in x)
    expected = 0.6 + sum(gain) / 3 + top / bottom * (0.6 - mean)
    assert expected_accuracy(0.6, np.array(x), np.array(y), n) == pytest.approx(expected)


def test_the_p_value_counts_centred_draws():
    assert bootstrap_p_value(1.0, np.array([1.0, 2.0, 2.5, 0.0])) == pytest.approx(3 / 5)
    assert bootstrap_p_value(9.0, np.array([8.0, 9.0, 10.0])) == pytest.approx(1 / 4)
