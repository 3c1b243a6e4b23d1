"""Examples that come in clusters, such as snippets of a book: intervals that draw whole clusters.

A bootstrap of single snippets would count many similar snippets as independent evidence.

Shapes: n examples of one side, K clusters of it, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive
from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import Counts, Resample, Scores
from contamination.core.statistics.estimates import Estimate, estimate, estimate_without_value
from contamination.core.statistics.metrics import Metric

Clusters = NDArray[np.intp]  # each example's cluster, numbered from 0 without gaps
FEWEST_CLUSTERS = 2  # the fewest clusters per side that show how much clusters differ
TINY = 1e-12  # a smaller variance of draws is rounding


def draw_cluster_counts(clusters: Clusters, n_draws: int, seed: int) -> Counts:
    """Returns how often each example is drawn in `n_draws` resamples of whole clusters (D × n).

    Clusters are drawn with replacement (Davison and Hinkley 1997, section 3.8) until the draw is as
    large as the side; of the last cluster a random part is taken. So every metric sees sides of the
    usual size.
    """
    rng, cluster_sizes = np.random.default_rng(seed), np.bincount(clusters)
    rows_by_cluster = np.split(np.argsort(clusters, kind="stable"), np.cumsum(cluster_sizes)[:-1])
    n_enough_clusters = -(-len(clusters) // int(cluster_sizes.min()))
    counts = np.empty((n_draws, len(clusters)), np.float32)
    for draw in counts:
        drawn_clusters = rng.integers(0, len(cluster_sizes), n_enough_clusters)
        drawn_totals = np.cumsum(cluster_sizes[drawn_clusters])
        last = int(np.searchsorted(drawn_totals, len(clusters)))
        draw[:] = np.bincount(drawn_clusters[:last], minlength=len(cluster_sizes))[clusters]
        remaining = len(clusters) - int(drawn_totals[last] - cluster_sizes[drawn_clusters[last]])
        draw[rng.permutation(rows_by_cluster[drawn_clusters[last]])[:remaining]] += 1
    return counts


@dataclass(frozen=True)
class ClusterBootstrap:
    """Draws of the clusters of both sides, and of single examples to compare them with."""

    members: int
    """Clusters of members."""
    nonmembers: int
    """Clusters of non-members."""
    whole: Resample
    single: Resample

    @classmethod
    def of(
        cls, member_clusters: Clusters, nonmember_clusters: Clusters, n_draws: int, seed: int
    ) -> ClusterBootstrap:
        """Draw `n_draws` times from examples of these clusters."""
        whole = Resample(
            draw_cluster_counts(member_clusters, n_draws, derive(seed, "clusters of members")),
            draw_cluster_counts(
                nonmember_clusters, n_draws, derive(seed, "clusters of nonmembers")
            ),
        )
        single = bootstrap.resample(len(member_clusters), len(nonmember_clusters), n_draws, seed)
        return cls(
            len(np.unique(member_clusters)), len(np.unique(nonmember_clusters)), whole, single
        )

    def estimate(
        self, members: Scores, nonmembers: Scores, wanted: Sequence[Metric]
    ) -> dict[str, Estimate]:
        """Returns every wanted metric, by name, of one method's scores."""
        by_clusters, by_examples = (
            estimate(members, nonmembers, drawn, wanted) for drawn in (self.whole, self.single)
        )
        return {
            m.name: self._widened_estimate(by_clusters[m.name], by_examples[m.name], m)
            for m in wanted
        }

    def widen(self, clustered: Estimate) -> Estimate:
        """Returns the estimate with draws widened for the small number of clusters."""
        if needs := self._missing_clusters_text():
            return estimate_without_value(
                (clustered.n_members, clustered.n_nonmembers), len(clustered.draws), needs
            )
        if clustered.needs:
            return clustered
        mean = clustered.draws.mean()
        draws = mean + widening_factor(self.members, self.nonmembers) * (clustered.draws - mean)
        return replace(clustered, draws=draws)

    def _widened_estimate(
        self, clustered: Estimate, by_examples: Estimate, metric: Metric
    ) -> Estimate:
        return self.widen(
            replace(clustered, trials=self._effective_trials(clustered, by_examples, metric))
        )

    def _effective_trials(
        self, clustered: Estimate, by_examples: Estimate, metric: Metric
    ) -> float | None:
        """Those of single examples over the design effect (Kish 1965), the ratio of variances.

        Where draws don't differ it is not known, and each cluster counts as one example.
        """
        if metric.trials is None or by_examples.trials is None:
            return None
        variances = clustered.draws.var(), by_examples.draws.var()
        if min(variances) < TINY:
            return metric.trials(self.members, self.nonmembers)
        return by_examples.trials / max(1.0, float(variances[0] / variances[1]))

    def _missing_clusters_text(self) -> str:
        sides = {"members": self.members, "non-members": self.nonmembers}
        few = [
            f"≥ {FEWEST_CLUSTERS} clusters of {side}"
            for side, number in sides.items()
            if number < FEWEST_CLUSTERS
        ]
        return " and ".join(few)


def widening_factor(n_member_clusters: int, n_nonmember_clusters: int) -> float:
    """Returns the factor by which the draws' deviations are multiplied.

    √(K / (K − 1)), since the variance among K drawn clusters is that much too small on average
    (Rao and Wu 1988); and Student's quantile over the normal one, since it is itself uncertain.
    Both are 1 with many clusters.
    """
    from scipy.stats import norm, t

    fewer, tail = min(n_member_clusters, n_nonmember_clusters), 0.975
    student = t.ppf(tail, n_member_clusters + n_nonmember_clusters - 2) / norm.ppf(tail)
    return float(np.sqrt(fewer / (fewer - 1)) * student)
