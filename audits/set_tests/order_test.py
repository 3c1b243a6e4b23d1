"""The order test: does the model prefer the published order of a benchmark's examples?

Oren et al. (2023), "Proving test set contamination in black-box language models", arXiv 2310.17623.
If a benchmark's order was drawn at random, a model that has not seen it gives all
orders of the examples of a shard log-likelihoods that are exchangeable. With s_i the mean
difference of shard i's log-likelihood in the published order and in random orders, and r shards,

    t = mean(s) / (sd(s) / √r),   p = P(T_{r−1} ≥ t).

The standard deviation has r − 1 in its denominator (ddof = 1); a public script has r, so that its p
is too small. The t-distribution is an approximation, and too small a p where log-likelihoods are
skewed to the left; `exact_order_tail` needs none: the published order is one of the orders of its
shard, so its rank among them is uniform.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t

from contamination.audits.set_tests.version_rank import ScoredVersions, Tail, rank_tail
from contamination.core.errors import DataError
from contamination.core.statistics.bootstrap import Scores


def order_t_p_value(published: Scores, random: Scores) -> float:
    """Returns the one-sided p-value of the t-test over shards.

    Args:
        published: the log-likelihood of each shard in the published order, shape (r,).
        random: in random orders, shape (r, M).

    Raises:
        DataError: there are fewer than two shards, or all have the same difference.
    """
    differences = published - random.mean(axis=1)
    error = float(differences.std(ddof=1)) / np.sqrt(len(published)) if len(published) > 1 else 0.0
    if error <= 0:
        raise DataError(
            f"the order test has {len(published)} shards of one difference: give two or more "
            "shards, of which the order matters to the model."
        )
    return float(t.sf(differences.mean() / error, len(published) - 1))


def exact_order_tail(published: Scores, random: Scores) -> Tail:
    """Returns the tail of the published orders' ranks among all orders of their shards."""
    return rank_tail(order_versions(published, random))


def order_versions(published: Scores, random: Scores) -> ScoredVersions:
    """Returns the orders of a shard as versions of an item, the published one first.

    Args:
        published: shape (r,).
        random: shape (r, M).
    """
    scores = np.column_stack([published, random])
    item = np.repeat(np.arange(len(scores)), scores.shape[1])
    is_published = np.arange(scores.size) % scores.shape[1] == 0
    return ScoredVersions(scores.ravel(), item, is_published)
