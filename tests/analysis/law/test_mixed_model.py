import numpy as np

from contamination.analysis.law.mixed_model import (
    Group,
    MixedModelEquations,
    fit_mixed_model,
    number_levels,
)


def simulate(rows: int = 60, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(rows), rng.normal(size=rows)])
    levels = rng.integers(0, 6, rows)
    factor = rng.normal(1, 0.2, rows)
    w = rng.uniform(0.05, 0.2, rows)
    blocks = np.arange(rows) // 3
    shared = rng.normal(size=rows)[blocks]
    noise = np.sqrt(0.6) * shared + np.sqrt(0.4) * rng.normal(size=rows)
    y = x @ [1.0, -0.5] + rng.normal(0, 0.5, 6)[levels] * factor + np.sqrt(w) * noise
    return y, x, levels, factor, w, blocks


def dense_variance(levels, factor, w, blocks, theta, scale, share):
    """V of the definition, element by element."""
    n = len(w)
    v = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if levels[i] == levels[j]:
                v[i, j] += theta * factor[i] * factor[j]
            if blocks[i] == blocks[j]:
                v[i, j] += scale * np.sqrt(w[i] * w[j]) * (1.0 if i == j else share)
    return v


def test_the_restricted_likelihood_and_the_solution_are_those_of_the_dense_definition():
    y, x, levels, factor, w, blocks = simulate()
    z = np.zeros((len(y), 6))
    z[np.arange(len(y)), levels] = factor
    equations = MixedModelEquations(y, x, z, w, blocks)
    offsets = []
    for theta, scale, share in [(0.3, 1.0, 0.5), (0.05, 2.0, 0.0), (1.0, 0.5, 0.9)]:
        v = dense_variance(levels, factor, w, blocks, theta, scale, share)
        inverse = np.linalg.inv(v)
        information = x.T @ inverse @ x
        beta = np.linalg.solve(information, x.T @ inverse @ y)
        residual = y - x @ beta
        likelihood = -0.5 * (
            np.linalg.slogdet(v)[1]
            + np.linalg.slogdet(information)[1]
            + residual @ inverse @ residual
        )
        mine = equations.restricted_log_likelihood(np.full(6, theta), scale, share)
        offsets.append(mine - likelihood)
        solution, covariance = equations.solve(np.full(6, theta), scale, share)
        np.testing.assert_allclose(solution[:2], beta, rtol=1e-7)
        np.testing.assert_allclose(solution[2:], theta * z.T @ inverse @ residual, atol=1e-8)
        np.testing.assert_allclose(covariance[:2, :2], np.linalg.inv(information), rtol=1e-6)
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-6)


def test_variances_and_coefficients_are_recovered():
    found = []
    for seed in range(12):
        y, x, levels, factor, w, blocks = simulate(300, seed)
        groups = {"group": Group(levels, 6, factor)}
        fit = fit_mixed_model(y, x, groups, w, blocks)
        found.append([fit.coefficients[1], fit.error_scale, fit.error_share])
    np.testing.assert_allclose(np.mean(found, axis=0), [-0.5, 1.0, 0.6], atol=0.05)


def test_levels_are_numbered_in_order_of_appearance():
    levels, names = number_levels([["b", "a", "b"], [1, 1, 2]])
    assert levels.tolist() == [0, 1, 2]
    assert names == [("b", "1"), ("a", "1"), ("b", "2")]
