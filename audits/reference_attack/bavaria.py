"""BaVarIA: LiRA with a posterior in the place of estimates (Brännvall 2026, arXiv 2603.11799)."""

from __future__ import annotations

import numpy as np

from contamination.audits.reference_attack.hierarchy import SideExpectation, expectations
from contamination.audits.reference_attack.moments import Flags, Floats
from contamination.audits.reference_attack.variances import SHRUNK


def bavaria(phi: Floats, inside: Flags, outside: Flags) -> Floats:
    """Returns log t_in(φ) − log t_out(φ), the ratio of posterior predictive densities, (K, N).

    Each is Student's t (the paper's BaVarIA-t) with the degrees of freedom of the shrunk variance,
    around the shrunk mean, as wide as the variance and the mean's own uncertainty together. The
    prior on the mean is on an example's shift, so its level stays free.

    Args:
        phi: the statistic, shape (K, N).
        inside: which cells saw which example, shape (K, N).
        outside: which did not, shape (K, N).
    """
    expected = expectations(phi, inside, outside, SHRUNK, shrinks_shifts=True)
    return _log_student(phi, expected.inside) - _log_student(phi, expected.outside)


def _log_student(phi: Floats, side: SideExpectation) -> Floats:
    from scipy.special import gammaln

    scale = side.variance + side.mean_variance
    freedom = side.freedom
    density: Floats = (
        gammaln((freedom + 1) / 2)
        - gammaln(freedom / 2)
        - 0.5 * np.log(np.pi * freedom * scale)
        - (freedom + 1) / 2 * np.log1p((phi - side.mean) ** 2 / (freedom * scale))
    )
    return density
