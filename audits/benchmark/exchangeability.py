"""The test of a whole set: are the questions more familiar to the model than comparable texts?

If no question was trained on, questions and comparison texts are exchangeable: any relabelling is
as likely as the actual one. So the p-value is exact at any number of texts (Fisher 1935), whatever
the scores are. This replaces the repeated half-splits of dataset inference (Maini et al. 2024,
arXiv 2406.06443, section 4), whose p-values must be combined; docs/validation/benchmark-audit.md
compares the two.

Shapes: n texts, M methods, R relabellings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Scores

POWER = 0.8
"""The chance with which the smallest detectable effect would have been found."""
RELABELLINGS = 9_999
TINY = 1e-9
"""Differences below it are rounding."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class SetTest:
    """The result of the test.

    Attributes:
        p_value: one-sided; the chance of a difference at least as large if nothing leaked.
        effect: d′, the difference of the mean combined scores in standard deviations within a side.
        smallest_effect: the d′ that the test would have found with 80% power at level `alpha`.
    """

    p_value: float
    effect: float
    smallest_effect: float


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


def relabellings(is_question: Flags, cluster: NDArray[np.intp], draws: int, seed: int) -> Flags:
    """Returns random relabellings (draws × n) that keep clusters whole.

    A cluster with texts of one side changes sides as a whole; within a cluster that has both (the
    versions of one question), labels are permuted.

    Args:
        is_question: the actual labels.
        cluster: the number of each text's cluster, from 0.
        draws: how many.
        seed: the seed.
    """
    rng = np.random.default_rng(seed)
    clusters = int(cluster.max()) + 1
    size = np.bincount(cluster, minlength=clusters)
    questions = np.bincount(cluster, is_question, clusters)
    mixed = (questions > 0) & (questions < size)
    whole_clusters = np.flatnonzero(~mixed & (size > 0))
    in_mixed = np.flatnonzero(mixed[cluster])
    in_mixed = in_mixed[np.argsort(cluster[in_mixed], kind="stable")]
    label_of = questions[whole_clusters] > 0
    place = np.zeros(clusters, np.intp)
    place[whole_clusters] = np.arange(len(whole_clusters))
    in_whole = np.flatnonzero(~mixed[cluster])
    drawn = np.empty((draws, len(cluster)), bool)
    for labels in drawn:
        labels[in_whole] = rng.permutation(label_of)[place[cluster[in_whole]]]
        shuffled = np.lexsort((rng.random(len(in_mixed)), cluster[in_mixed]))
        labels[in_mixed] = is_question[in_mixed[shuffled]]
    return drawn


def set_test(
    score: Scores, is_question: Flags, cluster: NDArray[np.intp], seed: int, alpha: float = 0.05
) -> SetTest:
    """Tests whether the questions' combined scores are higher.

    Args:
        score: see `combined_scores`.
        is_question: which texts are questions; the others are fresh, or other versions.
        cluster: the number of each text's cluster, from 0; a cluster with both sides is a question
            with its versions, and only differences within it count.
        seed: of the relabellings.
        alpha: the level of the smallest detectable effect.
    """
    score = without_cluster_means(score, is_question, cluster)
    drawn = relabellings(is_question, cluster, RELABELLINGS, seed)
    difference = float(_differences(score, is_question[None])[0])
    null = _differences(score, drawn)
    reaching = int((null >= difference - TINY).sum())
    spread = np.sqrt((score[is_question].var() + score[~is_question].var()) / 2)
    critical, unlucky = np.quantile(null, [1 - alpha, 1 - POWER], method="higher")
    return SetTest(
        p_value=(1 + reaching) / (1 + len(null)),
        effect=float(difference / spread) if spread > TINY else 0.0,
        smallest_effect=float((critical - unlucky) / spread) if spread > TINY else np.inf,
    )


def _differences(score: Scores, labels: Flags) -> Scores:
    """Returns the difference of the sides' means for each labelling (R × n)."""
    questions, sums = labels.sum(axis=1), labels @ score
    differences: Scores = sums / questions - (score.sum() - sums) / (len(score) - questions)
    return differences


def without_cluster_means(score: Scores, is_question: Flags, cluster: NDArray[np.intp]) -> Scores:
    """Returns the scores, each less its cluster's mean if the cluster has both sides."""
    size = np.bincount(cluster)
    questions = np.bincount(cluster, is_question)
    means = np.bincount(cluster, score) / np.maximum(size, 1)
    mixed = (questions > 0) & (questions < size)
    centred: Scores = score - np.where(mixed, means, 0.0)[cluster]
    return centred
