"""What forgetting depends on: its rate against learning rate, weight decay and corpus size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from contamination.audits.forgetting.curves import CONFIDENCE, all_members
from contamination.audits.forgetting.inputs import ForgettingCell
from contamination.core.statistics.forgetting_curve import EXPONENTIAL

Floats = NDArray[np.float64]
MILLION = 1e6
FACTORS = {
    "learning_rate": "learning rate after the exposure, doubled",
    "decay_per_million": "Σλη per million tokens, plus 1",
    "corpus_tokens": "tokens trained on by then, doubled",
}
"""The factors, and the change that an effect is about."""
ALIKE = 1e-9
"""Factors that vary by less do not vary."""


@dataclass(frozen=True)
class Regression:
    """A least-squares fit with an intercept for each seed.

    Attributes:
        slopes: one per factor.
        errors: their standard errors.
        freedom: degrees of freedom.
    """

    slopes: Floats
    errors: Floats
    freedom: int


def regress_within_seeds(
    rates: Floats, factors: Floats, seeds: NDArray[np.int64]
) -> Regression | None:
    """Regresses rates on factors, each seed with its own intercept.

    The cells of a seed share their members and the training up to the branch, so a seed is a block.

    Args:
        rates: shape (cells,).
        factors: shape (cells, factors).
        seeds: the seed of each cell, shape (cells,).

    Returns:
        The fit; None if the factors can't be told apart, or there are too few cells.
    """
    intercepts = (seeds[:, None] == np.unique(seeds)).astype(np.float64)
    design = np.hstack([intercepts, factors])
    freedom = len(rates) - design.shape[1]
    scaled = design / np.maximum(np.abs(design).max(axis=0), 1e-300)
    if freedom < 1 or np.linalg.matrix_rank(scaled) < design.shape[1]:
        return None
    solution, *_ = np.linalg.lstsq(design, rates, rcond=None)
    residuals = rates - design @ solution
    covariance = np.linalg.inv(design.T @ design) * float(residuals @ residuals) / freedom
    count = intercepts.shape[1]
    return Regression(solution[count:], np.sqrt(np.diag(covariance))[count:], freedom)


def factor_table(cells: Sequence[ForgettingCell]) -> pd.DataFrame:
    """Returns the factors of each cell: condition, seed, and the columns of `FACTORS`."""
    rows = []
    for cell in cells:
        last = int(cell.last_exposures.max())
        end = cell.steps[-1].step
        tokens = cell.tokens_by_step
        products = cell.learning_rates[last:end] * cell.weight_decays[last:end]
        rows.append({
            "condition": cell.cell.cell.condition,
            "seed": cell.cell.cell.seed,
            "learning_rate": float(np.log2(cell.learning_rates[last:end].mean())),
            "decay_per_million": float(products.sum() / (tokens[end] - tokens[last]) * MILLION),
            "corpus_tokens": float(np.log2(cell.tokens_before + tokens[last])),
        })  # fmt: skip
    return pd.DataFrame(rows)


def effects_table(fits: pd.DataFrame, factors: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Returns the effect of each factor that varies on the exponential rate of forgetting.

    Args:
        fits: `curves.fits_table`.
        factors: `factor_table`.

    Returns:
        A row per method and factor (method, factor, change, effect, effect_low, effect_high, p,
        cells), where a rate is per million tokens, for all members; and why it is empty, if so.
    """
    varying = [n for n in FACTORS if factors[n].notna().all() and np.ptp(factors[n]) > ALIKE]
    if not varying:
        return pd.DataFrame(), ["No factor varies between the cells, so no effect is estimated."]
    rows, problems = [], []
    used = all_members(fits[fits["form"] == EXPONENTIAL])
    for method, of_method in used.groupby("method", sort=False):
        merged = of_method.merge(factors, on=["condition", "seed"])
        fit = regress_within_seeds(
            merged["rate"].to_numpy() * MILLION,
            merged[varying].to_numpy(np.float64),
            merged["seed"].to_numpy(np.int64),
        )
        if fit is None:
            problems.append(
                f"The cells can't tell {' and '.join(FACTORS[name] for name in varying)} apart, or "
                "are too few: cross these factors, in several seeds."
            )
            break
        margin = float(student.ppf((1 + CONFIDENCE) / 2, fit.freedom)) * fit.errors
        for name, slope, error, half in zip(varying, fit.slopes, fit.errors, margin, strict=True):
            rows.append({
                "method": method, "factor": name, "change": FACTORS[name], "effect": slope,
                "effect_low": slope - half, "effect_high": slope + half,
                "p": float(2 * student.sf(abs(slope) / error, fit.freedom)), "cells": len(merged),
            })  # fmt: skip
    return pd.DataFrame(rows), problems


def largest_correlation(factors: pd.DataFrame) -> float:
    """Returns the largest correlation in size between two factors that vary; NaN if there is one.

    0 means that the design varies them independently.
    """
    varying = [n for n in FACTORS if factors[n].notna().all() and np.ptp(factors[n]) > ALIKE]
    if len(varying) < 2:
        return float("nan")
    matrix = np.corrcoef(factors[varying].to_numpy(np.float64).T)
    return float(np.abs(matrix[~np.eye(len(varying), dtype=bool)]).max())
