"""The power to tell members from non-members by their AUROC, and the design that reaches it.

S trainings with members drawn anew each have m members and k non-members of B benchmarks. The mean
AUROC is tested against ½, one-sided, since a higher score means member. Without a shift its
variance is that of the Mann-Whitney statistic (Mann and Whitney 1947),

    Var₀ = (m + k + 1) / (12 m k) / (S B),

and with the shift δ of the binormal model it follows from the placements (Hanley and McNeil 1982,
equation 2, whose Q₁ and Q₂ are integrated here over the normal scores),

    Var₁ = (A (1 − A) + (m − 1) (Q₁ − A²) + (k − 1) (Q₂ − A²)) / (m k) / (S B),
    power = Φ((A − ½ − z √Var₀) / √Var₁),  z = Φ⁻¹(1 − level).

The AUROCs of trainings are independent if the members of each are drawn anew, so that an example's
level helps as often as it harms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from contamination.analysis.law.detectability import auroc_of_shift, member_variance

Floats = NDArray[np.float64]
NODES = 80
"""Of the integration over normal scores."""
MOST = 10_000_000
"""The largest number that is searched."""


@dataclass(frozen=True)
class Design:
    """What is compared.

    Attributes:
        members: m, of each benchmark in each training.
        nonmembers: k.
        seeds: S, the trainings.
        benchmarks: B.
    """

    members: int
    nonmembers: int
    seeds: int = 1
    benchmarks: int = 1


@cache
def _normal_rule() -> tuple[Floats, Floats]:
    """Returns points and weights of an integral over the standard normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return points, weights / np.sqrt(2 * np.pi)


def auroc_moments(shift: Floats, growth: float) -> tuple[Floats, Floats, Floats]:
    """Returns A, Q₁ and Q₂ for shifts of any shape.

    Q₁ is the probability that two members are above one non-member, Q₂ that one member is above two
    non-members.
    """
    from scipy.special import ndtr

    points, weights = _normal_rule()
    shifts = np.asarray(shift, float)
    spread = np.sqrt(member_variance(shifts, growth))
    member_above = ndtr((shifts[..., None] - points) / spread[..., None])
    nonmember_below = ndtr(shifts[..., None] + spread[..., None] * points)
    area = auroc_of_shift(shifts, 1.0, spread**2)
    return area, (member_above**2) @ weights, (nonmember_below**2) @ weights


def null_error(design: Design) -> float:
    """Returns √Var₀."""
    m, k = design.members, design.nonmembers
    return float(np.sqrt((m + k + 1) / (12 * m * k) / (design.seeds * design.benchmarks)))


def critical_auroc(design: Design, level: float) -> float:
    """Returns the mean AUROC from which on the test rejects."""
    from scipy.special import ndtri

    return 0.5 + float(ndtri(1 - level)) * null_error(design)


def power_of_design(shift: Floats | float, growth: float, design: Design, level: float) -> Floats:
    """Returns the power, for shifts of any shape.

    Args:
        shift: δ.
        growth: κ of the method's members (`detectability.member_variance`).
        design: the design.
        level: of the one-sided test.
    """
    from scipy.special import ndtr

    m, k = design.members, design.nonmembers
    area, two_members, two_nonmembers = auroc_moments(np.asarray(shift, float), growth)
    variance = area * (1 - area) + (m - 1) * (two_members - area**2)
    variance = (variance + (k - 1) * (two_nonmembers - area**2)) / (m * k)
    error = np.sqrt(np.maximum(variance, 1e-300) / (design.seeds * design.benchmarks))
    critical = critical_auroc(design, level)
    if critical >= 1:  # no AUROC rejects
        return np.zeros_like(area)
    power: Floats = ndtr((area - critical) / error)
    return power


def fewest(power_of: Callable[[int], float], target: float, lowest: int = 1) -> int | None:
    """Returns the smallest whole number whose power is at least the target; None: none up to MOST.

    Args:
        power_of: the power of a number, which grows with it.
        target: the wanted power.
        lowest: the smallest number that is allowed.
    """
    high = lowest
    while power_of(high) < target:
        if high >= MOST:
            return None
        high = min(MOST, 2 * high)
    low = lowest - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= target else (middle, high)
    return high


def fewest_members(
    shift: Floats | float, growth: float, design: Design, level: float, target: float, ratio: float
) -> int | None:
    """Returns the fewest members, with `ratio` non-members each, whose mean power is the target."""

    def power_of(m: int) -> float:
        sized = replace(design, members=m, nonmembers=max(2, round(ratio * m)))
        return float(np.mean(power_of_design(shift, growth, sized, level)))

    return fewest(power_of, target, 2)


def fewest_seeds(
    shift: Floats | float, growth: float, design: Design, level: float, target: float
) -> int | None:
    """Returns the fewest trainings whose mean power is the target."""
    return fewest(
        lambda s: float(np.mean(power_of_design(shift, growth, replace(design, seeds=s), level))),
        target,
    )


def smallest_shift(growth: float, design: Design, level: float, target: float) -> float:
    """Returns the smallest δ that the design detects with the target power; NaN: none below 9."""
    low, high = 0.0, 9.0
    if power_of_design(high, growth, design, level) < target:
        return float("nan")
    for _ in range(60):
        middle = (low + high) / 2
        reached = float(power_of_design(middle, growth, design, level)) >= target
        low, high = (low, middle) if reached else (middle, high)
    return high
