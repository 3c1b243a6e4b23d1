"""How well scores tell members from non-members: by benchmark, their mean, and over all texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Resample, Scores, resample
from contamination.core.statistics.clusters import Clustered, Clusters
from contamination.core.statistics.estimates import (
    ALL,
    Estimate,
    estimate,
    interval,
    mean_over,
    needs_over,
)
from contamination.core.statistics.metrics import AUROC, Metric, auroc_trials, chosen_metrics
from contamination.data.texts import Text, Texts, clusters_of, sides
from contamination.detection.baselines.blind import (
    BLIND,
    Baseline,
    Blind,
    blind_baseline,
    obstacle,
    texts_tell,
    warning,
)
from contamination.detection.baselines.matching import MATCHED, leftover, matched_by

METRICS = chosen_metrics([0.05], [0.95])
DRAWS, CONFIDENCE, SEED = 1_000, 0.95, 0
POOLED = "pooled over all texts"
"""Unlike the mean over benchmarks, it also compares members of one with non-members of another."""

Key = tuple[str, str]
Read = Callable[[], Iterable[tuple[Key, pd.DataFrame]]]
Estimates = dict[tuple[str, str], dict[str, Estimate]]
"""(method, variant) → metric → estimate."""


@dataclass(frozen=True)
class Group:
    """Some texts, and how well each method tells their members.

    Attributes:
        name: the benchmark, or what stands for several (`ALL`, `POOLED`).
        members: how many there are.
        nonmembers: how many there are.
        found: the estimates; none where one of both kinds is missing.
        needs: what `ALL` lacks to have any.
        notes: what the texts alone say (the blind baseline), or why that is not known.
        clusters: of how many the members are, and the non-members; None: each text for itself.
    """

    name: str
    members: int
    nonmembers: int
    found: Estimates
    needs: str = ""
    notes: list[str] = field(default_factory=list)
    clusters: tuple[int, int] | None = None

    @property
    def of_clusters(self) -> str:
        """Such as " (of 50 + 50 clusters)"; empty where each text stands for itself."""
        return f" (of {self.clusters[0]} + {self.clusters[1]} clusters)" if self.clusters else ""


def evaluated(
    read: Read, examples: Texts, blind: bool, metrics: Sequence[Metric] = METRICS
) -> list[Group]:
    """The groups of the labelled texts: one benchmark alone; or their mean, each, and all pooled.

    Args:
        read: the ranked rows by method and variant (`by_method`), as often as it is called.
        examples: the ranked texts.
        blind: add the blind baseline, which takes texts that were drawn one by one.
        metrics: what is estimated.
    """
    names = sorted({e.benchmark for e in examples})
    parts = {name: [e for e in examples if e.benchmark == name] for name in names}
    looks = len(parts) if len(parts) < 2 else len(parts) + 2
    groups = [
        group(name, read(), texts, blind, metrics, looks=looks) for name, texts in parts.items()
    ]
    if len(groups) < 2:
        return groups
    pooled = group(POOLED, read(), examples, blind, metrics, looks=looks)
    return [_mean(groups, examples, metrics, looks), *groups, pooled]


def by_method(tables: Iterable[pd.DataFrame]) -> Iterator[tuple[Key, pd.DataFrame]]:
    """Each method and variant's ranked rows: example_id, method, variant, score, ranked."""
    for table in tables:
        rows = table.loc[table["ranked"], ["example_id", "method", "variant", "score", "ranked"]]
        keys = rows[["method", "variant"]].drop_duplicates()
        for method, variant in keys.itertuples(index=False):
            own = (rows["method"] == method) & (rows["variant"] == variant)
            yield (method, variant), rows if own.all() else rows[own]


def ranked_texts(examples: Sequence[Text], scores: pd.DataFrame) -> Texts:
    """The texts that are ranked, by one method as by all."""
    texts, ids = Texts.of(examples), scores["example_id"][scores["ranked"]]
    is_ranked = pc.is_in(texts.column("example_id"), value_set=pa.array(ids, pa.string()))
    return texts.take(is_ranked.to_numpy())


def split(scores: pd.DataFrame, examples: Sequence[Text]) -> tuple[Scores, Scores]:
    """One method's scores of the members and of the non-members among the examples."""
    values = scores.set_index("example_id")["score"]
    members = [e.example_id for e in examples if e.label is True]
    nonmembers = [e.example_id for e in examples if e.label is False]
    return values[members].to_numpy(), values[nonmembers].to_numpy()


def tidy(groups: Sequence[Group]) -> pd.DataFrame:
    """One row a group, method, variant and metric.

    Columns: benchmark (`all` and `pooled` stand for several), members, nonmembers, method, variant,
    metric, value, low and high (the ends of its 95% interval), needs (why there is no value).
    """
    rows = [
        {
            "benchmark": group.name.partition(" ")[0] if group.name == POOLED else group.name,
            "members": group.members,
            "nonmembers": group.nonmembers,
            "method": method,
            "variant": variant,
            "metric": metric,
            "value": None if one.needs else one.value,
            **dict(zip(("low", "high"), _ends(one), strict=True)),
            "needs": one.needs or "",
        }
        for group in groups
        for (method, variant), line in group.found.items()
        for metric, one in line.items()
    ]
    for group in groups:
        if group.needs:  # it has no estimates, and this says why
            sizes = {"members": group.members, "nonmembers": group.nonmembers}
            rows.append({"benchmark": group.name, **sizes, "method": "", "needs": group.needs})
    return pd.DataFrame(rows, columns=COLUMNS)


COLUMNS = [
    *("benchmark", "members", "nonmembers", "method", "variant"),
    *("metric", "value", "low", "high", "needs"),
]


def _ends(found: Estimate) -> tuple[float | None, float | None]:
    return (None, None) if found.needs else interval(found, CONFIDENCE)


def group(
    name: str,
    scores_of: Iterable[tuple[Key, pd.DataFrame]],
    examples: Sequence[Text],
    blind: bool,
    metrics: Sequence[Metric],
    match: bool = False,
    baseline: Baseline = blind_baseline,
    looks: int = 1,
) -> Group:
    """By method and variant; none where the examples are of one kind. `name` seeds the draws.

    `match` adds each method's AUROC after matching on what the texts tell (`baselines.matching`),
    and to the blind row what matching leaves of style; `baseline` makes that row. `looks` is at how
    many groups' blind rows a reader looks: that texts alone tell is said of one of them by chance
    in 5% of the cases (Bonferroni).
    """
    texts, member = _labelled(examples)
    draws = _Draws(member, clusters_of([e for e in examples if e.label is not None]), name)
    problem = obstacle(texts, member, draws.cluster)
    made = None
    if blind and not problem:
        made = baseline(texts, member, derive(SEED, BLIND, name), group=draws.cluster)
    found: Estimates = {}
    for method, scores in scores_of:
        members, nonmembers = split(scores, examples)
        if len(members) and len(nonmembers):
            found[method] = draws.estimate(members, nonmembers, metrics)
            if match:
                found[method] |= draws.matched(made, members, nonmembers, found[method])
    if made and found:
        rows = np.flatnonzero(member), np.flatnonzero(~member)
        found[BLIND, ""] = made.estimates(*rows, metrics, DRAWS)
        if match and made.style:
            sizes = len(rows[0]), len(rows[1])
            found[BLIND, ""][MATCHED.name] = leftover(made.style, sizes, DRAWS)
    counts = int(member.sum()), int((~member).sum())
    return Group(name, *counts, found, "", _notes(found, problem, looks), draws.clusters)


@dataclass(frozen=True)
class _Draws:
    """Resamples of a group's texts, or of their clusters where they have some.

    Attributes:
        member: which texts are members.
        cluster: each text's cluster; None: they have none.
        name: seeds the draws.
    """

    member: NDArray[np.bool_]
    cluster: Clusters | None
    name: str

    @cached_property
    def _clustered(self) -> Clustered | None:
        if self.cluster is None or self.member.all() or not self.member.any():
            return None
        both = sides(self.cluster, self.member)
        return Clustered.of(*both, DRAWS, derive(SEED, self.name))

    @property
    def clusters(self) -> tuple[int, int] | None:
        """How many clusters of members and of non-members there are."""
        own = self._clustered
        return (own.members, own.nonmembers) if own else None

    def estimate(
        self, members: Scores, nonmembers: Scores, metrics: Sequence[Metric]
    ) -> dict[str, Estimate]:
        """Every metric (by name) of a method's scores."""
        if self._clustered:
            return self._clustered.estimate(members, nonmembers, metrics)
        return estimate(members, nonmembers, self._single(members, nonmembers), metrics)

    def matched(
        self, made: Blind | None, members: Scores, nonmembers: Scores, plain: Mapping[str, Estimate]
    ) -> dict[str, Estimate]:
        """The matched AUROC of a method's scores, of which `plain` has the others' estimates.

        Clusters take as large a share of its trials as of the AUROC's.
        """
        own = self._clustered
        drawn = own.whole if own else self._single(members, nonmembers)
        found = matched_by(made, self.member, members, nonmembers, drawn)
        if own and found.trials is not None and (left := plain[AUROC.name].trials) is not None:
            share = left / auroc_trials(len(members), len(nonmembers))
            found = own.widened(replace(found, trials=found.trials * share))
        return {MATCHED.name: found}

    def _single(self, members: Scores, nonmembers: Scores) -> Resample:
        return resample(len(members), len(nonmembers), DRAWS, derive(SEED, self.name))


def _notes(found: Estimates, problem: str | None, looks: int) -> list[str]:
    """That the texts alone tell, or are too few to say."""
    if (BLIND, "") not in found:
        return [f"no blind row: {problem}"] if problem else []
    value = found[BLIND, ""][AUROC.name]
    if warning(value.value, *interval(value, 1 - (1 - CONFIDENCE) / looks)) is None:
        return []
    low, high = interval(value, CONFIDENCE)
    return [texts_tell(f"blind AUROC {value.value:.2f} [{low:.2f}, {high:.2f}]")]


def _labelled(examples: Sequence[Text]) -> tuple[list[str], NDArray[np.bool_]]:
    known = [e for e in examples if e.label is not None]
    return [e.text for e in known], np.array([e.label for e in known], bool)


def _mean(groups: Sequence[Group], examples: Texts, metrics: Sequence[Metric], looks: int) -> Group:
    """The one of "all", as in a report: the mean over benchmarks, where each was measured."""
    members, nonmembers = sum(g.members for g in groups), sum(g.nonmembers for g in groups)
    lacks = {
        g.name or "those of no benchmark": AUROC.needs(g.members, g.nonmembers) for g in groups
    }
    if needs := needs_over(lacks):
        return Group(ALL, members, nonmembers, {}, needs)
    lines: Estimates = {}
    for method in groups[0].found:
        by_name: Mapping[str, dict[str, Estimate]] = {
            g.name: g.found[method] for g in groups if method in g.found
        }
        if len(by_name) == len(groups):  # the blind baseline may lack texts
            lines[method] = {
                m.name: mean_over({name: line[m.name] for name, line in by_name.items()})
                for m in metrics
            }
    notes = _notes(lines, obstacle(*_labelled(examples)), looks)
    return Group(ALL, members, nonmembers, lines, "", notes)
