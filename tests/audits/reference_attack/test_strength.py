"""Means over cells: their errors by hand, and how sums, ratios and d′ carry them."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from contamination.audits.reference_attack.strength import (
    MeanOverCells,
    d_prime,
    limit_of_models,
    mean_auroc,
    mean_over_examples,
    ratio,
)


def mean_of(value, cells, influence):
    return MeanOverCells(value, np.array(cells, float), np.array(influence, float))


@pytest.mark.parametrize(
    ("cells", "influence", "variance"),
    [  # by cells (two of the three have any, hence 2 / 1), plus by examples, less both
        ([0.3, -0.1, 0], [[0.2, -0.1], [0.2, 0], [0, 0]], 0.2 + 0.17 - 0.09),
        ([0.3, -0.1, 0], [[0.2, 0], [-0.2, 0], [0, 0]], 0.2),  # at least that by cells
        ([0.1, -0.1, 0], [[0.2, 0], [0.2, 0], [0, 0.1]], 0.17),  # at least that by examples
        ([0, 0, 0], [[0.2, 0.1], [-0.1, 0.1], [0, 0]], 0.01 + 0.04),
        ([0.3, 0, 0], [[0, 0], [0, 0], [0, 0]], 0.09),
    ],
)
def test_the_variance_is_clustered_by_cells_and_by_examples(cells, influence, variance):
    mean = mean_of(0.5, cells, influence)
    assert mean.error == pytest.approx(variance**0.5)
    margin = 1.6448536 * variance**0.5
    assert mean.interval(0.9) == pytest.approx((0.5 - margin, 0.5 + margin), abs=1e-6)


@pytest.mark.parametrize(
    ("cells", "influence", "freedom"),
    [
        # V = 0.28; 0.04 × 3 / 2 = 0.15 by cells and 0.17 by two examples
        ([0.3, -0.1, 0], [[0.2, -0.1], [0.2, 0], [0, 0]], 0.28**2 / (0.15**2 / 2 + 0.17**2)),
        # V = 0.1616: 0.08 × 3 / 2 = 0.12 by cells, 0.0072 by four examples
        ([0.2, -0.2, 0], [[0.04, 0.02, 0, 0], [0, 0, 0.04, -0.02], [0, 0, 0, -0.04]],
         0.1616**2 / (0.12**2 / 2 + 0.0072**2 / 3)),
        ([0.3], [[0.3, 0.1]], 1),  # never less than 1
        ([0, 0], [[0, 0], [0, 0]], 1),
    ],
)  # fmt: skip
def test_few_cells_have_the_interval_of_student(cells, influence, freedom):
    mean = mean_of(0.5, cells, influence)
    margin = student.ppf(0.95, max(freedom, 1)) * mean.error
    assert mean.student_interval(0.9) == pytest.approx((0.5 - margin, 0.5 + margin))


def test_sums_and_multiples_are_linear_in_all_parts():
    minuend, subtrahend = (
        mean_of(0.5, [0.1, -0.1], [[1, 2], [3, 4]]),
        mean_of(0.2, [0.2, 0], [[1, 0], [0, 1]]),
    )
    difference = minuend - subtrahend * 3
    assert difference.value == pytest.approx(-0.1)
    assert difference.cells == pytest.approx([-0.5, -0.1])
    assert difference.influence == pytest.approx(np.array([[-2, 2], [3, 1]]))


def test_the_influence_of_a_score_is_its_placement():
    """Two cells; in the first two benchmarks have members and non-members, in the other one."""
    scores = np.array([[3.0, 1, 2, 0, 5, 4], [1.0, 2, 3, 4, 5, 6]])
    inside = np.array([[1, 0, 0, 0, 1, 0], [1, 0, 1, 0, 1, 1]], bool)
    benchmarks = np.array([*"aaaabb"])
    auroc = mean_auroc(scores, inside, ~inside, benchmarks)
    # in the second cell members 1 and 3 win one pair of four against 2 and 4
    assert auroc.value == pytest.approx((1 + 0.25) / 2)
    assert auroc.cells == pytest.approx([0.375 / 2, -0.375 / 2])
    first_cell, second_cell = [0.0] * 6, np.array([-0.25, 0.25, 0.25, -0.25, 0, 0])
    assert auroc.influence == pytest.approx(np.array([first_cell, second_cell / 2 / 2]))
    auroc = mean_auroc(scores[:1] * [1, 4, 1, 1, 1, 1], inside[:1], ~inside[:1], benchmarks)
    # member 3 beats 2 and 0, but not 4: two thirds in benchmark a, and one half of the cell is b
    assert auroc.value == pytest.approx((2 / 3 + 1) / 2)
    thirds = np.array([[0, -2 / 3, 1 / 3, 1 / 3, 0, 0]])
    assert auroc.influence == pytest.approx(thirds / 3 / 2)


def test_a_mean_over_examples_is_one_over_benchmarks_then_cells():
    values = np.array([[1.0, 3, 5, 7], [2.0, 4, 6, 8], [9.0, 9, 9, 9]])
    chosen = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
    mean = mean_over_examples(values, chosen, np.array([*"aabb"]))
    assert mean.value == pytest.approx((3.5 + 3) / 2)
    assert mean.cells == pytest.approx([0.125, -0.125, 0])
    expected = [[-0.125, 0.125, 0, 0], [-0.25, 0.25, 0, 0], [0, 0, 0, 0]]
    assert mean.influence == pytest.approx(np.array(expected))
    assert mean_over_examples(values, ~(chosen | ~chosen), np.array([*"aabb"])) is None


def test_the_error_of_a_ratio_is_that_of_the_delta_method():
    numerator, denominator = (
        mean_of(0.6, [0.1, -0.1], [[1, 0], [0, 1]]),
        mean_of(2, [0.2, 0], [[0, 1], [1, 0]]),
    )
    quotient = ratio(numerator, denominator)
    assert quotient.value == pytest.approx(0.3)
    assert quotient.cells == pytest.approx([0.02, -0.05])
    assert quotient.influence == pytest.approx(np.array([[0.5, -0.15], [-0.15, 0.5]]))


@pytest.mark.parametrize("auroc", [0.3, 0.5, 0.9])
def test_d_prime_has_the_error_of_its_slope(auroc):
    mean = d_prime(mean_of(auroc, [0.01, -0.01], [[0.01, 0], [0, 0.02]]))
    step = 1e-6
    above, below = (np.sqrt(2) * norm.ppf(auroc + sign * step) for sign in (1, -1))
    assert mean.value == pytest.approx((above + below) / 2, abs=1e-6)
    slope = (above - below) / 2 / step
    assert mean.cells == pytest.approx(slope * np.array([0.01, -0.01]), rel=1e-4)
    expected = slope * np.array([[0.01, 0], [0, 0.02]])
    assert mean.influence == pytest.approx(expected, rel=1e-4)


def test_d_prime_is_finite_where_all_or_no_pairs_are_won():
    values = [d_prime(mean_of(auroc, [0.0], [[0.0]])).value for auroc in (0, 1)]
    assert values == pytest.approx([-6.7223, 6.7223], abs=1e-4)


def test_the_limit_is_by_least_squares_through_the_three_largest_numbers():
    numbers, d_primes = [4, 8, 16, 32], np.array([5.0, 0.5, 0.9, 0.8])
    cells = np.eye(4)[:, :4] * 0.01
    aurocs = [
        MeanOverCells(float(norm.cdf(d / np.sqrt(2))), of_cells, of_cells[:, None])
        for d, of_cells in zip(d_primes, cells, strict=True)
    ]
    limit = limit_of_models(numbers, aurocs)
    line = np.polyfit(1 / np.array(numbers[1:]), d_primes[1:], 1)
    assert limit.value == pytest.approx(line[1])
    weights = [np.polyfit(1 / np.array(numbers[1:]), unit, 1)[1] for unit in np.eye(3)]
    slopes = np.sqrt(2) / norm.pdf(d_primes[1:] / np.sqrt(2))
    expected = [0, *(0.01 * np.array(weights) * slopes)]
    assert limit.cells == pytest.approx(expected)
    assert limit.influence[:, 0] == pytest.approx(expected)
