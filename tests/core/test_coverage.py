"""A rate that is reported has an interval that holds the truth: a small `benchmarks.coverage`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from core.bootstrap import resample
from core.estimates import chosen_metrics, estimate, interval, mean

LEVELS = (0.001, 0.01, 0.05)


def held(apart: float, size: int, benchmarks: int, repetitions: int, draws: int) -> dict:
    """Level → in how many repetitions the interval held the truth; not what is not reported."""
    rng, wanted = np.random.default_rng(5), chosen_metrics(LEVELS, [])[1:]
    found = dict.fromkeys(LEVELS, 0)
    for i in range(repetitions):
        parts = [
            estimate(
                rng.normal(apart, 1, size),
                rng.normal(size=size),
                resample(size, size, draws, benchmarks * i + each),
                wanted,
            )
            for each in range(benchmarks)
        ]
        for level, metric in zip(LEVELS, wanted, strict=True):
            whole = mean([part[metric.name] for part in parts])
            if np.isnan(whole.value):
                found.pop(level, None)
            else:
                low, high = interval(whole, 0.95)
                found[level] += low <= norm.sf(norm.isf(level) - apart) <= high
    return found


def check(found: dict, repetitions: int, reported: list[float]) -> None:
    """By chance alone one such test in a thousand fails on either side."""
    for level, times in found.items():
        low, high = binom.ppf(0.001, repetitions, 0.94), binom.ppf(0.999, repetitions, 0.97)
        assert low <= times <= high, f"{level}: {times} of {repetitions}"
    assert list(found) == reported


@pytest.mark.parametrize(
    ("apart", "benchmarks", "repetitions"), [(0, 1, 300), (2, 1, 300), (1, 4, 150)]
)
def test_100_nonmembers_carry_5_percent_and_no_lower_rate(apart, benchmarks, repetitions):
    check(held(apart, 100, benchmarks, repetitions, 200), repetitions, [0.05])


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0, 1, 2, 3.29])
def test_500_nonmembers_carry_1_percent(apart):
    check(held(apart, 500, 4, 400, 500), 400, [0.01, 0.05])
