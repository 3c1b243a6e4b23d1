"""AUROC, d′ and other means over cells, with errors from examples and cells.

An AUROC is a U-statistic, whose influence values are those of DeLong et al. (1988). Every example
is scored under every cell, so values that share an example, or a cell, are correlated. The
variance is clustered both ways (Cameron, Gelbach and Miller 2011): by examples, plus by cells,
minus by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from contamination.audits.reference_attack.moments import Flags, Floats
from contamination.core.statistics.placements import placements


@dataclass(frozen=True)
class MeanOverCells:
    """A mean over cells, and how it depends on each score.

    Attributes:
        value: the mean.
        cells: each cell's contribution to the error, (value of cell − value) / K: shape (K,).
        influence: of each score: shape (K, N). Sums over cells and examples are linear.
    """

    value: float
    cells: Floats
    influence: Floats

    @property
    def error(self) -> float:
        """The standard error."""
        by_cells, both = float((self.cells**2).sum()), float((self.influence**2).sum())
        by_examples = float((self.influence.sum(axis=0) ** 2).sum())
        cells = int((self.cells != 0).sum())
        by_cells *= cells / max(1, cells - 1)
        return float(np.sqrt(max(by_examples + by_cells - both, by_examples, by_cells)))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the ends of the normal confidence interval."""
        margin = float(norm.ppf((1 + confidence) / 2)) * self.error
        return self.value - margin, self.value + margin

    def student_interval(self, confidence: float) -> tuple[float, float]:
        """Returns the ends of the interval with Student's quantile, for few cells.

        The degrees of freedom are V² / (V_cells² / (K − 1) + V_examples² / (N − 1)), with the
        variance V and its parts by cells and by examples. With one cell the width is that of the
        examples alone.
        """
        cells = len(self.cells)
        by_examples = float((self.influence.sum(axis=0) ** 2).sum())
        by_cells = float((self.cells**2).sum()) * cells / max(1, cells - 1)
        examples = int((self.influence != 0).any(axis=0).sum())
        parts = by_cells**2 / max(1, cells - 1) + by_examples**2 / max(1, examples - 1)
        freedom = self.error**4 / parts if parts > 0 else 1.0
        margin = float(student.ppf((1 + confidence) / 2, max(1.0, freedom))) * self.error
        return self.value - margin, self.value + margin

    def __mul__(self, factor: float) -> MeanOverCells:
        return MeanOverCells(factor * self.value, factor * self.cells, factor * self.influence)

    def __add__(self, other: MeanOverCells) -> MeanOverCells:
        return MeanOverCells(
            self.value + other.value, self.cells + other.cells, self.influence + other.influence
        )

    def __sub__(self, other: MeanOverCells) -> MeanOverCells:
        return self + other * -1.0


def mean_auroc(
    scores: Floats, inside: Flags, outside: Flags, benchmarks: NDArray[np.str_]
) -> MeanOverCells:
    """Returns the AUROC, mean over benchmarks within a cell, then over cells.

    A benchmark without members or without non-members in a cell is left out there, and so is a cell
    without any such benchmark.

    Args:
        scores: shape (K, N); a higher score means a member.
        inside: the members, shape (K, N).
        outside: the non-members, shape (K, N).
        benchmarks: the benchmark of each example, shape (N,).

    Raises:
        ValueError: no cell has a benchmark with both.
    """
    influence, by_cell = np.zeros_like(scores), np.full(len(scores), np.nan)
    columns_of = [np.flatnonzero(benchmarks == name) for name in np.unique(benchmarks)]
    for cell, row in enumerate(scores):
        compared = [
            (columns[inside[cell, columns]], columns[outside[cell, columns]])
            for columns in columns_of
        ]
        compared = [(seen, unseen) for seen, unseen in compared if len(seen) and len(unseen)]
        aurocs = []
        for seen, unseen in compared:
            above, below = placements(row[seen], row[unseen])
            auroc = float(above.mean())
            influence[cell, seen] = (above - auroc) / len(seen) / len(compared)
            influence[cell, unseen] = (below - auroc) / len(unseen) / len(compared)
            aurocs.append(auroc)
        by_cell[cell] = np.mean(aurocs) if aurocs else np.nan
    usable = np.isfinite(by_cell)
    if not usable.any():
        raise ValueError("no cell has members and non-members of one benchmark")
    value, cells = float(by_cell[usable].mean()), int(usable.sum())
    deviations = np.where(usable, by_cell - value, 0.0) / cells
    return MeanOverCells(value, deviations, influence / cells)


MOST_AUROC = 1 - 1e-6
"""A larger AUROC is reported as this one's d′, 6.7."""


def d_prime(auroc: MeanOverCells) -> MeanOverCells:
    """Returns d′ = √2 Φ⁻¹(AUROC), and its error by the derivative there."""
    z = float(norm.ppf(np.clip(auroc.value, 1 - MOST_AUROC, MOST_AUROC)))
    slope = np.sqrt(2) / float(norm.pdf(z))
    return MeanOverCells(float(np.sqrt(2) * z), slope * auroc.cells, slope * auroc.influence)


EXTRAPOLATED = 3
"""The numbers of models, the largest ones, that the limit is extrapolated from."""


def limit_of_models(numbers: Sequence[int], aurocs: Sequence[MeanOverCells]) -> MeanOverCells:
    """Returns the d′ of an attack with more and more models.

    It is the intercept of a straight line in 1 / models through the d′ of the largest numbers, by
    least squares. For an attack that is far from its limit it is a rough guide.

    Args:
        numbers: the numbers of models, ascending; two or more.
        aurocs: the AUROC with so many.
    """
    used = np.array(numbers[-EXTRAPOLATED:], float)
    weights = np.linalg.pinv(np.stack([np.ones(len(used)), 1 / used], axis=1))[0]
    terms = [
        d_prime(auroc) * float(weight)
        for auroc, weight in zip(aurocs[-EXTRAPOLATED:], weights, strict=True)
    ]
    return sum(terms[1:], start=terms[0])


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
