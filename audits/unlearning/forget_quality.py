"""Forget quality: can the truth ratios be told from those of a model that never read the texts?

The p-value of Kolmogorov and Smirnov's test of two samples (Maini et al. 2024, "TOFU"): the truth
ratios of the forget set by the unlearned model, and by the retrained one, here the clean twin.
Higher is better; below 0.05 the two differ. It has no power with few questions, so that a high
value need not mean that anything was forgotten: the original's own value is beside it.
"""

from __future__ import annotations

import warnings

import numpy as np

from contamination.core.statistics.bootstrap import Scores


def forget_quality(unlearned: Scores, retrained: Scores) -> float:
    """Returns the p-value; NaN with fewer than 2 truth ratios on a side.

    Args:
        unlearned: the truth ratios by the unlearned model.
        retrained: those by the model that was trained without the texts.
    """
    from scipy.stats import ks_2samp  # takes half a second

    samples = [values[~np.isnan(values)] for values in (unlearned, retrained)]
    if min(map(len, samples)) < 2:
        return float("nan")
    with warnings.catch_warnings():
        # SciPy's exact p-value of 1 may be above 1 by rounding; it then takes the asymptotic one.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful")
        return float(ks_2samp(*samples).pvalue)
