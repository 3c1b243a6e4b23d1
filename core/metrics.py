"""What a detector's scores are worth: exact metrics of one sample.

Higher = member. An example is flagged when its score reaches a threshold, so an operating point
is a whole set {score ≥ v}: tied examples are flagged together or not at all. Nothing is
interpolated, because a point between two thresholds is one that no detector can be run at.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

ALARMS = 5
"""The fewest expected false alarms of a rate that is reported: see `fewest_examples`."""


def auroc(members: Scores, nonmembers: Scores) -> float:
    """P(member > non-member) + ½ P(member = non-member), over all pairs."""
    ordered = np.sort(nonmembers)
    below = np.searchsorted(ordered, members, side="left")
    below_or_tied = np.searchsorted(ordered, members, side="right")
    return float((below + below_or_tied).sum() / (2 * len(members) * len(nonmembers)))


def tpr_at_fpr(members: Scores, nonmembers: Scores, fpr: float) -> float:
    """The largest true-positive rate whose false-positive rate does not exceed `fpr`.

    With the non-members in descending order, the first that may no longer be flagged sets a
    strict threshold: whoever ties with it stays unflagged too.
    """
    allowed = most_false_alarms(len(nonmembers), fpr)
    if allowed == len(nonmembers):
        return 1.0
    threshold = np.sort(nonmembers)[::-1][allowed]
    return float((members > threshold).sum() / len(members))


def fpr_at_tpr(members: Scores, nonmembers: Scores, tpr: float) -> float:
    """The smallest false-positive rate at which the true-positive rate is at least `tpr`."""
    needed = fewest_hits(len(members), tpr)
    if needed == 0:
        return 0.0
    threshold = np.sort(members)[::-1][needed - 1]
    return float((nonmembers >= threshold).sum() / len(nonmembers))


def fewest_examples(rate: float) -> int:
    """The smallest n with n·rate ≥ `ALARMS`: fewer non-members can't carry a false-positive rate.

    The threshold that leaves c of n non-members above it has a true false-positive rate of
    (c + 1) / (n + 1) on average: with 100 non-members "FPR ≤ 0.001" is read at 0.0099.
    """
    return ceil(ALARMS / rate * (1 - 1e-9))  # 5 / (1 - 0.9999) is 50,000.00000000551


def most_false_alarms(n_nonmembers: int, fpr: float) -> int:
    """The largest count c with c / n ≤ fpr (⌊fpr·n⌋ would round 0.29·100 down to 28)."""
    return int(np.flatnonzero(np.arange(n_nonmembers + 1) / n_nonmembers <= fpr)[-1])


def fewest_hits(n_members: int, tpr: float) -> int:
    """The smallest count c with c / n ≥ tpr."""
    return int(np.flatnonzero(np.arange(n_members + 1) / n_members >= tpr)[0])
