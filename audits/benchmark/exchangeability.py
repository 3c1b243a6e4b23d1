"""The test of a whole set: are the questions more familiar to the model than comparable texts?

If no question was trained on, questions and comparison texts are exchangeable: any relabelling is
as likely as the actual one (Fisher 1935). This replaces the repeated half-splits of dataset
inference (Maini et al. 2024, arXiv 2406.06443, section 4), whose p-values must be combined;
docs/validation/benchmark-audit.md compares the two.

Units are clusters, not texts. A cluster of one side counts as one number, its mean, and changes
sides as a whole; within a cluster of both sides (the versions of one question) the difference
counts, and labels are permuted. The statistic is the difference divided by its standard error
(Welch 1947), so that units of unequal precision, such as clusters of 2 on one side and of 10 on the
other, keep the level approximately (Janssen 1997; Chung and Romano 2013). The p-value is exact at
any number of texts if membership was drawn at random among clusters of equal size, or within
clusters; otherwise it is approximate.

Shapes: n texts, M methods, S scores, R relabellings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores

POWER = 0.8
"""The chance with which the smallest detectable effect would have been found."""
RELABELLINGS = 9_999
LEAST_P = 1 / (RELABELLINGS + 1)
"""The least p-value: the actual labels count as one relabelling."""
AT_ONCE = 500
"""Relabellings that are in memory together."""
IN_MEMORY = 4_000_000
"""Values of texts, over scores and relabellings, that are in memory together."""
TINY = 1e-9
"""Differences below it are rounding."""
Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class SetTest:
    """The result of the test.

    Attributes:
        p_value: one-sided; the chance of a difference at least as large if nothing leaked.
        p_value_below: the same for a difference at least as low.
        difference: of the means of units, in the score's unit.
        error: its standard error.
        smallest_difference: what the test would have found with 80% power at its level.
    """

    p_value: float
    p_value_below: float
    difference: float
    error: float
    smallest_difference: float

    @property
    def two_sided(self) -> float:
        """The p-value of a difference in either direction."""
        return min(1.0, 2 * min(self.p_value, self.p_value_below))


def combined_scores(scores_by_method: Scores) -> Scores:
    """Returns the mean over methods (M × n) of each text's normal score, shape (n,).

    A normal score is the normal quantile of the text's rank among all texts (van der Waerden 1952);
    no label is used, so that exchangeable texts have exchangeable combined scores. Each method has
    the same weight, since weights that are learnt from few texts are mostly noise.
    """
    from scipy.stats import norm, rankdata

    ranks = rankdata(scores_by_method, axis=1)
    normal: Scores = norm.ppf(ranks / (ranks.shape[1] + 1)).mean(axis=0)
    return normal


def merged_clusters(*groupings: Numbers) -> Numbers:
    """Returns the clusters, from 0, of texts that are together in one grouping or by a chain."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    texts = len(groupings[0])
    offsets = np.cumsum([texts, *(int(g.max()) + 1 for g in groupings)])
    places = np.concatenate([g + o for g, o in zip(groupings, offsets, strict=False)])
    rows = np.tile(np.arange(texts), len(groupings))
    links = coo_matrix((np.ones(len(rows)), (rows, places)), shape=(offsets[-1], offsets[-1]))
    numbers = connected_components(links, directed=False)[1][:texts]
    merged: Numbers = np.unique(numbers, return_inverse=True)[1]
    return merged


@dataclass(frozen=True)
class Design:
    """How texts may be relabelled, and what is compared.

    Attributes:
        is_question: the actual labels.
        cluster: the number of each text's cluster, from 0 without gaps.
    """

    is_question: Flags
    cluster: Numbers

    @cached_property
    def _cluster_has_both_sides(self) -> Flags:
        """Which clusters have texts of both sides."""
        questions = np.bincount(self.cluster, self.is_question)
        return (questions > 0) & (questions < np.bincount(self.cluster))

    @property
    def is_in_mixed_cluster(self) -> Flags:
        """Which texts are in a cluster of both sides."""
        return self._cluster_has_both_sides[self.cluster]

    @property
    def is_paired(self) -> bool:
        """Whether each cluster has both sides, as the versions of questions have."""
        return bool(self._cluster_has_both_sides.all())

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of questions, and of other texts."""
        return int(self.is_question.sum()), int((~self.is_question).sum())

    @property
    def units(self) -> tuple[int, int]:
        """The number of clusters with questions, and with other texts."""
        sides = self.cluster[self.is_question], self.cluster[~self.is_question]
        return len(np.unique(sides[0])), len(np.unique(sides[1]))

    def _texts_by_cluster(self, chosen: Flags) -> tuple[Numbers, Numbers]:
        """Returns the texts of chosen clusters, cluster by cluster, and where each begins."""
        texts = np.flatnonzero(chosen[self.cluster])
        texts = texts[np.argsort(self.cluster[texts], kind="stable")]
        return texts, np.flatnonzero(np.diff(self.cluster[texts], prepend=-1))

    @cached_property
    def _whole(self) -> tuple[Numbers, Numbers]:
        return self._texts_by_cluster(~self._cluster_has_both_sides)

    @cached_property
    def _mixed(self) -> tuple[Numbers, Numbers]:
        return self._texts_by_cluster(self._cluster_has_both_sides)

    def representatives(self, seed: int) -> Numbers:
        """Returns the texts of mixed clusters, and one of each other cluster, drawn by lot.

        Relabelling them is exact however large the clusters are.
        """
        order = np.random.default_rng(seed).permutation(len(self.cluster))
        is_chosen = self._cluster_has_both_sides[self.cluster]
        is_chosen[order[np.unique(self.cluster[order], return_index=True)[1]]] = True
        return np.flatnonzero(is_chosen)

    @cached_property
    def unit_of_text(self) -> Numbers:
        """The number of each text's unit, in the order of units' first texts.

        Units count as one: a cluster, or its part of each side if it has both. A text without a
        cluster is a unit by itself.
        """
        key = 2 * self.cluster + self.is_question
        _, first, unit = np.unique(key, return_index=True, return_inverse=True)
        numbers: Numbers = np.argsort(np.argsort(first))[unit]
        return numbers

    def unit_means(self, values: Scores) -> Scores:
        """Returns the mean of each unit's texts."""
        unit = self.unit_of_text
        means: Scores = np.bincount(unit, values) / np.bincount(unit)
        return means

    @property
    def first_texts(self) -> Numbers:
        """The first text of each unit."""
        return np.unique(self.unit_of_text, return_index=True)[1]

    def of_texts(self, texts: Numbers) -> Design:
        """Returns the design of some of the texts."""
        clusters = np.unique(self.cluster[texts], return_inverse=True)[1]
        return Design(self.is_question[texts], clusters)

    def relabellings(self, draws: int, seed: int) -> Iterator[Flags]:
        """Yields blocks of random relabellings (at most AT_ONCE × n)."""
        rng = np.random.default_rng(seed)
        whole, starts = self._whole
        unit = np.searchsorted(starts, np.arange(len(whole)), "right") - 1
        label_of_unit = self.is_question[whole[starts]]
        mixed, _ = self._mixed
        for begin in range(0, draws, AT_ONCE):
            rows = min(AT_ONCE, draws - begin)
            labels = np.empty((rows, len(self.cluster)), bool)
            shuffled = rng.permuted(np.tile(label_of_unit, (rows, 1)), axis=1)
            labels[:, whole] = shuffled[:, unit]
            order = np.argsort(self.cluster[mixed] + rng.random((rows, len(mixed))), axis=1)
            labels[:, mixed] = self.is_question[mixed[order]]
            yield labels

    def differences(self, values: Scores, labels: Flags) -> tuple[Scores, Scores]:
        """Returns the difference of the sides and its standard error for each labelling.

        The differences between pure clusters and within mixed ones are averaged with the weights
        q o / (q + o) of q questions and o others, the precision that equal variances would give.

        Args:
            values: of the texts: (n,), for each labelling its own (R × n), or of several scores
                (S × 1 × n), which gives S × R differences.
            labels: the labellings (R × n).
        """
        between, error, weight = self._between(values, labels)
        within, within_error, within_weight = self._within(values, labels)
        total = np.maximum(weight + within_weight, TINY)
        difference: Scores = (weight * between + within_weight * within) / total
        return difference, np.hypot(weight * error, within_weight * within_error) / total

    def _between(self, values: Scores, labels: Flags) -> tuple[Scores, Scores, float]:
        texts, starts = self._whole
        sides = self.is_question[texts[starts]]
        sizes = int(sides.sum()), int((~sides).sum())
        if min(sizes) < 2:
            return np.zeros(len(labels)), np.zeros(len(labels)), 0.0
        size = np.diff(np.append(starts, len(texts)))
        units = np.add.reduceat(values[..., texts], starts, axis=-1) / size
        on_side = labels[:, texts[starts]].astype(np.float64)
        units = units - units.mean(axis=-1, keepdims=True)
        squares, means, errors = units**2, [], []
        for number, side in zip(sizes, (on_side, 1 - on_side), strict=True):
            mean, square = _sums(units, side) / number, _sums(squares, side) / number
            variance = square - mean**2
            means.append(mean)
            errors.append(np.where(variance > TINY * square, variance, 0) / (number - 1))
        return means[0] - means[1], np.sqrt(sum(errors)), sizes[0] * sizes[1] / sum(sizes)

    def _within(self, values: Scores, labels: Flags) -> tuple[Scores, Scores, float]:
        texts, starts = self._mixed
        if len(starts) < 2:
            return np.zeros(len(labels)), np.zeros(len(labels)), 0.0
        inside, label = values[..., texts], labels[:, texts]
        size = np.diff(np.append(starts, len(texts)))
        questions = np.add.reduceat(self.is_question[texts].astype(np.intp), starts)
        total = np.add.reduceat(inside, starts, axis=-1)
        of_questions = np.add.reduceat(inside * label, starts, axis=-1)
        gaps = of_questions / questions - (total - of_questions) / (size - questions)
        weight = float((questions * (size - questions) / size).sum())
        return gaps.mean(axis=-1), gaps.std(axis=-1, ddof=1) / np.sqrt(len(starts)), weight


def _sums(values: Scores, labels: Scores) -> Scores:
    """Returns the sums of the values with label 1, for each labelling; see `differences`."""
    sums: Scores
    if values.ndim == 2:
        sums = np.einsum("ru,ru->r", values, labels)
    else:
        sums = (values @ labels.T).reshape(*values.shape[:-2], len(labels))
    return sums


def studentised(difference: Scores, error: Scores) -> Scores:
    """Returns differences in standard errors; infinite where there is a difference and no error."""
    bare = np.where(np.abs(difference) > TINY, np.copysign(np.inf, difference), 0.0)
    statistic: Scores = np.where(error > TINY, difference / np.maximum(error, TINY), bare)
    return statistic


def set_test(
    score: Scores,
    design: Design,
    seed: int,
    alpha: float = 0.05,
    relabellings: int = RELABELLINGS,
) -> SetTest:
    """Tests whether the questions' scores are higher.

    Args:
        score: of each text; see `combined_scores`.
        design: the labels and clusters.
        seed: of the relabellings.
        alpha: the level of the smallest detectable difference, which is at least LEAST_P.
        relabellings: their number; the least p-value is 1 / (relabellings + 1).
    """
    actual: Any
    difference, error = design.differences(score, design.is_question[None])
    (actual,) = studentised(difference, error)
    blocks = design.relabellings(relabellings, seed)
    null = np.concatenate([studentised(*design.differences(score, drawn)) for drawn in blocks])
    critical, unlucky = np.quantile(null, [1 - alpha, 1 - POWER], method="higher")
    spread = (float(critical) - float(unlucky)) * float(error[0])  # NaN without an error
    return SetTest(
        p_value=(1 + int((null >= actual - TINY).sum())) / (1 + len(null)),
        p_value_below=(1 + int((null <= actual + TINY).sum())) / (1 + len(null)),
        difference=float(difference[0]),
        error=float(error[0]),
        smallest_difference=spread if np.isfinite(spread) else np.inf,
    )


def largest_statistic_test(scores: Scores, design: Design, seed: int, draws: int) -> float:
    """Returns the two-sided p-value of the largest of several scores' statistics (S × n).

    Each relabelling gives one largest statistic, so that no correction for S is needed (Westfall
    and Young 1993, maxT).
    """

    def largest(labels: Flags) -> Scores:
        n_parts = min(len(scores), -(-scores.size * len(labels) // IN_MEMORY))
        parts = np.array_split(scores[:, None], n_parts)
        statistics = [studentised(*design.differences(part, labels)) for part in parts]
        maximum: Scores = np.max([np.abs(part).max(axis=0) for part in statistics], axis=0)
        return maximum

    (actual,) = largest(design.is_question[None])
    null = np.concatenate([*map(largest, design.relabellings(draws, seed))])
    return (1 + int((null >= actual - TINY).sum())) / (1 + len(null))
