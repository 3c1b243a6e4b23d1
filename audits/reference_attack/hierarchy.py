"""What the references expect of an example if it was seen and if it was not.

The statistic of example i has level aᵢ if it was not seen, and aᵢ + Δᵢ if it was. The level is
free. The shift Δᵢ is normal over examples around its dose's mean m, with variance τ²; so an
example with few references on a side borrows from the others (normal-inverse-gamma, as in BaVarIA,
Brännvall 2026, arXiv 2603.11799, whose prior is on each side's mean).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contamination.audits.reference_attack.moments import Flags, Floats, SideMoments, side_moments
from contamination.audits.reference_attack.variances import Variances, estimate_variances

LEAST = 1e-12


@dataclass(frozen=True)
class SideExpectation:
    """The predicted statistic of each example under each target on one side: all (K, N).

    Attributes:
        mean: the expected statistic.
        variance: of the statistic around its true mean.
        freedom: the degrees of freedom of that variance.
        mean_variance: the uncertainty of the expected statistic itself.
    """

    mean: Floats
    variance: Floats
    freedom: Floats
    mean_variance: Floats


@dataclass(frozen=True)
class Expectations:
    """Both sides, and the shifts' prior for each target (K, 1)."""

    inside: SideExpectation
    outside: SideExpectation
    mean_shift: Floats
    shift_variance: Floats


def expectations(
    phi: Floats, inside: Flags, outside: Flags, variances: str, *, shrinks_shifts: bool
) -> Expectations:
    """Returns what is expected of each example under each target, from its references alone.

    Args:
        phi: the statistic, shape (K, N).
        inside: which cells saw which example at the dose, shape (K, N).
        outside: which cells did not see it, shape (K, N).
        variances: the kind of variances; see `variances.estimate_variances`.
        shrinks_shifts: whether shifts are shrunk towards the mean shift. Otherwise an example's own
            shift is taken, and the mean shift only where a side has no reference.
    """
    moments_in, moments_out = side_moments(phi, inside), side_moments(phi, outside)
    variance_in = estimate_variances(moments_in, variances)
    variance_out = estimate_variances(moments_out, variances)
    shift, noise, is_known = _own_shifts(moments_in, moments_out, variance_in, variance_out)
    mean_shift, shift_variance = _shift_prior(shift, noise, is_known)
    prior_precision = 1 / np.maximum(shift_variance, LEAST) if shrinks_shifts else 0 * mean_shift
    precision_in = moments_in.count / variance_in.value
    precision_out = moments_out.count / variance_out.value
    weight = np.where(is_known, 1 / np.where(is_known, noise, 1.0), 0.0)
    total = weight + prior_precision
    shrunk = (weight * np.where(is_known, shift, 0.0) + prior_precision * mean_shift) / np.where(
        total > 0, total, 1.0
    )
    shrunk = np.where(total > 0, shrunk, mean_shift)
    both = np.maximum(precision_in + precision_out, LEAST)
    level = (precision_out * moments_out.mean + precision_in * (moments_in.mean - shrunk)) / both
    # precision matrix of (level, shift): [[both, in], [in, in + prior]]
    corner = precision_in + np.maximum(prior_precision, LEAST)
    determinant = np.maximum(both * corner - precision_in**2, LEAST)
    variance_of_level = corner / determinant
    variance_inside = (both + corner - 2 * precision_in) / determinant
    return Expectations(
        _side(level + shrunk, variance_in, variance_inside),
        _side(level, variance_out, variance_of_level),
        mean_shift,
        shift_variance,
    )


def _side(mean: Floats, variance: Variances, mean_variance: Floats) -> SideExpectation:
    return SideExpectation(mean, variance.value, variance.freedom, mean_variance)


def _own_shifts(
    moments_in: SideMoments,
    moments_out: SideMoments,
    variance_in: Variances,
    variance_out: Variances,
) -> tuple[Floats, Floats, Flags]:
    """Returns each example's own shift, its sampling variance, and whether both sides are known."""
    is_known = (moments_in.count > 0) & (moments_out.count > 0)
    noise = variance_in.value / np.maximum(moments_in.count, 1)
    noise = noise + variance_out.value / np.maximum(moments_out.count, 1)
    return moments_in.mean - moments_out.mean, noise, is_known


def _shift_prior(shift: Floats, noise: Floats, is_known: Flags) -> tuple[Floats, Floats]:
    """Returns mean and variance of the true shifts over examples, for each target (K, 1).

    By the moments of DerSimonian and Laird (1986), as in a meta-analysis of the examples.
    """
    weight = np.where(is_known, 1 / noise, 0.0)
    total = np.maximum(weight.sum(axis=1, keepdims=True), LEAST)
    mean = (weight * shift).sum(axis=1, keepdims=True) / total
    excess = (weight * (shift - mean) ** 2).sum(axis=1, keepdims=True)
    excess = excess - np.maximum(is_known.sum(axis=1, keepdims=True) - 1, 0)
    scale = total - (weight**2).sum(axis=1, keepdims=True) / total
    return mean, np.maximum(excess / np.maximum(scale, LEAST), 0.0)
