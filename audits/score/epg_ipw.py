"""EPG-IPW: the score of the items below the threshold of membership that shows most inflation.

Spiking and test-set correction (arXiv 2605.24818), after ConTAM's estimated performance gain
(arXiv 2411.03923). Of 200 thresholds t on d̂, it keeps the items with d̂ ≤ t for the t that maximises

    z(t) = (mean(y) − mean(y of kept)) / (σ / √n_kept),

where σ is the standard deviation of y, and at least 10% of the items are kept. If no z is above 0,
all are kept. The largest of 200 z is above 0 by chance, too, so without contamination the score is
too low.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

THRESHOLDS = 200
FEWEST_KEPT = 0.1
"""The smallest share of items that is kept."""


def epg_ipw_score(correct: Values, membership: Values, counts: Values) -> float:
    """Returns the mean correctness of the kept items.

    Args:
        correct: y, shape (items,).
        membership: d̂, shape (items,).
        counts: how often each item is drawn, shape (items,).
    """
    total = counts.sum()
    mean = float(np.average(correct, weights=counts))
    deviation = float(np.sqrt(np.average((correct - mean) ** 2, weights=counts)))
    drawn = counts > 0
    low, high = membership[drawn].min(), membership[drawn].max()
    order = np.argsort(membership, kind="stable")
    thresholds = np.linspace(high, low, THRESHOLDS)
    last = np.searchsorted(membership[order], thresholds, side="right") - 1
    n_kept = np.cumsum(counts[order])[last]
    n_correct = np.cumsum((counts * correct)[order])[last]
    is_allowed = n_kept >= FEWEST_KEPT * total
    if deviation == 0 or not is_allowed.any():
        return mean
    means = n_correct[is_allowed] / n_kept[is_allowed]
    z = (mean - means) * np.sqrt(n_kept[is_allowed]) / deviation
    best = int(np.argmax(z))
    return float(means[best]) if z[best] > 0 else mean
