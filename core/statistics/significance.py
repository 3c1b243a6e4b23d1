"""Tests of a difference between members and non-members, and corrections for several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores

DIGITS = 9
"""Of a sum of shares: whole clusters count as whole numbers, so that the least p is 1/(K+1)."""


def relabelled_differences(members: Scores, nonmembers: Scores, n_draws: int, seed: int) -> Scores:
    """Returns differences of the means under random relabellings (draws).

    Membership is drawn at random, so these are what the difference would be without an effect
    (Fisher 1935), at any number of examples. How often each distinct value falls to the members is
    multivariate hypergeometric: one draw of it is one relabeling.
    """
    values, counts = np.unique(np.concatenate([members, nonmembers]), return_counts=True)
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_hypergeometric(counts, len(members), n_draws, method="marginals")
    differences: Scores = drawn @ values / len(members)
    differences -= (counts - drawn) @ values / len(nonmembers)
    return differences


def relabelling_p_value(difference: float, relabelings: Scores) -> float:
    """Two-sided: the share of relabelings as far from zero, (1 + count) / (1 + draws): never 0."""
    further = int((np.abs(relabelings) >= abs(difference) - 1e-12).sum())
    return (1 + further) / (1 + len(relabelings))


def conformal_p_values(
    scores: Scores, null_scores: Scores, in_null: NDArray[np.bool_] | int = 0
) -> Scores:
    """Returns how likely a non-member scores at least as high: (1 + #{null ≥ score}) / (1 + n).

    Against n non-members; uniform on 1/(n+1), …, 1 for another non-member, and larger where scores
    are tied (Davison and Hinkley 1997, eq. 4.11). The least is 1/(n+1).

    Args:
        scores: of the texts, shape (T,).
        null_scores: of the n non-members.
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
    """`conformal_p_values` where non-members come in clusters: each cluster counts as one.

    (1 + Σ_k share of cluster k's non-members ≥ score) / (1 + K), over the K clusters but the text's
    own. For a non-member of a cluster like the others P(p ≤ a) ≤ a, however alike those of one
    cluster are (hierarchical conformal prediction: Lee, Barber and Willett 2023). The least is
    1/(K+1). Where each text is a cluster of its own, it is the same number.

    Args:
        scores: of the texts, shape (T,).
        score_clusters: their clusters, shape (T,).
        null_scores: of the n non-members.
        null_clusters: theirs, shape (n,).
    """
    size = np.bincount(null_clusters, minlength=score_clusters.max(initial=0) + 1)
    order = np.argsort(null_scores)
    weights = np.append((1 / size[null_clusters])[order], 0)
    above = np.cumsum(weights[::-1])[::-1]  # from each place on
    reaching = above[np.searchsorted(null_scores[order], scores)]
    own_reaching = _counts_reaching_in_own_cluster(
        scores, score_clusters, null_scores, null_clusters
    ) / np.maximum(size[score_clusters], 1)
    clusters = (size > 0).sum() - (size[score_clusters] > 0)
    p_values: Scores = (1 + (reaching - own_reaching).round(DIGITS).clip(0)) / (1 + clusters)
    return p_values


def _counts_reaching_in_own_cluster(
    scores: Scores,
    score_clusters: NDArray[np.intp],
    null_scores: Scores,
    null_clusters: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Returns how many null scores of its own cluster are at least as high as each score."""
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
    """Holm's step-down correction of a family of p-values (Holm 1979)."""
    order = np.argsort(p_value, kind="stable")
    steps = p_value[order] * np.arange(len(p_value), 0, -1)
    adjusted = np.empty_like(p_value)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted
