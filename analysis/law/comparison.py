"""The law against simpler predictors, on cells that neither has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.law.fit import FACTORS, Law
from contamination.analysis.law.predict import NEW, predict

Floats = NDArray[np.float64]
BITS_PER_PARAMETER = 3.6
"""Morris et al. (2025, arXiv 2505.24832)."""
LAW, NEAREST, LOGIT, SIGMOID = "law", "nearest cell", "logit in log n", "sigmoid in capacity"
KEY = ["cell", "method", "occurrences"]


def average_benchmarks(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per cell, method and number of copies: means over benchmarks.

    The errors of benchmarks are independent, as their examples are.
    """
    settings = [name for name in FACTORS if name != "occurrences"]
    grouped = rows.astype({name: float for name in settings}).groupby(KEY, sort=True)
    mean = grouped[["auroc", "shift", *settings]].mean()
    mean["recency"] = np.exp(grouped["recency"].agg(lambda r: np.log(r.astype(float)).mean()))
    number = grouped.size()
    for name in ("auroc_error", "shift_error"):
        mean[name] = np.sqrt(grouped[name].agg(lambda e: (e**2).sum())) / number
    mean["benchmarks"] = grouped["benchmark"].agg(lambda names: ",".join(sorted(names)))
    mean["model"] = grouped["model"].first()
    mean["budget_tokens"] = grouped["budget_tokens"].first()
    return mean.reset_index()


def predict_held_out(
    law: Law, fitted: pd.DataFrame, held: pd.DataFrame, confidence: float, seed: int
) -> pd.DataFrame:
    """Returns the held-out cells with each predictor's AUROC and the law's interval.

    Args:
        law: fitted to `fitted`.
        fitted: the cells of the fit, a row per benchmark.
        held: the held-out cells, a row per benchmark.
        confidence: of the interval of a measured AUROC.
        seed: of the draws.
    """
    fitted_cells, table = average_benchmarks(fitted), average_benchmarks(held)
    columns: dict[str, list[float | str | bool]] = {
        name: [] for name in (LAW, "low", "high", "outside")
    }
    for row in table.to_dict("records"):
        settings = {name: float(row[name]) for name in law.factors}
        method = row["method"] if row["method"] in law.methods else NEW
        names = [n if n in law.benchmarks else NEW for n in row["benchmarks"].split(",")]
        prediction = predict(law, settings, method, names, seed=seed)
        low, high = prediction.measured_interval(row["auroc_error"], confidence, seed)
        outside = [*prediction.outside, *(["method"] if method == NEW else [])]
        outside += ["benchmark"] if NEW in names else []
        outside += [  # factors that the fit can't know anything about
            name
            for name, fixed in law.constant.items()
            if fixed is not None and not np.isclose(row[name], fixed)
        ]
        for name, value in ((LAW, prediction.auroc), ("low", low), ("high", high)):
            columns[name].append(value)
        columns["outside"].append(", ".join(outside))
    table = table.assign(**columns)
    for name, predictor in COMPARED.items():
        table[name] = predictor(fitted_cells, table, [*law.factors])
    return table


def summarise(table: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Returns each predictor's errors on the held-out cells, inside and outside the fit's range.

    The columns: `mae`, the mean absolute error in AUROC; `noise`, what it would be by the measured
    AUROCs' own errors alone; `bias`; `coverage` of the law's intervals; `decisions`, of two
    held-out cells whose AUROCs differ by at least twice the error of their difference, the share
    whose order is predicted (0.5 where both predictions are equal). A predictor that has no
    value for a cell (the sigmoid without a number of parameters) is left out.
    """
    rows = []
    parts = [("all", table), *((k, t) for k, t in table.groupby(_where(table), sort=True))]
    for where, part in parts:
        for name in (LAW, *COMPARED):
            if part[name].isna().any():
                continue
            error = part[name] - part["auroc"]
            covered = (part["auroc"] >= part["low"]) & (part["auroc"] <= part["high"])
            right, pairs = decisions(part["auroc"], part["auroc_error"], part[name])
            rows.append({
                "held_out": where, "predictor": name, "rows": len(part),
                "cells": part["cell"].nunique(), "mae": float(error.abs().mean()),
                "noise": float(np.sqrt(2 / np.pi) * part["auroc_error"].mean()),
                "bias": float(error.mean()),
                "coverage": float(covered.mean()) if name == LAW else np.nan,
                "confidence": confidence if name == LAW else np.nan,
                "decisions": right, "pairs": pairs,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _where(table: pd.DataFrame) -> pd.Series[str]:
    where = np.where(table["outside"] == "", "inside", "outside")
    return pd.Series(where, table.index, name="held_out")


def decisions(
    measured: pd.Series[float], error: pd.Series[float], predicted: pd.Series[float]
) -> tuple[float, int]:
    """Returns the share of pairs whose order is predicted, and the number of pairs (DataDecide)."""
    values, errors, guesses = (column.to_numpy(float) for column in (measured, error, predicted))
    right, pairs = 0.0, 0
    for i, j in combinations(range(len(values)), 2):
        difference = values[i] - values[j]
        if abs(difference) < 2 * np.hypot(errors[i], errors[j]):
            continue
        guess = guesses[i] - guesses[j]
        right += 0.5 if guess == 0 else float((guess > 0) == (difference > 0))
        pairs += 1
    return (right / pairs if pairs else np.nan), pairs


def nearest_cell(fitted_cells: pd.DataFrame, held: pd.DataFrame, factors: list[str]) -> Floats:
    """Returns the AUROC of the nearest cell of the fit, in logs of the factors; ties are averaged.

    Of the same method; of a method that the fit has not seen, the mean over methods.
    """
    predictions = []
    for row in held.to_dict("records"):
        same = fitted_cells[fitted_cells["method"] == row["method"]]
        same = same if len(same) else fitted_cells
        distance = sum(
            (np.log(same[name].astype(float)) - np.log(float(row[name]))) ** 2 for name in factors
        )
        distance = pd.Series(distance, same.index)
        predictions.append(float(same["auroc"][distance <= distance.min() + 1e-9].mean()))
    return np.array(predictions)


def logit_in_log_copies(
    fitted_cells: pd.DataFrame, held: pd.DataFrame, factors: list[str]
) -> Floats:
    """Returns AUROCs whose log-odds are linear in the logs of all factors, for each method."""
    auroc = fitted_cells["auroc"].clip(0.005, 0.995)
    logit = np.log(auroc / (1 - auroc))
    predictions = pd.Series(np.nan, held.index)
    for method, rows in held.groupby("method"):
        same = fitted_cells["method"] == method
        same = same if same.any() else pd.Series(True, fitted_cells.index)
        beta = np.linalg.lstsq(_logs(fitted_cells[same], factors), logit[same], rcond=None)[0]
        predictions[rows.index] = 1 / (1 + np.exp(-_logs(rows, factors) @ beta))
    values: Floats = predictions.to_numpy(np.float64)
    return values


def sigmoid_in_capacity(
    fitted_cells: pd.DataFrame, held: pd.DataFrame, factors: list[str]
) -> Floats:
    """Returns AUROCs by a sigmoid in capacity / data, for each method.

    The form is that of Morris et al. (2025, section 5): ½ (1 + c₁ σ(c₂ (capacity / data + c₃))),
    with 3.6 bits a parameter, their F1 replaced by the AUROC, and the data in tokens. It has no
    learning rate and no copies; so that it has a chance here, copies multiply the capacity
    that an example gets, to a power that is fitted.
    """
    from scipy.optimize import least_squares
    from scipy.special import expit

    def curve(parameters: Floats, rows: pd.DataFrame) -> Floats:
        ratio = BITS_PER_PARAMETER * rows["parameters"].astype(float) / rows["budget_tokens"]
        x = np.log(ratio.to_numpy(float))
        x = x + parameters[3] * np.log(rows["occurrences"].to_numpy(float))
        values: Floats = 0.5 * (
            1 + np.tanh(parameters[0]) * expit(parameters[1] * x + parameters[2])
        )
        return values

    predictions = pd.Series(np.nan, held.index)
    if fitted_cells["parameters"].isna().any() or held["parameters"].isna().any():
        return np.full(len(held), np.nan)  # there is no capacity without a number of weights
    for method, rows in held.groupby("method"):
        same = fitted_cells[fitted_cells["method"] == method]
        same = same if len(same) else fitted_cells
        fit = least_squares(
            lambda p, s=same: curve(p, s) - s["auroc"].to_numpy(float), [1.5, 1.0, -2.0, 1.0],
            bounds=([-3, -20, -60, -5], [3, 20, 60, 5]),
        )  # fmt: skip
        predictions[rows.index] = curve(fit.x, rows)
    values: Floats = predictions.to_numpy(np.float64)
    return values


def _logs(rows: pd.DataFrame, factors: list[str]) -> Floats:
    logs = [np.log(rows[name].to_numpy(float)) for name in factors]
    return np.column_stack([np.ones(len(rows)), *logs])


COMPARED: Mapping[str, Callable[[pd.DataFrame, pd.DataFrame, list[str]], Floats]] = {
    NEAREST: nearest_cell,
    LOGIT: logit_in_log_copies,
    SIGMOID: sigmoid_in_capacity,
}
