"""Tests of a difference between members and non-members, and corrections for several."""

from __future__ import annotations

import numpy as np

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


def holm(p_value: Scores) -> Scores:
    """Holm's step-down correction of a family of p-values (Holm 1979)."""
    order = np.argsort(p_value, kind="stable")
    steps = p_value[order] * np.arange(len(p_value), 0, -1)
    adjusted = np.empty_like(p_value)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted
