"""Samples of members and non-members with bootstrap draws of examples, texts or clusters.

Estimates on one sample use the same draws, so their differences are paired.

Shapes: n examples, U units (such as the chunks of texts), K clusters of one side, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import (
    Counts,
    Resample,
    Scores,
    draw_counts,
    rank_scores,
)
from contamination.core.statistics.bootstrap import draw_resample as resample_examples
from contamination.core.statistics.estimates import (
    Estimate,
    estimate_metrics,
    estimate_without_value,
)
from contamination.core.statistics.metrics import AUROC, Metric

Clusters = NDArray[np.intp]
"""Each example's cluster, numbered from 0 without gaps."""
Mask = NDArray[np.bool_]
MIN_CLUSTERS = 2
"""The minimum number of clusters per side: with fewer, their variance is unknown."""
ROUNDING_VARIANCE = 1e-12
"""A smaller variance of draws is a rounding error."""


def estimate_mean(
    values: Scores, drawn: Counts, n_texts: int | None = None, *, rate: bool = False
) -> Estimate:
    """Returns an estimate of the mean of one side's values.

    Args:
        values: the values of the examples or units (U).
        drawn: how often each draw has each of them (D × U).
        n_texts: the number of independent texts, which is `n_members` of the estimate; None: U.
        rate: whether the values are 0 or 1, so that the mean has `n_texts` trials.
    """
    n_texts = len(values) if n_texts is None else n_texts
    draws = drawn @ values / drawn.sum(axis=1)
    return Estimate(n_texts, 0, float(values.mean()), draws, n_texts if rate else None)


def estimate_difference(minuend: Estimate, subtrahend: Estimate) -> Estimate:
    """Returns the paired difference of two estimates; its interval is the draws' percentiles."""
    value, draws = minuend.value - subtrahend.value, minuend.draws - subtrahend.draws
    return replace(minuend, value=value, draws=draws, trials=None, steps=None)


@dataclass(frozen=True)
class UnitSample:
    """Some of the units, with bootstrap draws: all units of a text are drawn together.

    Attributes:
        rows: the indices of the units.
        drawn: how often each draw has each unit (D × U).
        texts: the number of texts.
    """

    rows: NDArray[np.intp]
    drawn: Counts
    texts: int

    @classmethod
    def draw(cls, mask: Mask, text_ids: NDArray[np.str_], draws: int, seed: int) -> UnitSample:
        """Returns the units selected by the mask, with draws of their texts."""
        rows = np.flatnonzero(mask)
        _, text = np.unique(text_ids[rows], return_inverse=True)
        texts = int(text.max(initial=-1)) + 1
        return cls(rows, draw_counts(max(1, texts), draws, seed)[:, text], texts)

    def mean(self, values: Scores, *, rate: bool = False) -> Estimate:
        """Returns the mean over the units; with `rate` (0s and 1s), each text is a trial."""
        return estimate_mean(values[self.rows], self.drawn, self.texts, rate=rate)


@dataclass(frozen=True)
class LabelledUnits:
    """The units of members and of non-members."""

    members: UnitSample
    nonmembers: UnitSample

    def auroc(self, values: Scores) -> Estimate:
        """Returns the AUROC of members against non-members."""
        members, nonmembers = self.members, self.nonmembers
        member_values, nonmember_values = values[members.rows], values[nonmembers.rows]
        ranked = rank_scores(
            member_values, nonmember_values, Resample(members.drawn, nonmembers.drawn)
        )
        drawn_pairs = members.drawn.sum(axis=1, dtype=np.float64) * nonmembers.drawn.sum(
            axis=1, dtype=np.float64
        )
        all_pairs = len(member_values) * len(nonmember_values)
        draws = AUROC.draws(ranked) * all_pairs / drawn_pairs
        value = AUROC.value(member_values, nonmember_values)
        texts = members.texts, nonmembers.texts
        assert AUROC.trials is not None
        return Estimate(*texts, value, draws, AUROC.trials(*texts))


def number_clusters(named: Sequence[tuple[str, str]]) -> Clusters | None:
    """Returns each example's cluster as a number from 0; None if no example has one.

    An example without a cluster is a cluster of its own.

    Args:
        named: the benchmark and the cluster's name ("" if none) of each example.
    """
    if not any(cluster for _, cluster in named):
        return None
    number_by_key: dict[object, int] = {}
    cluster_keys = (key if key[1] else index for index, key in enumerate(named))
    return np.array(
        [number_by_key.setdefault(key, len(number_by_key)) for key in cluster_keys], np.intp
    )


def clusters_by_side(cluster: Clusters, member: Mask) -> tuple[Clusters, Clusters]:
    """Returns the members' clusters and the non-members' clusters, each numbered from 0.

    A cluster with both members and non-members becomes one cluster on each side. The intervals are
    then too wide rather than too narrow, since a shared cluster moves both sides together.
    """
    members, nonmembers = (
        np.unique(cluster[side], return_inverse=True)[1] for side in (member, ~member)
    )
    return members, nonmembers


def draw_cluster_counts(cluster: Clusters, draws: int, seed: int) -> Counts:
    """Returns how often each example is drawn in `draws` resamples of whole clusters (D × n).

    The scores of snippets of one book are correlated, so a bootstrap of single snippets would
    treat similar snippets as independent. Here clusters are drawn with replacement (Davison and
    Hinkley 1997, section 3.8) until the draw is as large as the side. A random part of the last
    cluster is taken, so that all draws have the same size.
    """
    rng, size = np.random.default_rng(seed), np.bincount(cluster)
    rows = np.split(np.argsort(cluster, kind="stable"), np.cumsum(size)[:-1])
    max_clusters = -(-len(cluster) // int(size.min()))
    counts = np.empty((draws, len(cluster)), np.float32)
    for draw in counts:
        picked = rng.integers(0, len(size), max_clusters)
        total = np.cumsum(size[picked])
        last = int(np.searchsorted(total, len(cluster)))
        draw[:] = np.bincount(picked[:last], minlength=len(size))[cluster]
        remaining = len(cluster) - int(total[last] - size[picked[last]])
        draw[rng.permutation(rows[picked[last]])[:remaining]] += 1
    return counts


@dataclass(frozen=True)
class LabelledSample:
    """Members and non-members, with bootstrap draws of their clusters, or of single examples.

    Attributes:
        sizes: the numbers of members and of non-members.
        clusters: the members' and the non-members' clusters; None if there are none.
        draws: the number of draws.
        seed: the seed of the draws.
    """

    sizes: tuple[int, int]
    clusters: tuple[Clusters, Clusters] | None
    draws: int
    seed: int

    @classmethod
    def of(cls, member: Mask, cluster: Clusters | None, draws: int, seed: int) -> LabelledSample:
        """Returns the sample; clusters are ignored if there are no members or no non-members."""
        sizes = int(member.sum()), int((~member).sum())
        if cluster is None or not all(sizes):
            return cls(sizes, None, draws, seed)
        return cls(sizes, clusters_by_side(cluster, member), draws, seed)

    @property
    def cluster_counts(self) -> tuple[int, int] | None:
        """The numbers of clusters of members and of non-members, or None."""
        if self.clusters is None:
            return None
        members, nonmembers = (len(np.unique(side)) for side in self.clusters)
        return members, nonmembers

    @cached_property
    def resample(self) -> Resample:
        """The draws: of whole clusters if there are any, otherwise of single examples."""
        if self.clusters is None:
            return self.resample_of_single_examples
        members, nonmembers = self.clusters
        return Resample(
            draw_cluster_counts(members, self.draws, derive_seed(self.seed, "clusters of members")),
            draw_cluster_counts(
                nonmembers, self.draws, derive_seed(self.seed, "clusters of nonmembers")
            ),
        )

    @cached_property
    def resample_of_single_examples(self) -> Resample:
        """Draws of single examples, with which draws of clusters are compared."""
        return resample_examples(*self.sizes, self.draws, self.seed)

    def estimate(
        self, member_scores: Scores, nonmember_scores: Scores, metrics: Sequence[Metric]
    ) -> dict[str, Estimate]:
        """Returns the estimates of the metrics, by name, from one method's scores."""
        estimates = estimate_metrics(member_scores, nonmember_scores, self.resample, metrics)
        if self.clusters is None:
            return estimates
        by_examples = estimate_metrics(
            member_scores, nonmember_scores, self.resample_of_single_examples, metrics
        )
        return {
            m.name: self.widen(
                replace(
                    estimates[m.name],
                    trials=self._trials(estimates[m.name], by_examples[m.name], m),
                )
            )
            for m in metrics
        }

    def widen(self, clustered: Estimate) -> Estimate:
        """Returns the estimate with draws widened for the small number of clusters."""
        counts = self.cluster_counts
        assert counts is not None
        missing = [
            f"≥ {MIN_CLUSTERS} clusters of {side}"
            for side, number in zip(("members", "non-members"), counts, strict=True)
            if number < MIN_CLUSTERS
        ]
        if missing:
            sizes = clustered.n_members, clustered.n_nonmembers
            return estimate_without_value(sizes, len(clustered.draws), " and ".join(missing))
        if clustered.needs:
            return clustered
        mean = clustered.draws.mean()
        draws = mean + widening_factor(*counts) * (clustered.draws - mean)
        return replace(clustered, draws=draws)

    def _trials(self, clustered: Estimate, by_examples: Estimate, metric: Metric) -> float | None:
        """The trials of single examples, divided by the design effect (Kish 1965).

        The design effect is the ratio of the variances. If the draws don't vary, it is unknown, and
        each cluster counts as one example.
        """
        if metric.trials is None or by_examples.trials is None:
            return None
        variances = clustered.draws.var(), by_examples.draws.var()
        if min(variances) < ROUNDING_VARIANCE:
            assert self.cluster_counts is not None
            return metric.trials(*self.cluster_counts)
        return by_examples.trials / max(1.0, float(variances[0] / variances[1]))


def widening_factor(members: int, nonmembers: int) -> float:
    """Returns the factor that widens the draws' deviations, given the numbers of clusters.

    It is √(K / (K − 1)), which corrects the too small variance among K drawn clusters (Rao and Wu
    1988), times Student's quantile divided by the normal quantile, since the variance is itself
    uncertain. Both factors approach 1 with many clusters.
    """
    from scipy.stats import norm, t

    fewer, tail = min(members, nonmembers), 0.975
    student = t.ppf(tail, members + nonmembers - 2) / norm.ppf(tail)
    return float(np.sqrt(fewer / (fewer - 1)) * student)
