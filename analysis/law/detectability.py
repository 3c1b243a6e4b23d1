"""What a shift of the members' scores makes detectable: the equations of the law.

Scores are in standard deviations of the non-members of a benchmark, so that σ²_between + σ²_within
= 1, where σ_between is the spread of the examples' own levels and σ_within that of one example
between trainings. A member's score is shifted by δ on average. With normal scores (Green and Swets
1966, the binormal model; Metz 1978 for unequal variances)

    AUROC       = Φ(δ / √(v + v_member))                  a method, v = σ²_between + σ²_within
    AUROC       = Φ(δ / √(2 σ²_within (1 + 1 / R)))       after calibration by R trainings without
                                                          the example; R → ∞: the strong attack
    TPR at FPR f = Φ((δ − z √v) / √v_member),  z = Φ⁻¹(1 − f)

v_member differs from v where copies shift some examples further than others. It is modelled as
v · exp(κ δ), which is v without a shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
MOST_SHIFT = 9.0
"""A larger d′ can't be told from this one: its AUROC is 1 − 1e-10."""


def auroc_of_shift(
    shift: ArrayLike, variance: ArrayLike = 1.0, member_variance: ArrayLike = 1.0
) -> Floats:
    """Returns the AUROC of scores with this shift and these variances, element by element."""
    from scipy.special import ndtr

    total = np.asarray(variance, float) + np.asarray(member_variance, float)
    auroc: Floats = ndtr(np.asarray(shift, float) / np.sqrt(total))
    return auroc


def shift_of_auroc(
    auroc: ArrayLike, variance: ArrayLike = 1.0, member_variance: ArrayLike = 1.0
) -> Floats:
    """Returns the shift that gives this AUROC, at most `MOST_SHIFT` in absolute value."""
    from scipy.special import ndtri

    total = np.asarray(variance, float) + np.asarray(member_variance, float)
    shift: Floats = ndtri(np.asarray(auroc, float)) * np.sqrt(total)
    return np.clip(shift, -MOST_SHIFT, MOST_SHIFT)


def tpr_of_shift(
    shift: ArrayLike, fpr: float, variance: ArrayLike = 1.0, member_variance: ArrayLike = 1.0
) -> Floats:
    """Returns the true-positive rate at a false-positive rate, element by element."""
    from scipy.special import ndtr, ndtri

    threshold = ndtri(1 - fpr) * np.sqrt(np.asarray(variance, float))
    margin = np.asarray(shift, float) - threshold
    rate: Floats = ndtr(margin / np.sqrt(np.asarray(member_variance, float)))
    return rate


def member_variance(shift: ArrayLike, growth: ArrayLike) -> Floats:
    """Returns v_member = exp(κ δ) in units of v, for the growth κ of a method's variance."""
    exponent = np.asarray(growth, float) * np.asarray(shift, float)
    variance: Floats = np.exp(np.clip(exponent, -5, 5))
    return variance


def calibrated_variance(within: ArrayLike, references: float) -> Floats:
    """Returns σ²_within (1 + 1/R): of a score minus the mean of R scores without the example."""
    variance: Floats = np.asarray(within, float) * (1 + 1 / references)
    return variance


def log_design(settings: Any, factors: dict[str, float]) -> Floats:
    """Returns log n, log lr, … as the columns of the law's design: shape (rows, factors).

    log δ = log A + α log n + β log lr + γ log N − φ log(1 + T / T₀), each factor in logs around the
    centre that is given, so that A is the shift there.

    Args:
        settings: a table (or mapping of arrays) with one positive column per factor.
        factors: column → its centre, in the column's own unit.
    """
    columns = [
        np.log(np.asarray(settings[name], float)) - np.log(centre)
        for name, centre in factors.items()
    ]
    rows = len(next(iter(columns))) if columns else len(settings)
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
