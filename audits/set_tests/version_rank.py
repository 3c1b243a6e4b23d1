"""The random-version rank test: is the version that was published known better than its siblings?

Each item has K versions that were made alike, one of which was drawn at random and published. If
the model saw none, the published version's rank among its siblings is uniform on 1, …, K, whatever
the model is. One test therefore serves random canaries (Carlini et al. 2019, arXiv 1802.08232,
exposure; Zhang et al. 2024, arXiv 2409.19798: p = rank / (n + 1) for one canary among n
unused ones), natural identifiers (arXiv 2606.24408) and rewordings (STAMP: Rastogi et al. 2025,
arXiv 2504.13416, which has a paired t-test in its place).

The statistic is T = Σ_i R_i, the sum over items of the published version's rank (1: the lowest
score; ties get their mean rank). Its null distribution, over all draws of one version per item, is
the convolution of the items' ranks, so that p = P(T' ≥ T) is exact and needs no random draws.
`permuted_p_value` is the same for the scores themselves, by random draws: p = (1 + #{≥}) / (B + 1).

Shapes: n texts, which are the versions of N items.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contamination.audits.benchmark.exchangeability import Design, set_test
from contamination.core.errors import DataError
from contamination.core.statistics.bootstrap import Scores


@dataclass(frozen=True)
class ScoredVersions:
    """The scores of the versions of items, of which one each was published.

    Attributes:
        scores: of the texts, shape (n,).
        item: the number of each text's item, from 0 without gaps, shape (n,).
        is_published: which text was published; one of each item, shape (n,).

    Raises:
        DataError: an item has not exactly one published version, or no other one.
    """

    scores: Scores
    item: NDArray[np.intp]
    is_published: NDArray[np.bool_]

    def __post_init__(self) -> None:
        published = np.bincount(self.item, self.is_published)
        wrong = np.flatnonzero((published != 1) | (np.bincount(self.item) < 2))
        if len(wrong):
            raise DataError(
                f"item {wrong[0]} has {published[wrong[0]]:.0f} published of "
                f"{np.bincount(self.item)[wrong[0]]} versions. Give items of two or more versions, "
                "one of which was published."
            )

    @cached_property
    def doubled_ranks(self) -> NDArray[np.int64]:
        """Twice the rank of each text within its item, so that mean ranks of ties are whole."""
        order = np.lexsort((self.scores, self.item))
        item, scores = self.item[order], self.scores[order]
        place = np.arange(len(order)) - np.searchsorted(item, item)  # within the item, from 0
        begins = np.append(True, (np.diff(item) > 0) | (np.diff(scores) > 0))
        group = np.cumsum(begins) - 1  # of ties
        first, last = np.flatnonzero(begins), np.append(np.flatnonzero(begins)[1:], len(order)) - 1
        doubled = np.empty(len(order), np.int64)
        doubled[order] = (place[first] + place[last])[group] + 2
        return doubled

    @cached_property
    def null_distribution(self) -> Scores:
        """P(2 T' = s) for s = 0, 1, …: the sum of a random version's doubled rank of each item."""
        order = np.argsort(self.item, kind="stable")
        distribution = np.ones(1)
        for rows in np.split(order, np.cumsum(np.bincount(self.item))[:-1]):
            of_item = np.bincount(self.doubled_ranks[rows]) / len(rows)
            distribution = np.convolve(distribution, of_item)
        return distribution

    def redrawn(self, rng: np.random.Generator) -> ScoredVersions:
        """Returns the same scores with a version of each item drawn anew as the published one."""
        order = np.lexsort((rng.random(len(self.item)), self.item))
        first = np.flatnonzero(np.diff(self.item[order], prepend=-1))
        is_published = np.zeros(len(self.item), bool)
        is_published[order[first]] = True
        return ScoredVersions(self.scores, self.item, is_published)

    def of_items(self, items: NDArray[np.intp]) -> ScoredVersions:
        """Returns the versions of some of the items."""
        rows = np.flatnonzero(np.isin(self.item, items))
        numbers = np.unique(self.item[rows], return_inverse=True)[1]
        return ScoredVersions(self.scores[rows], numbers, self.is_published[rows])


class Tail(NamedTuple):
    """The tail of a statistic's null distribution at its value.

    Attributes:
        p_value: P(T' ≥ T).
        above: P(T' > T). A value drawn uniformly between the two is uniform without an effect,
            however discrete the statistic is.
    """

    p_value: float
    above: float

    @classmethod
    def of(cls, distribution: Scores, statistic: int) -> Tail:
        """Returns the tail of a distribution over 0, 1, …."""
        above = float(min(1.0, distribution[statistic + 1 :].sum()))
        return cls(min(1.0, above + float(distribution[statistic])), above)


def rank_tail(versions: ScoredVersions) -> Tail:
    """Returns P(T' ≥ T) and P(T' > T), exact over the uniform draw of one version per item."""
    statistic = int(versions.doubled_ranks[versions.is_published].sum())
    return Tail.of(versions.null_distribution, statistic)


def permuted_p_value(versions: ScoredVersions, seed: int) -> float:
    """Returns the p-value of the published versions' mean score, by draws within items.

    It is the test of the audit of a set of questions, whose statistic is the mean difference from
    the other versions in standard errors.
    """
    return set_test(versions.scores, Design(versions.is_published, versions.item), seed).p_value
