"""LiRA: the likelihood ratio attack (Carlini et al. 2022, arXiv 2112.03570, algorithm 1)."""

from __future__ import annotations

import numpy as np

from contamination.audits.reference_attack.hierarchy import expectations
from contamination.audits.reference_attack.moments import Flags, Floats, side_moments
from contamination.audits.reference_attack.variances import estimate_variances


def lira_online(phi: Floats, inside: Flags, outside: Flags, variances: str) -> Floats:
    """Returns Λ = log N(φ; μ_in, σ²_in) − log N(φ; μ_out, σ²_out), shape (K, N).

    It is 0 for an example without a reference, which each other cell has at another dose.

    Args:
        phi: the statistic, shape (K, N).
        inside: which cells saw which example, shape (K, N).
        outside: which did not, shape (K, N).
        variances: per_example (the paper's), pooled (its "global variance") or shrunk.
    """
    expected = expectations(phi, inside, outside, variances, shrinks_shifts=False)
    sides = expected.inside, expected.outside
    log_in, log_out = (
        -0.5 * (np.log(side.variance) + (phi - side.mean) ** 2 / side.variance) for side in sides
    )
    is_reference = inside | outside
    has_reference = is_reference.sum(axis=0) > is_reference  # without the target
    return np.where(has_reference, log_in - log_out, 0.0)


def lira_offline(phi: Floats, outside: Flags, variances: str) -> Floats:
    """Returns (φ − μ_out) / σ_out, shape (K, N).

    It orders the examples as the paper's 1 − P(N(μ_out, σ²_out) > φ) does, without its rounding.

    Args:
        phi: the statistic, shape (K, N).
        outside: which cells did not see which example, shape (K, N).
        variances: per_example (the paper's), pooled or shrunk.
    """
    moments = side_moments(phi, outside)
    deviation = np.sqrt(estimate_variances(moments, variances).value)
    total = moments.count.sum(axis=1, keepdims=True)
    overall = (moments.count * moments.mean).sum(axis=1, keepdims=True) / np.maximum(total, 1)
    return (phi - np.where(moments.count > 0, moments.mean, overall)) / deviation
