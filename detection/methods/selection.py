"""Choosing the k·n smallest or largest of n values, the same way in every method."""

from __future__ import annotations

from math import floor

import numpy as np

from detection.passes import Floats, TokenStats


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
