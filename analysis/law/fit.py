"""Fits the law to measured shifts: coefficients, effects of methods and benchmarks, variances.

The model is log-linear with normal errors on the shifts themselves,

    δ̂ = exp(η) + e,  η = log A + α log n + β log lr + γ log N − φ log(1 + T/T₀) + effects,

so that a measured shift may be negative. It is fitted by penalised quasi-likelihood (Breslow and
Clayton 1993): δ̂ is linearised around the current fit μ, and the mixed model for the working
response η + (δ̂ − μ) / μ with error variance (error / μ)² is fitted again, until it stays. All
methods score the same examples, so the errors of their rows share a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.law.detectability import log_design, member_variance
from contamination.analysis.law.mixed_model import (
    Group,
    MixedFit,
    fit_mixed_model,
    number_levels,
)
from contamination.core.errors import ConfigError

Floats = NDArray[np.float64]
FACTORS = {
    "occurrences": "α (copies)",
    "learning_rate": "β (learning rate)",
    "parameters": "γ (parameters)",
    "recency": "−φ (1 + tokens since the last copy / T₀)",
}
"""The factors of the law, by column."""
BETWEEN_CELLS = ("learning_rate", "parameters")
"""The factors of which a cell has one value."""
INTERCEPT = "intercept"
METHOD, SLOPE, BENCHMARK, BOTH = "method", "method: copies", "benchmark", "benchmark × method"
CELL, CELL_BENCHMARK = "cell", "cell × benchmark"
EXAMPLES = ("cell", "benchmark", "occurrences", "recency")
"""The columns of rows that are of the same examples."""
KEPT = (METHOD, SLOPE, BENCHMARK, BOTH)
"""The groups whose effects a prediction reads; a new cell draws the others anew."""
STEPS, TOLERANCE, LARGEST_STEP = 60, 1e-4, 1.5
FEWEST_CELLS = 4
MOST_GROWTH = 1.5
"""Of the members' variance, per standard deviation of shift."""
AT_BOUND = 1e-3
"""A κ this close to ±`MOST_GROWTH` ended at the bound."""


@dataclass(frozen=True)
class Law:
    """A fitted law, as it is stored in fit.json; all that a prediction reads.

    Attributes:
        factors: the factors that varied, in the order of the coefficients: column → the smallest
            value, the largest and the centre (geometric mean).
        constant: the other factors: column → their value in all cells (null: unknown).
        names: of the parameters: "intercept", the factors, then "group|level" for each effect.
        values: of the parameters.
        covariance: of their errors, (names × names).
        variances: group → the variance of its effects on log δ.
        errors: the variance of the measured shifts' errors relative to what was expected of it.
        freedom: the degrees of freedom of the intervals: the cells less one and less the factors of
            which a cell has one value.
        growth: method → κ, how the members' variance grows (`detectability.member_variance`).
        within: method → σ²_within of a method, mean over benchmarks.
        recency_tokens: T₀.
        cells: the number of cells (pairs of swapped cells count as one).
        rows: the number of measured shifts.
    """

    factors: dict[str, list[float]]
    constant: dict[str, float | None]
    names: list[str]
    values: list[float]
    covariance: list[list[float]]
    variances: dict[str, float]
    errors: float
    freedom: int
    growth: dict[str, float]
    within: dict[str, float]
    recency_tokens: float
    cells: int
    rows: int

    @property
    def methods(self) -> list[str]:
        """The methods of the fit."""
        return self._levels(METHOD)

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks of the fit."""
        return self._levels(BENCHMARK)

    def _levels(self, group: str) -> list[str]:
        start = f"{group}|"
        return [name.removeprefix(start) for name in self.names if name.startswith(start)]

    def coefficients(self) -> dict[str, tuple[float, float]]:
        """Returns each coefficient and its standard error, by name."""
        errors = np.sqrt(np.diag(self.covariance))
        fixed = 1 + len(self.factors)
        pairs = zip(self.names[:fixed], self.values, errors.tolist(), strict=False)
        return {name: (value, error) for name, value, error in pairs}


def fit_law(
    rows: pd.DataFrame,
    within: Mapping[str, float],
    recency_tokens: float,
    factors: Sequence[str] = tuple(FACTORS),
) -> Law:
    """Fits the law to rows of `measurements.measure_cells`.

    Args:
        rows: the measured shifts.
        within: method → σ²_within.
        recency_tokens: T₀ of the column `recency`.
        factors: the columns that may explain the shift; those that do not vary are left out.

    Raises:
        ConfigError: there are too few cells, factors that vary only together, a shift without a
            finite error above 0, or a cell, method or benchmark whose mean shift is not above 0.
    """
    _check_shifts(rows)
    _check_mean_shifts(rows)
    varied = _varying_factors(rows, factors)
    cells = rows["cell"].nunique()
    needed = max(FEWEST_CELLS, 2 + sum(name in BETWEEN_CELLS for name in varied))
    if cells < needed:
        raise ConfigError(
            f"reports: they have {cells} cells to fit (a pair of swapped cells counts as one), and "
            f"a law of {', '.join(varied) or 'no factor'} needs at least {needed}. Give more "
            "reports, or hold out fewer cells."
        )
    centres = {name: float(np.exp(np.log(rows[name].astype(float)).mean())) for name in varied}
    x = np.column_stack([np.ones(len(rows)), log_design(rows, centres)])
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise ConfigError(
            f"reports: of {', '.join(varied)} some vary only together, so their effects can't be "
            "told apart. Give reports that vary each of them while the others stay, or fewer "
            "factors=[…]."
        )
    fit, groups = _fit_shifts(rows, x, centres)
    stored_groups = [name for name in KEPT if name in groups]
    p = x.shape[1]
    names = [INTERCEPT, *varied]
    names += [f"{group}|{'|'.join(level)}" for group in stored_groups for level in groups[group][1]]
    starts = p + np.cumsum([0, *(group.number for group, _ in groups.values())])
    start_of = dict(zip(groups, starts.tolist(), strict=False))
    positions = [*range(p)]
    for name in stored_groups:
        positions += range(start_of[name], start_of[name] + groups[name][0].number)
    values = np.concatenate([fit.coefficients, *(fit.effects[name] for name in stored_groups)])
    shifts = np.exp(_linear_predictor(fit, x, {n: g for n, (g, _) in groups.items()}))
    constant = {n: _constant_value(rows, n) for n in FACTORS if n not in varied}
    return Law(
        factors={
            n: [float(rows[n].min()), float(rows[n].max()), centre] for n, centre in centres.items()
        },
        constant=constant,
        names=names,
        values=values.tolist(),
        covariance=fit.covariance[np.ix_(positions, positions)].tolist(),
        variances=dict(fit.variances),
        errors=fit.error_scale,
        freedom=max(1, cells - 1 - sum(name in BETWEEN_CELLS for name in varied)),
        growth=_variance_growth(rows, shifts),
        within=dict(within),
        recency_tokens=recency_tokens,
        cells=cells,
        rows=len(rows),
    )


def _check_shifts(rows: pd.DataFrame) -> None:
    """Raises a ConfigError if a shift can't be weighed, as where all members are above."""
    shifts, errors = (rows[name].to_numpy(np.float64) for name in ("shift", "shift_error"))
    unusable = rows[~(np.isfinite(shifts) & np.isfinite(errors) & (errors > 0))]
    for row in unusable.head(1).to_dict("records"):
        raise ConfigError(
            f"reports: {len(unusable)} of {len(rows)} shifts can't be fitted. That of "
            f"{row['method']} on {row['benchmark']} at {row['occurrences']} copies in "
            f"{row['cell']} is {row['shift']:.3g} with the standard error "
            f"{row['shift_error']:.3g}: all members are above all non-members, or all scores are "
            f"equal. Hold them out (held_out=[{{occurrences: {row['occurrences']}}}]), or give "
            "swapped cells."
        )


def _check_mean_shifts(rows: pd.DataFrame) -> None:
    """Raises a ConfigError if the mean shift of a level is not above 0.

    Single shifts may be negative, but the effect of a level on log δ would be −∞. The level is not
    left out silently: which levels are left out would depend on the outcome, so the user decides.
    """
    for column in ("cell", "method", "benchmark"):
        means = rows.groupby(column, sort=True)["shift"].mean()
        lows = means[means <= 0]
        if len(lows):
            named = ", ".join(f"{column} {name} ({mean:.3g})" for name, mean in lows.items())
            names = ", ".join(f"'{name}'" for name in lows.index)
            raise ConfigError(
                f"reports: the mean shift is not above 0 for {named}, and the law describes log δ. "
                f"Hold them out (held_out=[{{{column}: [{names}]}}]): they are then predicted and "
                "not fitted, and what the law says holds only where copies shift the scores up."
            )


def _varying_factors(rows: pd.DataFrame, factors: Sequence[str]) -> list[str]:
    varied = []
    for name in factors:
        values = rows[name].astype(float)
        if values.isna().any() and values.notna().any():
            raise ConfigError(
                f"reports: {name} is unknown in some cells and known in others. Give reports that "
                f"all have it, or leave it out of factors=[…]."
            )
        if values.notna().all() and np.ptp(np.log(values)) > 1e-9:
            varied.append(name)
    return varied


def _constant_value(rows: pd.DataFrame, name: str) -> float | None:
    values = rows[name].astype(float).dropna().unique()
    return float(values[0]) if len(values) == 1 else None


def _fit_shifts(
    rows: pd.DataFrame, x: Floats, centres: Mapping[str, float]
) -> tuple[MixedFit, dict[str, tuple[Group, list[tuple[str, ...]]]]]:
    """Returns the fit, and each group with the names of its levels."""
    measured, errors = (rows[c].to_numpy(np.float64) for c in ("shift", "shift_error"))
    eta = np.log(np.maximum(measured, errors))
    eta = x @ np.linalg.lstsq(x, eta, rcond=None)[0]
    groups = _groups(rows, centres)
    only_groups = {name: group for name, (group, _) in groups.items()}
    blocks, _ = number_levels([rows[key].tolist() for key in EXAMPLES])
    fit: MixedFit | None = None
    for _ in range(STEPS):
        mu = np.exp(np.clip(eta, -6, 3))
        response = np.log(mu) + np.clip((measured - mu) / mu, -10, 10)
        fit = fit_mixed_model(response, x, only_groups, (errors / mu) ** 2, blocks, fit)
        fitted = _linear_predictor(fit, x, only_groups)
        change = np.clip(fitted - eta, -LARGEST_STEP, LARGEST_STEP)
        eta = eta + change
        if np.abs(change).max() < TOLERANCE:
            return fit, groups
    raise ConfigError(
        "reports: the fit of the law does not settle, because the shifts are too uncertain. Give "
        "reports with more members, more copies or swapped cells, or fewer factors=[…]."
    )


def _groups(
    rows: pd.DataFrame, centres: Mapping[str, float]
) -> dict[str, tuple[Group, list[tuple[str, ...]]]]:
    """Returns the groups that the rows can tell apart."""
    ones = np.ones(len(rows))
    if "occurrences" in centres:
        copies = log_design(rows, {"occurrences": centres["occurrences"]})[:, 0]
    columns: dict[str, tuple[list[str], Floats]] = {
        METHOD: (["method"], ones),
        BENCHMARK: (["benchmark"], ones),
        BOTH: (["benchmark", "method"], ones),
        CELL: (["cell"], ones),
        CELL_BENCHMARK: (["cell", "benchmark"], ones),
    }
    if "occurrences" in centres and rows["method"].nunique() > 1:
        columns[SLOPE] = (["method"], copies)
    if min(rows["method"].nunique(), rows["benchmark"].nunique()) < 2:
        del columns[BOTH]
    if rows["benchmark"].nunique() < 2:
        del columns[CELL_BENCHMARK]
    groups = {}
    for name, (keys, factor) in columns.items():
        levels, names = number_levels([rows[key].tolist() for key in keys])
        groups[name] = Group(levels, len(names), factor), names
    return groups


def _linear_predictor(fit: MixedFit, x: Floats, groups: Mapping[str, Group]) -> Floats:
    """Returns η of each row."""
    eta = x @ fit.coefficients
    for name, group in groups.items():
        eta = eta + fit.effects[name][group.levels] * group.factor
    predictor: Floats = eta
    return predictor


def _variance_growth(rows: pd.DataFrame, shifts: Floats) -> dict[str, float]:
    """Returns κ of each method, by the likelihood of sample variances (scaled χ²)."""
    from scipy.optimize import minimize_scalar

    growth = {}
    for method, of_method in rows.assign(fitted=shifts).groupby("method", sort=True):
        of_method = of_method[of_method["member_variance"].notna()]
        if not len(of_method):  # stored tables do not have it: the non-members' variance is taken
            growth[str(method)] = 0.0
            continue
        freedom = np.maximum(1, of_method["n_members"].to_numpy(float) - 2)
        variance = of_method["member_variance"].to_numpy(float)
        fitted = of_method["fitted"].to_numpy(float)

        def deviance(kappa: float, f: Any = fitted, v: Any = variance, d: Any = freedom) -> float:
            mu = member_variance(f, kappa)
            return float((d * (v / mu + np.log(mu))).sum())

        best = minimize_scalar(deviance, bounds=(-MOST_GROWTH, MOST_GROWTH), method="bounded")
        growth[str(method)] = float(best.x)
    return growth


def unidentified_growth(growth: Mapping[str, float]) -> list[str]:
    """Returns the methods whose κ ended at a bound of the fit, so that the data do not give it."""
    return [m for m, kappa in growth.items() if abs(kappa) > MOST_GROWTH - AT_BOUND]
