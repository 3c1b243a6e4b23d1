"""Tests of differences between members and non-members, and corrections for multiple tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores

SHARE_DIGITS = 9
"""Sums of shares are rounded, so that whole clusters are whole numbers and p is at least
1/(K+1)."""


def relabelled_differences(members: Scores, nonmembers: Scores, n_draws: int, seed: int) -> Scores:
    """Returns the differences of the means under `n_draws` random relabellings (n_draws,).

    Membership is assigned at random, so this is the exact distribution of the difference without an
    effect (Fisher 1935). The number of members with each distinct value is multivariate
    hypergeometric; each draw is one relabelling.
    """
    values, counts = np.unique(np.concatenate([members, nonmembers]), return_counts=True)
    rng = np.random.default_rng(seed)
    member_counts = rng.multivariate_hypergeometric(
        counts, len(members), n_draws, method="marginals"
    )
    differences: Scores = member_counts @ values / len(members)
    differences -= (counts - member_counts) @ values / len(nonmembers)
    return differences


def relabelling_p_value(difference: float, relabellings: Scores) -> float:
    """Returns the two-sided p-value (1 + n) / (1 + draws), where n relabellings are as extreme."""
    n_as_extreme = int((np.abs(relabellings) >= abs(difference) - 1e-12).sum())
    return (1 + n_as_extreme) / (1 + len(relabellings))


def conformal_p_values(
    scores: Scores, null_scores: Scores, in_null: NDArray[np.bool_] | int = 0
) -> Scores:
    """Returns how likely a non-member scores at least as high: (1 + #{null ≥ score}) / (1 + n).

    For a further non-member, p is uniform on 1/(n+1), …, 1, and larger if scores are tied (Davison
    and Hinkley 1997, eq. 4.11). The smallest possible p is 1/(n+1).

    Args:
        scores: the scores of the texts, shape (T,).
        null_scores: the scores of the n non-members, shape (n,).
        in_null: which of `scores` are in `null_scores` themselves, shape (T,); they are compared
            with the n - 1 others.
    """
    reaching = len(null_scores) - np.searchsorted(np.sort(null_scores), scores)
    p_values: Scores = (1 + reaching - in_null) / (1 + len(null_scores) - in_null)
    return p_values


def clustered_p_values(
    scores: Scores,
    score_clusters: NDArray[np.intp],
    null_scores: Scores,
    null_clusters: NDArray[np.intp],
) -> Scores:
    """Returns conformal p-values against clustered non-members; each cluster counts as one.

    The value is (1 + Σ_k share of cluster k's non-members ≥ score) / (1 + K), over the K clusters
    other than the text's own. For a non-member from an exchangeable cluster, P(p ≤ a) ≤ a, however
    similar the texts within a cluster are (hierarchical conformal prediction: Lee, Barber and
    Willett 2023). The smallest possible p is 1/(K+1). If each text is its own cluster, the result
    equals `conformal_p_values`.

    Args:
        scores: the scores of the texts, shape (T,).
        score_clusters: the clusters of the texts, shape (T,).
        null_scores: the scores of the n non-members, shape (n,).
        null_clusters: the clusters of the non-members, shape (n,).
    """
    size = np.bincount(null_clusters, minlength=score_clusters.max(initial=0) + 1)
    order = np.argsort(null_scores)
    weights = np.append((1 / size[null_clusters])[order], 0)
    above = np.cumsum(weights[::-1])[::-1]  # the total weight from each position on
    reaching = above[np.searchsorted(null_scores[order], scores)]
    own_share = _counts_reaching_in_own_cluster(
        scores, score_clusters, null_scores, null_clusters
    ) / np.maximum(size[score_clusters], 1)
    n_clusters = (size > 0).sum() - (size[score_clusters] > 0)
    p_values: Scores = (1 + (reaching - own_share).round(SHARE_DIGITS).clip(0)) / (1 + n_clusters)
    return p_values


def _counts_reaching_in_own_cluster(
    scores: Scores,
    score_clusters: NDArray[np.intp],
    null_scores: Scores,
    null_clusters: NDArray[np.intp],
) -> NDArray[np.intp]:
    """For each score, the number of null scores in its own cluster that are at least as high."""
    values, group = (
        np.concatenate([null_scores, scores]),
        np.concatenate([null_clusters, score_clusters]),
    )
    is_text = np.arange(len(values)) >= len(null_scores)
    order = np.lexsort((is_text, -values, group))
    passed = np.append(0, np.cumsum(~is_text[order]))
    start = np.searchsorted(group[order], group[order])
    counts = np.empty(len(values), np.intp)
    counts[order] = passed[1:] - passed[start]
    return counts[len(null_scores) :]


def holm_correction(p_value: Scores) -> Scores:
    """Returns a family of p-values after Holm's step-down correction (Holm 1979)."""
    order = np.argsort(p_value, kind="stable")
    steps = p_value[order] * np.arange(len(p_value), 0, -1)
    adjusted = np.empty_like(p_value)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted
