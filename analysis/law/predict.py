"""Predictions of a fitted law: shifts and AUROCs of settings, with intervals.

A prediction draws the law's parameters from their joint distribution (a multivariate t with the
fit's degrees of freedom), the effects of a new cell, and those of a method or benchmark that the
fit has not seen, from theirs. Its interval is the draws' quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.analysis.law.detectability import (
    auroc_of_shift,
    calibrated_variance,
    member_variance,
    tpr_of_shift,
)
from contamination.analysis.law.fit import (
    BENCHMARK,
    BOTH,
    CELL,
    CELL_BENCHMARK,
    FACTORS,
    INTERCEPT,
    METHOD,
    SLOPE,
    Law,
)
from contamination.core.errors import ConfigError, near_names

Floats = NDArray[np.float64]
NEW = "new"
"""The name of a method or a benchmark that the fit has not seen."""
DRAWS = 4000
LOW_FPR = 0.01
"""The false-positive rate of `Prediction.tpr`."""
SAME = 1e-6


@dataclass(frozen=True)
class Prediction:
    """The predicted cell of one method, mean over benchmarks.

    Attributes:
        shifts: draws of δ, (draws, benchmarks).
        aurocs: draws of the AUROC, mean over benchmarks, (draws,).
        strong: draws of the strong attack's AUROC, (draws,); NaN without σ_within.
        shift: the point prediction of δ, mean over benchmarks.
        auroc: the point prediction of the AUROC.
        tpr: that of the true-positive rate at a false-positive rate of `LOW_FPR`.
        outside: the factors whose value is outside the fit's range.
    """

    shifts: Floats
    aurocs: Floats
    strong: Floats
    shift: float
    auroc: float
    tpr: float
    outside: tuple[str, ...]

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the interval of the cell's true AUROC."""
        return _interval(self.aurocs, confidence)

    def measured_interval(self, error: float, confidence: float, seed: int) -> tuple[float, float]:
        """Returns the interval of an AUROC that is measured with this standard error."""
        noise = np.random.default_rng(seed).normal(0, error, len(self.aurocs))
        return _interval(np.clip(self.aurocs + noise, 0, 1), confidence)


def _interval(draws: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def predict(
    law: Law,
    settings: Mapping[str, float],
    method: str,
    benchmarks: Sequence[str] | None = None,
    *,
    seed: int = 0,
    draws: int = DRAWS,
) -> Prediction:
    """Predicts a cell.

    Args:
        law: the fitted law.
        settings: the value of each factor that varied in the fit.
        method: a method of the fit, or `NEW`.
        benchmarks: benchmarks of the fit, or `NEW`; None: all of the fit.
        seed: of the draws.
        draws: their number.

    Raises:
        ConfigError: a factor is missing, is not in the law, did not vary in the fit and has another
            value than there, or is not positive; the fit has no such method or benchmark.
    """
    names = law.benchmarks if benchmarks is None else list(benchmarks)
    _check(law, settings, method, names)
    rng = np.random.default_rng(seed)
    designs = np.stack([_design(law, settings, method, name) for name in names])
    new_variance = [_new_variance(law, settings, method, name) for name in names]
    mean = designs @ np.array(law.values)
    root = _root(np.array(law.covariance))
    scale = np.sqrt(law.freedom / rng.chisquare(law.freedom, (draws, 1)))
    eta = mean + scale * (rng.normal(size=(draws, len(root))) @ root.T @ designs.T)
    deviations = {name: np.sqrt(variance) for name, variance in law.variances.items()}
    eta = eta + scale * rng.normal(0, deviations.get(CELL, 0.0), (draws, 1))
    eta = eta + scale * rng.normal(0, deviations.get(CELL_BENCHMARK, 0.0), eta.shape)
    eta = eta + rng.normal(size=(draws, 1)) * np.sqrt(new_variance[0][0])
    eta = eta + rng.normal(size=eta.shape) * np.sqrt([v for _, v in new_variance])
    shifts = np.exp(np.clip(eta, -20, 3))
    growth = law.growth.get(method, float(np.mean([*law.growth.values()])))
    point = np.exp(np.clip(mean, -20, 3))
    within = law.within.get(method, np.nan)
    return Prediction(
        shifts,
        auroc_of_shift(shifts, 1.0, member_variance(shifts, growth)).mean(axis=1),
        auroc_of_shift(shifts, *[calibrated_variance(within, np.inf)] * 2).mean(axis=1),
        float(point.mean()),
        float(auroc_of_shift(point, 1.0, member_variance(point, growth)).mean()),
        float(tpr_of_shift(point, LOW_FPR, 1.0, member_variance(point, growth)).mean()),
        outside_range(law, settings),
    )


def outside_range(law: Law, settings: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the factors whose value is outside the fit's range."""
    return tuple(
        name
        for name, (low, high, _) in law.factors.items()
        if not low * (1 - SAME) <= settings[name] <= high * (1 + SAME)
    )


def _check(law: Law, settings: Mapping[str, float], method: str, benchmarks: Sequence[str]) -> None:
    for name in law.factors:
        value = settings.get(name)
        if value is None or not 0 < value < np.inf:
            raise ConfigError(f"{name} is {value!r}: give a number above 0, as the law reads it.")
    for name, value in settings.items():
        fixed = law.constant.get(name)
        if name not in FACTORS:
            raise ConfigError(f"{name}: unknown factor. {near_names(name, FACTORS)}")
        if name not in law.factors and fixed is None:
            raise ConfigError(
                f"{name} is {value:g}: it is not in the law, as it was left out of factors or is "
                "not known in the cells of the fit. Leave it out here, too."
            )
        if name not in law.factors and fixed is not None and abs(value / fixed - 1) > SAME:
            raise ConfigError(
                f"{name} is {value:g}: it was {fixed:g} in all cells of the fit, which says "
                "nothing about other values. Leave it out, or fit the law to reports that vary it."
            )
    for field, name, known in [
        ("method", method, law.methods),
        *(("benchmark", name, law.benchmarks) for name in benchmarks),
    ]:
        if name != NEW and name not in known:
            hint = near_names(name, known)
            raise ConfigError(f"{field} is {name!r}: it is not in the fit ({NEW}: any). {hint}")


def _design(law: Law, settings: Mapping[str, float], method: str, benchmark: str) -> Floats:
    """Returns the number that each parameter is multiplied by: shape (names,)."""
    logs = {name: float(np.log(settings[name] / law.factors[name][2])) for name in law.factors}
    wanted = {
        INTERCEPT: 1.0,
        **logs,
        f"{METHOD}|{method}": 1.0,
        f"{SLOPE}|{method}": logs.get("occurrences", 0.0),
        f"{BENCHMARK}|{benchmark}": 1.0,
        f"{BOTH}|{benchmark}|{method}": 1.0,
    }
    return np.array([wanted.get(name, 0.0) for name in law.names])


def _new_variance(
    law: Law, settings: Mapping[str, float], method: str, benchmark: str
) -> tuple[float, float]:
    """Returns the variance of the effects that the fit has not seen: of all benchmarks, of one."""
    shared = method_variance = 0.0
    if method == NEW:
        logs = (
            np.log(settings["occurrences"] / law.factors["occurrences"][2])
            if ("occurrences" in law.factors)
            else 0.0
        )
        shared += law.variances.get(METHOD, 0.0) + law.variances.get(SLOPE, 0.0) * logs**2
    if benchmark == NEW:
        method_variance += law.variances.get(BENCHMARK, 0.0)
    if NEW in (method, benchmark):
        method_variance += law.variances.get(BOTH, 0.0)
    return float(shared), float(method_variance)


def _root(covariance: Floats) -> Floats:
    """Returns L with L L' = covariance, which may be singular or not quite symmetric."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
