"""Counts, means and sums of squares of the references on each side, without the target's column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class SideMoments:
    """The references that saw an example (IN) or did not (OUT), for each target: all (K, N).

    Attributes:
        count: the number of references.
        mean: their mean statistic; 0 where there are none.
        squares: their sum of squared deviations from that mean.
    """

    count: Floats
    mean: Floats
    squares: Floats

    @property
    def freedom(self) -> Floats:
        """The degrees of freedom of a variance."""
        return np.maximum(self.count - 1, 0)


def side_moments(phi: Floats, side: Flags) -> SideMoments:
    """Returns the moments over the references on a side, for each target (K, N).

    Args:
        phi: the statistic, shape (K, N). Its mean over cells may be far from 0.
        side: which cells are on the side, shape (K, N).
    """
    centre = phi.mean(axis=0)  # a shift changes no deviation, but saves digits
    values = np.where(side, phi - centre, 0.0)
    count = side.sum(axis=0) - side.astype(np.float64)
    total = values.sum(axis=0) - values
    total_squares = (values**2).sum(axis=0) - values**2
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    squares = np.maximum(total_squares - count * mean**2, 0.0)
    return SideMoments(count, np.where(count > 0, mean + centre, 0.0), squares)
