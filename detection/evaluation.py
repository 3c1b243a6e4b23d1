"""How well scores distinguish members from non-members.

Estimates are per benchmark, their mean over benchmarks, and over all texts pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import (
    ALL_BENCHMARKS,
    Estimate,
    confidence_interval,
    mean_over_benchmarks,
    needs_by_benchmark_text,
)
from contamination.core.statistics.metrics import AUROC, Metric, auroc_trials, chosen_metrics
from contamination.core.statistics.samples import LabelledSample
from contamination.data.texts import Text, Texts, clusters_of
from contamination.detection.baselines.blind import (
    BLIND,
    BlindBaseline,
    BlindBaselineFunction,
    blind_auroc_warning,
    blind_baseline,
    blind_obstacle,
    text_difference_warning,
)
from contamination.detection.baselines.matching import (
    MATCHED,
    leftover_style_auroc,
    matched_auroc_given_blind,
)

METRICS = chosen_metrics([0.05], [0.95])
DRAWS, CONFIDENCE, SEED = 1_000, 0.95, 0
POOLED = "pooled over all texts"
"""Unlike the mean, it also compares members of one benchmark with non-members of another."""

MethodKey = tuple[str, str]
ReadScores = Callable[[], Iterable[tuple[MethodKey, pd.DataFrame]]]
Estimates = dict[tuple[str, str], dict[str, Estimate]]
"""(method, variant) → metric → estimate."""


@dataclass(frozen=True)
class BenchmarkEstimates:
    """How well each method distinguishes the members of a benchmark, or of several.

    Attributes:
        name: the benchmark, or `ALL` or `POOLED` for several.
        members: the number of members.
        nonmembers: the number of non-members.
        estimates: the estimates by method; empty without members or without non-members.
        needs: what is missing for estimates of `ALL`; empty if nothing is.
        notes: the result of the blind baseline, or why there is none.
        clusters: the number of clusters of members and of non-members; None if the texts have none.
    """

    name: str
    members: int
    nonmembers: int
    estimates: Estimates
    needs: str = ""
    notes: list[str] = field(default_factory=list)
    clusters: tuple[int, int] | None = None

    @property
    def clusters_text(self) -> str:
        """The clusters in words, such as " (of 50 + 50 clusters)"; empty if there are none."""
        return f" (of {self.clusters[0]} + {self.clusters[1]} clusters)" if self.clusters else ""


def estimate_benchmarks_and_all(
    read_scores: ReadScores, examples: Texts, blind: bool, metrics: Sequence[Metric] = METRICS
) -> list[BenchmarkEstimates]:
    """Estimates every metric of every method on the labelled texts.

    Args:
        read_scores: returns the ranked rows of each method and variant (`group_by_method`). It is
            called repeatedly.
        examples: the ranked texts.
        blind: whether to add the blind baseline, which assumes texts that were sampled one by one.
        metrics: the metrics.

    Returns:
        The only benchmark's estimates; or the mean, each benchmark's, and the pooled estimates.
    """
    names = sorted({e.benchmark for e in examples})
    texts_by_benchmark = {name: [e for e in examples if e.benchmark == name] for name in names}
    n_comparisons = (
        len(texts_by_benchmark) if len(texts_by_benchmark) < 2 else len(texts_by_benchmark) + 2
    )
    groups = [
        estimate_group(name, read_scores(), texts, blind, metrics, n_comparisons=n_comparisons)
        for name, texts in texts_by_benchmark.items()
    ]
    if len(groups) < 2:
        return groups
    pooled = estimate_group(
        POOLED, read_scores(), examples, blind, metrics, n_comparisons=n_comparisons
    )
    return [_mean_over_benchmarks(groups, examples, metrics, n_comparisons), *groups, pooled]


def group_by_method(tables: Iterable[pd.DataFrame]) -> Iterator[tuple[MethodKey, pd.DataFrame]]:
    """Yields the ranked rows of each method and variant.

    Their columns are example_id, method, variant, score and ranked.
    """
    for table in tables:
        rows = table.loc[table["ranked"], ["example_id", "method", "variant", "score", "ranked"]]
        keys = rows[["method", "variant"]].drop_duplicates()
        for method, variant in keys.itertuples(index=False):
            is_method = (rows["method"] == method) & (rows["variant"] == variant)
            yield (method, variant), rows if is_method.all() else rows[is_method]


def ranked_texts(examples: Sequence[Text], scores: pd.DataFrame) -> Texts:
    """Returns the ranked texts; a text is ranked by all methods or by none."""
    texts, ids = Texts.of(examples), scores["example_id"][scores["ranked"]]
    is_ranked = pc.is_in(texts.column("example_id"), value_set=pa.array(ids, pa.string()))
    return texts.take(is_ranked.to_numpy())


def scores_by_membership(scores: pd.DataFrame, examples: Sequence[Text]) -> tuple[Scores, Scores]:
    """Returns one method's scores of the members, and of the non-members, among the examples."""
    values = scores.set_index("example_id")["score"]
    members = [e.example_id for e in examples if e.label is True]
    nonmembers = [e.example_id for e in examples if e.label is False]
    return values[members].to_numpy(), values[nonmembers].to_numpy()


def tidy_estimates(groups: Sequence[BenchmarkEstimates]) -> pd.DataFrame:
    """Returns one row per group, method, variant and metric.

    Columns: benchmark (`all` and `pooled` stand for several), members, nonmembers, method, variant,
    metric, value, low and high (the ends of its 95% interval), needs (why there is no value).
    """
    rows: list[dict[str, Any]] = []
    rows_without_estimates = []
    for group in groups:
        name = group.name.partition(" ")[0] if group.name == POOLED else group.name
        sizes = {"benchmark": name, "members": group.members, "nonmembers": group.nonmembers}
        if group.needs:
            rows_without_estimates.append({**sizes, "method": "", "needs": group.needs})
        rows += [
            {
                **sizes,
                "method": method,
                "variant": variant,
                "metric": metric,
                "value": None if estimate.needs else estimate.value,
                **dict(zip(("low", "high"), _interval_ends(estimate), strict=True)),
                "needs": estimate.needs or "",
            }
            for (method, variant), estimates in group.estimates.items()
            for metric, estimate in estimates.items()
        ]
    return pd.DataFrame([*rows, *rows_without_estimates], columns=COLUMNS)


COLUMNS = [
    *("benchmark", "members", "nonmembers", "method", "variant"),
    *("metric", "value", "low", "high", "needs"),
]


def _interval_ends(metric_estimate: Estimate) -> tuple[float | None, float | None]:
    return (
        (None, None) if metric_estimate.needs else confidence_interval(metric_estimate, CONFIDENCE)
    )


def estimate_group(
    name: str,
    scores_by_method: Iterable[tuple[MethodKey, pd.DataFrame]],
    examples: Sequence[Text],
    blind: bool,
    metrics: Sequence[Metric],
    match: bool = False,
    baseline: BlindBaselineFunction = blind_baseline,
    n_comparisons: int = 1,
) -> BenchmarkEstimates:
    """Estimates every metric of every method on one group of texts.

    Args:
        name: the group's name, which also seeds the resamples.
        scores_by_method: pairs of a method and variant, and its ranked rows.
        examples: the texts; unlabelled ones are ignored.
        blind: whether to add the blind baseline.
        metrics: the metrics.
        match: whether to add each method's AUROC after matching on what the texts alone reveal
            (`baselines.matching`), and to the blind row the style that matching leaves.
        baseline: computes the blind baseline.
        n_comparisons: the number of groups whose blind rows a reader sees. A note appears on any of
            them by chance in 5% of the cases (Bonferroni).
    """
    texts, member = _texts_and_labels(examples)
    cluster = clusters_of([e for e in examples if e.label is not None])
    sample = LabelledSample.of(member, cluster, DRAWS, derive_seed(SEED, name))
    reason = blind_obstacle(texts, member, cluster)
    blind_row = None
    if blind and not reason:
        blind_row = baseline(texts, member, derive_seed(SEED, BLIND, name), group=cluster)
    estimates: Estimates = {}
    for method, scores in scores_by_method:
        sides = scores_by_membership(scores, examples)
        if all(map(len, sides)):
            estimates[method] = sample.estimate(*sides, metrics)
            if match:
                auroc = estimates[method][AUROC.name]
                estimates[method][MATCHED.name] = _matched_auroc(
                    sample, member, blind_row, sides, auroc
                )
    if blind_row and estimates:
        rows = np.flatnonzero(member), np.flatnonzero(~member)
        estimates[BLIND, ""] = blind_row.estimates(*rows, metrics, DRAWS)
        if match and blind_row.style:
            estimates[BLIND, ""][MATCHED.name] = leftover_style_auroc(
                blind_row.style, sample.sizes, DRAWS
            )
    notes = _blind_notes(estimates, reason, n_comparisons)
    return BenchmarkEstimates(name, *sample.sizes, estimates, "", notes, sample.cluster_counts)


def _matched_auroc(
    sample: LabelledSample,
    member: NDArray[np.bool_],
    blind_row: BlindBaseline | None,
    sides: tuple[Scores, Scores],
    auroc: Estimate,
) -> Estimate:
    """Returns the matched AUROC of a method's scores.

    Clusters reduce its effective number of trials by the same factor as those of `auroc`.
    """
    matched_auroc = matched_auroc_given_blind(blind_row, member, *sides, sample.resample)
    if not sample.clusters or matched_auroc.trials is None or auroc.trials is None:
        return matched_auroc
    share = auroc.trials / auroc_trials(*sample.sizes)
    return sample.widen(replace(matched_auroc, trials=matched_auroc.trials * share))


def _blind_notes(estimates: Estimates, reason: str | None, n_comparisons: int) -> list[str]:
    """Returns a note if the blind baseline beats chance, or if there are too few texts for it."""
    if (BLIND, "") not in estimates:
        return [f"no blind row: {reason}"] if reason else []
    blind_auroc = estimates[BLIND, ""][AUROC.name]
    if (
        blind_auroc_warning(
            blind_auroc.value,
            *confidence_interval(blind_auroc, 1 - (1 - CONFIDENCE) / n_comparisons),
        )
        is None
    ):
        return []
    low, high = confidence_interval(blind_auroc, CONFIDENCE)
    return [text_difference_warning(f"blind AUROC {blind_auroc.value:.2f} [{low:.2f}, {high:.2f}]")]


def _texts_and_labels(examples: Sequence[Text]) -> tuple[list[str], NDArray[np.bool_]]:
    labelled = [e for e in examples if e.label is not None]
    return [e.text for e in labelled], np.array([e.label for e in labelled], bool)


def _mean_over_benchmarks(
    groups: Sequence[BenchmarkEstimates],
    examples: Texts,
    metrics: Sequence[Metric],
    n_comparisons: int,
) -> BenchmarkEstimates:
    """Returns the estimates named `ALL`: the mean over benchmarks, if each has an estimate."""
    members, nonmembers = sum(g.members for g in groups), sum(g.nonmembers for g in groups)
    needs_by_name = {
        g.name or "those of no benchmark": AUROC.needs(g.members, g.nonmembers) for g in groups
    }
    if needs := needs_by_benchmark_text(needs_by_name):
        return BenchmarkEstimates(ALL_BENCHMARKS, members, nonmembers, {}, needs)
    estimates: Estimates = {}
    for method in groups[0].estimates:
        by_name: Mapping[str, dict[str, Estimate]] = {
            g.name: g.estimates[method] for g in groups if method in g.estimates
        }
        if len(by_name) == len(groups):  # the blind baseline may lack texts
            estimates[method] = {
                m.name: mean_over_benchmarks(
                    {name: by_metric[m.name] for name, by_metric in by_name.items()}
                )
                for m in metrics
            }
    notes = _blind_notes(estimates, blind_obstacle(*_texts_and_labels(examples)), n_comparisons)
    return BenchmarkEstimates(ALL_BENCHMARKS, members, nonmembers, estimates, "", notes)
