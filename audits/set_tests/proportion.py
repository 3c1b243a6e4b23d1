"""Which items, and how many: the share of a set that was trained on, and items at a scaled level.

PTDI (arXiv 2510.09717) has three steps: conformal p-values against texts that cannot have been
seen (`core.statistics.significance.conformal_p_values`); an estimate of the share of the set that
was trained on; Benjamini and Hochberg's procedure with p-values that are multiplied by the share
that was not. The estimate here is Storey's with a finite-sample correction (Storey, Taylor and
Siegmund 2004; with conformal p-values Bates et al. 2023 show that it controls the false
discovery rate): the share not trained on is at most

    π₀ = (1 + #{p > λ}) / (n (1 − λ)),

since p-values above λ come from such items alone, or nearly. No item with p > λ is listed (Storey,
Taylor and Siegmund, theorem 3), however small π₀ is. The paper's second version has another
estimate (a jackknife-corrected boundary), which is not implemented.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import false_discovery_control

from contamination.core.statistics.bootstrap import Scores

LAMBDA = 0.5
"""λ, above which p-values count as those of items that were not trained on."""


def share_not_trained_on(p_values: Scores) -> float:
    """Returns π₀, at most 1, of the conformal p-values of a set's items (n,)."""
    above = int((p_values > LAMBDA).sum())
    return min(1.0, (1 + above) / (len(p_values) * (1 - LAMBDA)))


def scaled_adjusted_p_values(p_values: Scores) -> Scores:
    """Returns the p-values, multiplied by π₀ and corrected (Benjamini and Hochberg 1995), (n,).

    Those above λ become 1.
    """
    scaled = p_values * share_not_trained_on(p_values)
    adjusted: Scores = np.where(p_values > LAMBDA, 1.0, false_discovery_control(scaled))
    return adjusted
