"""A linear mixed model by restricted maximum likelihood (REML), for a few hundred rows.

    y = X β + Σ_g Z_g u_g + e,   u_g ~ N(0, θ_g I),   e ~ N(0, φ R),
    R = (1 − ρ) diag(w) + ρ √w √w' within a block of rows, 0 between blocks

Each group g has one effect per level, times a known number per row (1 for an intercept, log n for a
slope). w are the error variances up to the factor φ; the rows of a block, such as all methods on
the same examples, share a part ρ of their errors. θ, φ and ρ maximise the restricted likelihood
(Patterson and Thompson 1971). β, u and the covariance of their errors are the solution of
Henderson's mixed model equations (1975), whose matrix

    M = [[X'V⁻¹X, X'V⁻¹Z], [Z'V⁻¹X, Z'V⁻¹Z + G⁻¹]],  V = φ R,

is inverted whole, since there are at most a few hundred effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Levels = NDArray[np.intp]
LEAST_VARIANCE = 1e-8
"""A smaller variance of effects is as good as 0."""
LEAST_SCALE, MOST_SCALE = 0.01, 20.0
"""Of φ."""
MOST_SHARE = 0.99
"""Of ρ."""


@dataclass(frozen=True)
class Group:
    """The effects of one group.

    Attributes:
        levels: the level of each row, numbered from 0: shape (rows,).
        number: the number of levels.
        factor: the known number of each row that its effect is multiplied by: shape (rows,).
    """

    levels: Levels
    number: int
    factor: Floats


@dataclass(frozen=True)
class MixedFit:
    """A fitted model.

    Attributes:
        coefficients: β, shape (p,).
        effects: group → its effects, shape (levels,).
        variances: group → θ_g.
        error_scale: φ.
        error_share: ρ.
        covariance: of the errors of β and of all effects, in the order of the groups:
            (p + q, p + q).
        log_likelihood: the restricted one, without its constant.
    """

    coefficients: Floats
    effects: Mapping[str, Floats]
    variances: Mapping[str, float]
    error_scale: float
    error_share: float
    covariance: Floats
    log_likelihood: float


def fit_mixed_model(
    y: Floats,
    x: Floats,
    groups: Mapping[str, Group],
    error_variance: Floats,
    blocks: Levels,
    start: MixedFit | None = None,
) -> MixedFit:
    """Fits the model.

    Args:
        y: the responses, shape (rows,).
        x: the design, shape (rows, p), of full rank.
        groups: the groups of effects, by name.
        error_variance: w, shape (rows,), above 0.
        blocks: the block of each row, numbered from 0: shape (rows,).
        start: an earlier fit of the same groups, from whose variances the search starts.
    """
    from scipy.optimize import minimize

    z = np.concatenate([_indicators(g) for g in groups.values()], axis=1)
    sizes = [g.number for g in groups.values()]
    equations = MixedModelEquations(y, x, z, error_variance, blocks)
    scale = max(LEAST_VARIANCE, float(np.average((y - y.mean()) ** 2, weights=1 / error_variance)))
    bounds = [(float(np.log(LEAST_VARIANCE)), float(np.log(100 * scale + 100)))] * len(sizes)
    bounds += [(float(np.log(LEAST_SCALE)), float(np.log(MOST_SCALE))), (0.0, MOST_SHARE)]

    def objective(parameters: Floats) -> float:
        theta = np.repeat(np.exp(parameters[:-2]), sizes)
        errors = float(np.exp(parameters[-2])), float(parameters[-1])
        return -2 * equations.restricted_log_likelihood(theta, *errors)

    starts = [[float(np.log(scale * share))] * len(sizes) + [0.0, 0.5] for share in (0.1, 0.01)]
    if start is not None:
        logs = np.log([*(start.variances[name] for name in groups), start.error_scale])
        starts = [[*logs.tolist(), start.error_share]]
    fits = [
        minimize(objective, np.clip(s, *np.transpose(bounds)), method="L-BFGS-B", bounds=bounds)
        for s in starts
    ]
    best = min(fits, key=lambda fit: float(fit.fun))
    *theta, error_scale = np.exp(best.x[:-1]).tolist()
    error_share = float(best.x[-1])
    solution, covariance = equations.solve(np.repeat(theta, sizes), error_scale, error_share)
    p = x.shape[1]
    ends = p + np.cumsum([0, *sizes])
    effects = {name: solution[a:b] for name, a, b in zip(groups, ends[:-1], ends[1:], strict=True)}
    variances = dict(zip(groups, theta, strict=True))
    likelihood = -float(best.fun) / 2
    return MixedFit(
        solution[:p], effects, variances, error_scale, error_share, covariance, likelihood
    )


class MixedModelEquations:
    """Henderson's equations: the sums that do not depend on the variances are made once.

    In a block of m rows divided by √w, (φ R)⁻¹ = (I − ρ / (1 − ρ + m ρ) 11') / (φ (1 − ρ)).
    """

    def __init__(self, y: Floats, x: Floats, z: Floats, w: Floats, blocks: Levels) -> None:
        whitened = np.concatenate([x, z, y[:, None]], axis=1) / np.sqrt(w)[:, None]
        self.rows, self.fixed = x.shape
        self.log_errors = float(np.log(w).sum())
        self.products = whitened.T @ whitened
        sums = np.zeros((int(blocks.max()) + 1, whitened.shape[1]))
        np.add.at(sums, blocks, whitened)
        sizes = np.bincount(blocks)
        self.of_sums = {
            int(m): (int((sizes == m).sum()), sums[sizes == m].T @ sums[sizes == m])
            for m in np.unique(sizes)
        }

    def restricted_log_likelihood(self, theta: Floats, scale: float, share: float) -> float:
        """Returns the restricted log-likelihood, without its constant.

        With the matrix M of the equations and its right side b, log|y's variance| + log|X'(y's
        variance)⁻¹X| = log|M| + log|φ R| + log|G| and y'Py = y'(φ R)⁻¹y − b'M⁻¹b (Harville 1977,
        section 5).

        Args:
            theta: the variance of each effect, shape (q,).
            scale: φ.
            share: ρ.
        """
        matrix, right, total = self._equations(theta, scale, share)
        triangle = np.linalg.cholesky(matrix)
        half = np.linalg.solve(triangle, right)
        log_determinants = (
            2 * float(np.log(np.diag(triangle)).sum())
            + self.log_errors
            + self.rows * float(np.log(scale))
            + float(np.log(theta).sum())
        )
        for m, (number, _) in self.of_sums.items():
            of_block = (m - 1) * np.log(1 - share) + np.log(1 - share + m * share)
            log_determinants += number * float(of_block)
        return float(-0.5 * (log_determinants + total - float(half @ half)))

    def solve(self, theta: Floats, scale: float, share: float) -> tuple[Floats, Floats]:
        """Returns β and all effects, and the covariance of their errors."""
        matrix, right, _ = self._equations(theta, scale, share)
        covariance: Floats = np.asarray(np.linalg.inv(matrix), np.float64)
        solution: Floats = covariance @ right
        return solution, covariance

    def _equations(self, theta: Floats, scale: float, share: float) -> tuple[Floats, Floats, float]:
        """Returns M, b and y'(φ R)⁻¹y."""
        products = self.products.copy()
        for m, (_, of_sums) in self.of_sums.items():
            products -= share / (1 - share + m * share) * of_sums
        products /= scale * (1 - share)
        matrix, right = products[:-1, :-1], products[:-1, -1]
        effects = np.arange(self.fixed, len(matrix))
        matrix[effects, effects] += 1 / theta
        return matrix, right, float(products[-1, -1])


def _indicators(group: Group) -> Floats:
    indicators = np.zeros((len(group.levels), group.number))
    indicators[np.arange(len(group.levels)), group.levels] = group.factor
    return indicators


def number_levels(columns: Sequence[Sequence[object]]) -> tuple[Levels, list[tuple[str, ...]]]:
    """Returns each row's level, numbered in order of appearance, and the levels' names.

    Args:
        columns: one or more columns of equal length; a level is a combination of their values.
    """
    names: dict[tuple[str, ...], int] = {}
    rows = zip(*columns, strict=True)
    levels = [names.setdefault(tuple(map(str, row)), len(names)) for row in rows]
    return np.array(levels, np.intp), [*names]
