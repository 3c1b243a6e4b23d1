"""RMIA: the robust membership inference attack (Zarifzadeh et al. 2024, arXiv 2312.03262)."""

from __future__ import annotations

import numpy as np

from contamination.audits.reference_attack.moments import Flags, Floats


def rmia(phi: Floats, inside: Flags, outside: Flags, gamma: float) -> Floats:
    """Returns the share of texts z with (p(x|θ) / p(x)) / (p(z|θ) / p(z)) ≥ γ, (K, N); equation 4.

    p(x|θ) = exp φ is the geometric mean of a text's token probabilities, and p(x) the mean of its
    mean over the references that saw x and of its mean over those that did not (equation 10). The
    texts z are the other examples.

    Args:
        phi: the mean log-probability, shape (K, N).
        inside: which cells saw which example, shape (K, N).
        outside: which did not, shape (K, N).
        gamma: γ, 1 or more.
    """
    means = [_log_mean_over_references(phi, side) for side in (inside, outside)]
    sides = np.isfinite(means[0]).astype(float) + np.isfinite(means[1])
    marginal = np.logaddexp(*means) - np.log(np.maximum(sides, 1))
    ratio = phi - np.where(sides > 0, marginal, phi)
    shares = np.empty_like(phi)
    for target, ratios in enumerate(ratio):
        limit = ratios - np.log(gamma)
        beaten = np.searchsorted(np.sort(ratios), limit, side="right")
        beaten = beaten - (ratios <= limit)  # x itself, if γ = 1
        shares[target] = beaten / max(1, len(ratios) - 1)
    return shares


def _log_mean_over_references(phi: Floats, side: Flags) -> Floats:
    """Returns the log of the mean of exp φ over a side's references; (K, N), −∞ without any."""
    from scipy.special import logsumexp

    means = np.full(phi.shape, -np.inf)
    for target in range(len(phi)):
        is_reference = np.arange(len(phi)) != target
        counts = side[is_reference].sum(axis=0)
        sums = logsumexp(np.where(side[is_reference], phi[is_reference], -np.inf), axis=0)
        means[target] = np.where(counts > 0, sums - np.log(np.maximum(counts, 1)), -np.inf)
    return means
