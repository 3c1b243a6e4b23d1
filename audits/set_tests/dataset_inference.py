"""LLM dataset inference (Maini et al. 2024, arXiv 2406.06443, section 4).

A linear model of many methods' scores is fitted on one half of the suspects and of texts of the
same making that were held back, and its values of the other halves are compared by a one-sided
t-test. With several divisions into halves, twice the median of their p-values is a p-value (Meng
1994; Meinshausen, Meier and Bühlmann 2009).

The features are normal scores of a method's ranks among all texts, for which no label is used. The
public script clips and normalises by the values of both sides before it divides them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata, t

from contamination.core.statistics.bootstrap import Scores

PENALTY = 0.1
"""Of the squared weights, so that methods that are alike can be fitted."""
SPLITS = 10
LEAST_VARIANCE = 1e-20
"""Of the fitted values; a smaller one is rounding."""


def dataset_inference_p_value(
    scores_by_method: Scores, is_suspect: NDArray[np.bool_], seed: int, splits: int = SPLITS
) -> float:
    """Returns twice the median p-value of several divisions into halves, or that of one.

    Args:
        scores_by_method: of the texts, shape (M, n).
        is_suspect: which texts are suspects; the others are held back. Shape (n,).
        seed: of the divisions.
        splits: the number of divisions.
    """
    ranks = rankdata(scores_by_method, axis=1).T
    features = np.column_stack([norm.ppf(ranks / (len(ranks) + 1)), np.ones(len(ranks))])
    rng = np.random.default_rng(seed)
    p_values = [_one_split(features, is_suspect, rng) for _ in range(splits)]
    return p_values[0] if splits == 1 else min(1.0, 2 * float(np.median(p_values)))


def _one_split(features: Scores, is_suspect: NDArray[np.bool_], rng: np.random.Generator) -> float:
    is_fitted = np.zeros(len(is_suspect), bool)
    for side in (is_suspect, ~is_suspect):
        rows = np.flatnonzero(side)
        is_fitted[rng.permutation(rows)[: len(rows) // 2]] = True
    fitted = features[is_fitted]
    inner = fitted.T @ fitted + PENALTY * np.eye(features.shape[1])
    weights = np.linalg.solve(inner, fitted.T @ is_suspect[is_fitted])
    values, side = features[~is_fitted] @ weights, is_suspect[~is_fitted]
    return _t_p_value(values[side], values[~side])


def _t_p_value(suspects: Scores, others: Scores) -> float:
    """Returns the p-value of Student's two-sample t-test that suspects' values are higher.

    It is 1 if neither side has a spread (all scores are tied): there is no t and no evidence.
    """
    freedom = len(suspects) + len(others) - 2
    variance = (suspects.var() * len(suspects) + others.var() * len(others)) / max(1, freedom)
    if freedom < 1 or variance <= LEAST_VARIANCE:
        return 1.0
    error = np.sqrt(variance * (1 / len(suspects) + 1 / len(others)))
    return float(t.sf((suspects.mean() - others.mean()) / error, freedom))
