"""Log-likelihoods of tokens and their means, and what methods make of them."""

from __future__ import annotations

import numpy as np

from detection.passes import Floats, TokenStats

CEILING = -1e-8  # nats a token: below what float32 tells from a probability of 1


def mean_logprob(stats: TokenStats) -> float:
    """The mean log-likelihood of a scored token, in nats."""
    return float(stats.logprob.mean(dtype=np.float64))


def ratio(over: TokenStats, under: TokenStats) -> float:
    """The ratio of two mean log-likelihoods, positive: both are below 0.

    A text that the model is certain of has a mean of 0 in float32; it counts as CEILING, so that
    the ratio stays finite.
    """
    return min(mean_logprob(over), CEILING) / min(mean_logprob(under), CEILING)


def standardised(stats: TokenStats) -> Floats:
    """z_t = (log p(x_t | x_<t) − μ_t) / σ_t of each scored token (Zhang et al. 2024, eq. 4).

    μ and σ are of log p(v | x_<t) under the model's own distribution. It has no unit.
    """
    return (stats.logprob - stats.mean) / stats.std
