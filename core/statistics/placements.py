"""The AUROC of two samples and its standard error, from placement values.

The placement of a member is the share of non-members below it, and that of a non-member the share
of members above it; ties count as halves. Both means are the AUROC, and the variance of the AUROC
is var(members' placements) / m + var(non-members' placements) / k (DeLong, DeLong and
Clarke-Pearson 1988, equations 4 to 6).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def placements(members: Floats, nonmembers: Floats) -> tuple[Floats, Floats]:
    """Returns the share of non-members below each member, and of members above each non-member.

    Args:
        members: the members' scores, shape (m,).
        nonmembers: the non-members' scores, shape (k,).
    """
    below = _shares_below(members, np.sort(nonmembers))
    above = 1 - _shares_below(nonmembers, np.sort(members))
    return below, above


def auroc_with_error(members: Floats, nonmembers: Floats) -> tuple[float, float]:
    """Returns the AUROC and its standard error.

    Args:
        members: the members' scores, shape (m,), m ≥ 2.
        nonmembers: the non-members' scores, shape (k,), k ≥ 2.
    """
    of_members, of_nonmembers = placements(members, nonmembers)
    variance = of_members.var(ddof=1) / len(members) + of_nonmembers.var(ddof=1) / len(nonmembers)
    return float(of_members.mean()), float(np.sqrt(variance))


def _shares_below(values: Floats, ordered: Floats) -> Floats:
    """Returns the share of `ordered` that is below each value, ties counted as halves."""
    below, at_most = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    shares: Floats = (below + at_most) / (2 * len(ordered))
    return shares
