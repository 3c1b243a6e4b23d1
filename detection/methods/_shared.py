"""Log-likelihoods of tokens and their means, and what methods make of them."""

from __future__ import annotations

from math import floor

import numpy as np

from contamination.detection.passes import Floats, Pass, TokenStats

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


AUGMENTATIONS = ("swap", "delete", "lowercase", "masked_lm", "given")


def augmented(augmentation: str, n: int, share: float) -> Pass:
    """The target's pass over `n` versions; lower case is one version, and draws nothing.

    `given` versions are those that a benchmark brings along.
    """
    if augmentation == "lowercase":
        return Pass(view="lowercase")
    if augmentation == "given":
        return Pass(view="given", n=n)
    return Pass(view=augmentation, n=n, share=share)


def count(k: float, n: int) -> int:
    """⌊k·n⌋, at least 1; the small term keeps 0.29·100 = 28.999… from losing a token."""
    return max(1, floor(k * n + 1e-9))


def low(values: Floats, k: float) -> float:
    """The mean of the ⌊k·n⌋ smallest of n ≥ 1 values, at least one of them."""
    chosen = count(k, len(values))
    return float(np.partition(values, chosen - 1)[:chosen].mean(dtype=np.float64))


def high(values: Floats, k: float) -> float:
    """The mean of the ⌊k·n⌋ largest of n ≥ 1 values, at least one of them."""
    return -low(-values, k)


def polarization(stats: TokenStats, top: float, bottom: float) -> float:
    """PD(x), Ye et al. 2024, eq. 5: how far the likeliest tokens are from the least likely.

    The mean of the ⌊top·n⌋ highest log p(x_t | x_<t) less the mean of the ⌊bottom·n⌋ lowest, each
    of at least one token; in nats, never negative, smaller for a member.
    """
    return high(stats.logprob, top) - low(stats.logprob, bottom)
