"""AUROC and its error from placements, against naive double loops."""

import numpy as np

from contamination.core.statistics.placements import auroc_with_error, placements


def naive_placement(value: float, others: list[float]) -> float:
    return sum((value > o) + 0.5 * (value == o) for o in others) / len(others)


def test_placements_equal_a_double_loop_with_ties():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.integers(0, 6, 9).astype(float), rng.integers(0, 6, 7).astype(float)
    below, above = placements(members, nonmembers)
    assert below.tolist() == [naive_placement(m, [*nonmembers]) for m in members]
    expected = [1 - naive_placement(n, [*members]) for n in nonmembers]
    np.testing.assert_allclose(above, expected)


def test_the_error_is_that_of_delong():
    members, nonmembers = np.array([0.3, 1.2, 2.5]), np.array([0.1, 0.9, 1.1, 2.0])
    v10 = [naive_placement(m, [*nonmembers]) for m in members]
    v01 = [1 - naive_placement(n, [*members]) for n in nonmembers]
    variance = np.var(v10, ddof=1) / 3 + np.var(v01, ddof=1) / 4
    auroc, error = auroc_with_error(members, nonmembers)
    np.testing.assert_allclose([auroc, error], [np.mean(v10), np.sqrt(variance)])


def test_the_error_is_the_spread_of_simulated_aurocs():
    rng = np.random.default_rng(1)
    pairs = [auroc_with_error(rng.normal(0.8, 1, 60), rng.normal(0, 1, 90)) for _ in range(400)]
    aurocs, errors = np.array(pairs).T
    assert abs(errors.mean() / aurocs.std() - 1) < 0.12
