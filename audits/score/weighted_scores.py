"""Scores of a benchmark that are corrected item by item.

Spiking and test-set correction (arXiv 2605.24818). For the items of a benchmark, y is the observed
correctness, d̂ the probability that an item was in the training data, and ĉ the correctness that a
clean model is predicted to have:

    naive       mean(y)
    IPW         Σ (1 − d̂) y / Σ (1 − d̂)
    imputation  mean(ĉ)
    combined    mean(d̂ ĉ + (1 − d̂) y)

All arrays have the shape (items,). `counts` says how often each item is drawn in a resample.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def naive_score(correct: Values, counts: Values) -> float:
    """Returns the mean of the observed correctness."""
    return float(np.average(correct, weights=counts))


def ipw_score(correct: Values, membership: Values, counts: Values) -> float:
    """Returns the mean correctness weighted by 1 − d̂; NaN if all weights are 0."""
    weights = counts * (1 - membership)
    return float(np.average(correct, weights=weights)) if weights.sum() > 0 else math.nan


def imputed_score(predicted: Values, counts: Values) -> float:
    """Returns the mean of the predicted clean correctness."""
    return float(np.average(predicted, weights=counts))


def combined_score(correct: Values, membership: Values, predicted: Values, counts: Values) -> float:
    """Returns the mean of d̂ ĉ + (1 − d̂) y."""
    mixed = membership * predicted + (1 - membership) * correct
    return float(np.average(mixed, weights=counts))
