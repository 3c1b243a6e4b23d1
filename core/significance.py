"""Tests of a difference between members and non-members, and corrections for several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.metrics import Scores


def relabelled(members: Scores, nonmembers: Scores, draws: int, seed: int) -> Scores:
    """Differences of the means if membership meant nothing: of random relabelings (draws).

    Membership is drawn at random, so these are what the difference would be without an effect
    (Fisher 1935), at any number of examples. How often each distinct value falls to the members is
    multivariate hypergeometric: one draw of it is one relabeling.
    """
    values, counts = np.unique(np.concatenate([members, nonmembers]), return_counts=True)
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_hypergeometric(counts, len(members), draws, method="marginals")
    found: Scores = drawn @ values / len(members)
    found -= (counts - drawn) @ values / len(nonmembers)
    return found


def p_value(difference: float, relabelings: Scores) -> float:
    """Two-sided: the share of relabelings as far from zero, (1 + count) / (1 + draws): never 0."""
    further = int((np.abs(relabelings) >= abs(difference) - 1e-12).sum())
    return (1 + further) / (1 + len(relabelings))


def conformal_p_values(scores: Scores, null: Scores, own: NDArray[np.bool_] | int = 0) -> Scores:
    """How likely a non-member scores at least as high: (1 + #{null ≥ score}) / (1 + n).

    Against n non-members; uniform on 1/(n+1), …, 1 for another non-member, and larger where scores
    are tied (Davison and Hinkley 1997, eq. 4.11). The least is 1/(n+1).

    Args:
        scores: of the texts, shape (T,).
        null: of the n non-members.
        own: which of `scores` are in `null` themselves, shape (T,); they are compared with the
            n - 1 others.
    """
    reaching = len(null) - np.searchsorted(np.sort(null), scores)
    found: Scores = (1 + reaching - own) / (1 + len(null) - own)
    return found


def holm(p_value: Scores) -> Scores:
    """Holm's step-down correction of a family of p-values (Holm 1979)."""
    order = np.argsort(p_value, kind="stable")
    steps = p_value[order] * np.arange(len(p_value), 0, -1)
    adjusted = np.empty_like(p_value)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted
