"""Statistics of token log-likelihoods that several methods use."""

from __future__ import annotations

from math import floor

import numpy as np

from contamination.detection.passes import Floats, Pass, TokenStats

CEILING = -1e-8  # nats per token: closer to 0 than float32 can distinguish from probability 1


def mean_logprob(stats: TokenStats) -> float:
    """Returns the mean log-likelihood of the scored tokens, in nats per token."""
    return float(stats.logprob.mean(dtype=np.float64))


def mean_logprob_ratio(numerator: TokenStats, denominator: TokenStats) -> float:
    """Returns the ratio of two mean log-likelihoods, which is positive because both are below 0.

    If the model is certain of a text, its mean is 0 in float32. It is replaced by CEILING, so that
    the ratio stays finite.
    """
    return min(mean_logprob(numerator), CEILING) / min(mean_logprob(denominator), CEILING)


def standardised_logprobs(stats: TokenStats) -> Floats:
    """Returns z_t = (log p(x_t | x_<t) − μ_t) / σ_t per scored token (Zhang et al. 2024, eq. 4).

    μ and σ are the mean and standard deviation of log p(v | x_<t) under the model's own
    distribution. The result has no unit.
    """
    return (stats.logprob - stats.mean) / stats.std


AUGMENTATIONS = ("swap", "delete", "lowercase", "masked_lm", "given")


def augmented_pass(augmentation: str, n: int, share: float) -> Pass:
    """Returns the target's pass over `n` versions of a text.

    Lower case has a single version and no random choices. `given` versions are the benchmark's own.
    """
    if augmentation == "lowercase":
        return Pass(view="lowercase")
    if augmentation == "given":
        return Pass(view="given", n=n)
    return Pass(view=augmentation, n=n, share=share)


def count_for_fraction(k: float, n: int) -> int:
    """Returns ⌊k·n⌋, at least 1; the small term makes up for rounding in 0.29·100 = 28.999…."""
    return max(1, floor(k * n + 1e-9))


def mean_of_lowest(values: Floats, k: float) -> float:
    """Returns the mean of the ⌊k·n⌋ smallest of n ≥ 1 values, at least one."""
    chosen = count_for_fraction(k, len(values))
    return float(np.partition(values, chosen - 1)[:chosen].mean(dtype=np.float64))


def mean_of_highest(values: Floats, k: float) -> float:
    """Returns the mean of the ⌊k·n⌋ largest of n ≥ 1 values, at least one."""
    return -mean_of_lowest(-values, k)


def polarization(stats: TokenStats, top: float, bottom: float) -> float:
    """Returns PD(x), the distance of the likeliest from the least likely tokens.

    It is the mean of the ⌊top·n⌋ highest log p(x_t | x_<t) minus the mean of the ⌊bottom·n⌋ lowest,
    each over at least one token (Ye et al. 2024, eq. 5). It is in nats, never negative, and smaller
    for a member.
    """
    return mean_of_highest(stats.logprob, top) - mean_of_lowest(stats.logprob, bottom)
