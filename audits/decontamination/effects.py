"""Means over examples of cells, with errors from examples and cells.

They add to `reference_attack.strength` the mean of paired differences and the ratio of two means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contamination.audits.reference_attack.moments import Flags, Floats
from contamination.audits.reference_attack.strength import MeanOverCells


def mean_over_examples(
    values: Floats, chosen: Flags, benchmarks: NDArray[np.str_]
) -> MeanOverCells | None:
    """Returns the mean over examples of a benchmark, then over benchmarks, then over cells.

    A benchmark without a chosen example in a cell is left out there, and so is a cell without any.
    None: no example is chosen.

    Args:
        values: shape (K, N).
        chosen: the examples that count, shape (K, N).
        benchmarks: the benchmark of each example, shape (N,).
    """
    influence, by_cell = np.zeros_like(values), np.full(len(values), np.nan)
    for cell, row in enumerate(values):
        groups = [
            np.flatnonzero(chosen[cell] & (benchmarks == name)) for name in np.unique(benchmarks)
        ]
        groups = [group for group in groups if len(group)]
        means = [float(row[group].mean()) for group in groups]
        for group, mean in zip(groups, means, strict=True):
            influence[cell, group] = (row[group] - mean) / len(group) / len(groups)
        by_cell[cell] = np.mean(means) if means else np.nan
    usable = np.isfinite(by_cell)
    if not usable.any():
        return None
    value, cells = float(by_cell[usable].mean()), int(usable.sum())
    deviations = np.where(usable, by_cell - value, 0.0) / cells
    return MeanOverCells(value, deviations, influence / cells)


def ratio(numerator: MeanOverCells, denominator: MeanOverCells) -> MeanOverCells:
    """Returns a ratio of two means of the same cells, with its error by the delta method."""
    value = numerator.value / denominator.value
    deviation = (numerator - denominator * value) * (1 / denominator.value)
    return MeanOverCells(value, deviation.cells, deviation.influence)
