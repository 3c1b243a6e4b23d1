"""Variances of the references: per example, pooled over examples, or in between (shrunk).

Shrunk variances are those of Smyth (2004, "Linear models and empirical Bayes methods", section
6.2): the variances σ² of the examples are scaled inverse χ² with d₀ degrees of freedom around s₀²,
and

    s̃² = (d₀ s₀² + Σ (φ − mean)²) / (d₀ + d),

where d₀ and s₀² are found from the mean and the variance of log s² over examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contamination.audits.reference_attack.moments import Floats, SideMoments

PER_EXAMPLE, POOLED, SHRUNK = "per_example", "pooled", "shrunk"
LEAST_VARIANCE = 1e-12
LEAST_FREEDOM, MOST_FREEDOM = 1e-3, 1e6
"""Of the prior; the most are as good as a pooled variance."""
NEWTON_STEPS = 30


@dataclass(frozen=True)
class Variances:
    """The variances of one side for each target, and how certain they are: both (K, N).

    Attributes:
        value: the variance.
        freedom: its degrees of freedom, those of the prior included.
    """

    value: Floats
    freedom: Floats


def pooled_variances(moments: SideMoments) -> Floats:
    """Returns one variance for each target, over all examples: shape (K, 1)."""
    freedom = moments.freedom.sum(axis=1, keepdims=True)
    squares = moments.squares.sum(axis=1, keepdims=True)
    variances: Floats = np.maximum(squares / np.maximum(freedom, 1), LEAST_VARIANCE)
    return variances


def estimate_variances(moments: SideMoments, kind: str) -> Variances:
    """Returns the variances of a kind: per_example, pooled or shrunk."""
    pooled = pooled_variances(moments)
    if kind == POOLED:
        freedom = np.broadcast_to(moments.freedom.sum(axis=1, keepdims=True), moments.count.shape)
        return Variances(np.broadcast_to(pooled, moments.count.shape), freedom)
    if kind == PER_EXAMPLE:
        variance = moments.squares / np.maximum(moments.freedom, 1)
        variance = np.where(moments.freedom > 0, np.maximum(variance, LEAST_VARIANCE), pooled)
        return Variances(variance, moments.freedom)
    prior_freedom, prior = _inverse_chi_square_prior(moments, pooled)
    freedom = prior_freedom + moments.freedom
    return Variances((prior_freedom * prior + moments.squares) / freedom, freedom)


def _inverse_chi_square_prior(moments: SideMoments, pooled: Floats) -> tuple[Floats, Floats]:
    """Returns d₀ and s₀² for each target, shape (K, 1) each."""
    from scipy.special import digamma, polygamma

    freedom = moments.freedom
    usable = (freedom > 0) & (moments.squares > 0)
    half = np.where(usable, freedom, 2.0) / 2
    variance = np.where(usable, moments.squares, 1.0) / (2 * half)
    logs = np.where(usable, np.log(variance) - digamma(half) + np.log(half), 0.0)
    number = np.maximum(usable.sum(axis=1, keepdims=True), 1)
    mean = logs.sum(axis=1, keepdims=True) / number
    spread = np.where(usable, (logs - mean) ** 2, 0.0).sum(axis=1, keepdims=True)
    spread = spread / np.maximum(number - 1, 1)
    noise = np.where(usable, polygamma(1, half), 0.0).sum(axis=1, keepdims=True) / number
    prior_freedom = _freedom_of_spread(spread - noise)
    prior = np.exp(mean + digamma(prior_freedom / 2) - np.log(prior_freedom / 2))
    is_pooled = prior_freedom >= MOST_FREEDOM
    return prior_freedom, np.where(is_pooled, pooled, prior)


def _freedom_of_spread(spread: Floats) -> Floats:
    """Returns the d₀ whose log-variances spread so: trigamma(d₀ / 2) = spread, of any shape.

    By Newton's method on 1 / trigamma, which rises to the root (Smyth 2004, appendix).
    """
    from scipy.special import polygamma

    least, most = (float(polygamma(1, d / 2)) for d in (MOST_FREEDOM, LEAST_FREEDOM))
    wanted = np.clip(spread, least, most)
    half = 0.5 + 1 / wanted
    for _ in range(NEWTON_STEPS):
        trigamma = polygamma(1, half)
        half = half + trigamma * (1 - trigamma / wanted) / polygamma(2, half)
    freedom: Floats = np.where(spread <= least, MOST_FREEDOM, 2 * half)
    return freedom
