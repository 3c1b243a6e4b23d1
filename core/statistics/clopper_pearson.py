"""The exact confidence interval of a binomial proportion (Clopper and Pearson 1934)."""

from __future__ import annotations

CONFIDENCE = 0.95


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Returns the ends of the interval: the proportions that two one-sided tests do not refute.

    It includes the true proportion with at least the given confidence.

    Args:
        hits: the number of successes.
        trials: the number of trials; 0 gives the interval from 0 to 1.
        confidence: the confidence of the interval.
    """
    from scipy.stats import beta

    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} hits of {trials} trials")
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high
