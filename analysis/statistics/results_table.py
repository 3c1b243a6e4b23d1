"""The results table: tidy, one row per estimate of a cell (columns: docs/report-tables.md)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contamination.analysis.cells import CLEAN, Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics.groups import (
    ANY,
    ComparedGroup,
    describe_unmeasurable_groups,
    groups_of_lacking_benchmarks,
    measurable_groups,
)
from contamination.analysis.statistics.shared_permutations import (
    ExampleIds,
    Permutations,
    shared_permutations,
)
from contamination.core.errors import DataError
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import (
    Resample,
    Scores,
    draw_named_counts,
    join_sides,
    rank_side,
)
from contamination.core.statistics.estimates import (
    ALL_BENCHMARKS,
    Estimate,
    confidence_intervals,
    estimate_ranked,
    estimate_without_value,
    mean_over_benchmarks,
)
from contamination.core.statistics.metrics import Metric, chosen_metrics
from contamination.detection.baselines.blind import (
    BLIND,
    SHUFFLES,
    BlindBaseline,
    blind_baseline,
    blind_obstacle,
)

log = logging.getLogger(__name__)
_cached_draw_counts = lru_cache(maxsize=64)(draw_named_counts)


COLUMNS = (
    *("experiment", "cell", "checkpoint", "benchmark", "method", "variant", "occurrences"),
    *("default", "n_members", "n_nonmembers", "metric", "value", "ci_low", "ci_high"),
    *("needs", "p_control"),
    *("learning_rate", "budget_tokens", "model", "seed"),
)


class Measure(NamedTuple):
    """What is estimated: checkpoint, method, variant, members' occurrences and metric."""

    checkpoint: str
    method: str
    variant: str
    occurrences: str
    metric: str


Estimates = Mapping[Measure, Mapping[str, Estimate]]
"""Measure → benchmark → estimate, "all" included."""


class BlindBaselines:
    """The blind baseline of a cell; cells that share their members share it.

    It reads texts and who is a member, not how often a member was inserted. The shuffled labels are
    shared too (`analysis.statistics.shared_permutations`), so that the mean over seeds with the
    same, or almost the same, members is no more certain than one seed.

    Args:
        folds: of the baseline.
        seed: draws the folds and the shuffled labels.
        ids: `ids_by_benchmark` of all cells that are compared or averaged; None: of each cell.
    """

    def __init__(self, folds: int, seed: int, ids: Mapping[str, ExampleIds] | None = None) -> None:
        self._folds, self._seed, self._ids = folds, seed, ids
        self._by_members: dict[str, BlindBaseline] = {}

    def __call__(self, cell: Cell) -> BlindBaseline:
        """Returns one row per example of the cell."""
        key = cell.membership_digest
        if key not in self._by_members:
            fold_seed = derive_seed(self._seed, BLIND, key)
            shuffles = self._shared_shuffles(cell) if self._ids else None
            self._by_members[key] = make_blind_baseline(
                cell.examples, self._folds, fold_seed, shuffles
            )
        return self._by_members[key]

    def _shared_shuffles(self, cell: Cell) -> dict[str, Permutations]:
        assert self._ids is not None
        return {
            str(benchmark): shared_permutations(
                examples,
                self._ids[str(benchmark)],
                SHUFFLES,
                np.random.default_rng(derive_seed(self._seed, BLIND, "shuffles", benchmark)),
            )
            for benchmark, examples in cell.examples.groupby("benchmark")
        }


def make_blind_baseline(
    examples: pd.DataFrame,
    folds: int,
    seed: int,
    shuffles: Mapping[str, Permutations] | None = None,
) -> BlindBaseline:
    """Returns the blind baseline's rows in the order of `examples`.

    They are NaN where a benchmark has too few examples to learn from.

    Args:
        examples: of all benchmarks.
        folds: of the baseline.
        seed: draws the folds.
        shuffles: by benchmark, whose label each example gets (NULLS × n); None: drawn anew.
    """
    placed = np.full((len(examples), 1 + SHUFFLES), np.nan)
    for benchmark in sorted(examples["benchmark"].unique()):
        rows = np.flatnonzero(examples["benchmark"] == benchmark)
        benchmark_examples = examples.iloc[rows]
        texts, member = (
            benchmark_examples["text"].tolist(),
            benchmark_examples["member"].to_numpy(bool),
        )
        problem = blind_obstacle(texts, member)
        if problem:
            log.warning("%s: %s; it is left out.", benchmark, problem)
            continue
        shuffled = None if shuffles is None else shuffles[benchmark]
        benchmark_seed = derive_seed(seed, benchmark)
        placed[rows] = blind_baseline(
            texts, member, benchmark_seed, folds, shuffles=shuffled
        ).percentiles
    return BlindBaseline(placed)


def rows_to_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The rows as a table.

    Raises:
        DataError: no row has a number.
    """
    if all(row["needs"] for row in rows):
        raise DataError("No benchmark of any cell has members and non-members: nothing to compare.")
    return pd.DataFrame(rows, columns=list(columns))


def cell_estimates(
    cell: Cell, blind: BlindBaseline | None, config: AnalysisConfig, seed: int
) -> Estimates:
    """All estimates of one cell with their draws, benchmark by benchmark and on average.

    Without `blind` there is no blind baseline among them.
    """
    scores_by_key = {
        (checkpoint, method, variant): table[method, variant].to_numpy(np.float64)
        for checkpoint, table in cell.scores.items()
        for method, variant in table.columns
    }
    metrics = chosen_metrics(config.fpr, config.tpr)
    estimates_by_measure: dict[Measure, dict[str, Estimate]] = defaultdict(dict)
    for benchmark, benchmark_groups in groupby(
        measurable_groups(cell.examples), key=lambda group: group.benchmark
    ):
        groups_and_resamples = [
            (group, resample_group(group, cell, config.draws, seed)) for group in benchmark_groups
        ]
        by_occurrences = {
            key: _estimates_by_occurrences(scores, groups_and_resamples, metrics)
            for key, scores in scores_by_key.items()
        }
        if blind is not None:
            blind_rows = _blind_estimates_by_occurrences(
                blind, groups_and_resamples, metrics, config.draws
            )
            by_occurrences[CLEAN, BLIND, ""] = blind_rows
        for (checkpoint, method, variant), estimates_of_method in by_occurrences.items():
            for occurrences, estimate_by_metric in estimates_of_method:
                for metric, estimate in estimate_by_metric.items():
                    measure = Measure(checkpoint, method, variant, occurrences, metric)
                    estimates_by_measure[measure][benchmark] = estimate
    if unmeasured := describe_unmeasurable_groups(cell.examples):
        log.warning(
            "%s has no members or no non-members in %s: no values there, and no mean over "
            "benchmarks of these occurrences.",
            *(cell.name, unmeasured),
        )
    lacking_groups = groups_of_lacking_benchmarks(cell.examples)
    if lacking_groups and not estimates_by_measure:
        estimates_by_measure |= {
            Measure(*key, ANY, metric.name): {} for key in scores_by_key for metric in metrics
        }
    return _with_means_over_benchmarks(estimates_by_measure, lacking_groups, metrics, config.draws)


ByOccurrences = Iterator[tuple[str, dict[str, Estimate]]]
"""Occurrences and, by metric, what was estimated of the members that have them."""


def _estimates_by_occurrences(
    scores: Scores, drawn: Sequence[tuple[ComparedGroup, Resample]], metrics: Sequence[Metric]
) -> ByOccurrences:
    """One detector's estimates on one benchmark: all groups have the same non-members."""
    first, resample = drawn[0]
    nonmembers = rank_side(scores[first.nonmembers], resample.nonmembers)
    for group, resample in drawn:
        members = rank_side(scores[group.members], resample.members)
        yield group.occurrences, estimate_ranked(join_sides(members, nonmembers), metrics)


def _blind_estimates_by_occurrences(
    blind: BlindBaseline,
    drawn: Sequence[tuple[ComparedGroup, Resample]],
    metrics: Sequence[Metric],
    draws: int,
) -> ByOccurrences:
    """The blind baseline's estimates on one benchmark; none where it was left out (and logged)."""
    for group, _ in drawn:
        if not np.isnan(blind.percentiles[group.members]).any():
            by_metric = blind.estimates(group.members, group.nonmembers, metrics, draws)
            yield group.occurrences, by_metric


def resample_group(group: ComparedGroup, cell: Cell, draws: int, seed: int) -> Resample:
    """Returns the draws of a group, which depend on its examples only, never on model or method.

    So every comparison is paired over the examples that both sides share: between methods,
    checkpoints, numbers of occurrences (the same non-members), and cells. Cells that insert the
    same texts more or less often draw them together.
    """
    ids = cell.examples["example_id"].to_numpy()
    draw_seed = derive_seed(seed, "bootstrap", group.benchmark)
    ids_of_sides = (tuple(ids[rows].tolist()) for rows in (group.members, group.nonmembers))
    return Resample(*(_cached_draw_counts(side, draws, draw_seed) for side in ids_of_sides))


def _with_means_over_benchmarks(
    estimates: Mapping[Measure, dict[str, Estimate]],
    short: Sequence[ComparedGroup],
    wanted: Sequence[Metric],
    draws: int,
) -> Estimates:
    """Adds "all": a mean over some of the benchmarks would mislead at a glance.

    It has no number where some benchmark is `short` of members or non-members, and no row where
    only a number of occurrences, or the blind baseline, is missing in one.
    """
    benchmarks = {name for by_benchmark in estimates.values() for name in by_benchmark}
    metrics = {metric.name: metric for metric in wanted}
    for measure, by_benchmark in estimates.items():
        if benchmarks == by_benchmark.keys():
            metric = metrics[measure.metric]
            lacking_groups = [group for group in short if group.occurrences == measure.occurrences]
            estimates_without_value = {
                g.benchmark: estimate_without_value(g.sizes, draws, metric.needs(*g.sizes))
                for g in lacking_groups
            }
            by_benchmark[ALL_BENCHMARKS] = mean_over_benchmarks(
                {**by_benchmark, **estimates_without_value}
            )
    return estimates


def why_without_number(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Returns why a row of the results has no number."""
    if not row["n_members"]:
        return "no members: nothing to detect"
    if not row["n_nonmembers"]:
        return "no non-members: nothing to compare the members with"
    return f"needs {row['needs']}"


def cell_rows(cell: Cell, estimates: Estimates, confidence: float) -> Iterator[dict[str, Any]]:
    """Returns one row per estimate of one cell."""
    facts = {"cell": cell.name, **{name: getattr(cell, name) for name in COLUMNS[-4:]}}
    return ({**facts, **row} for row in estimate_rows([cell], estimates, confidence))


def estimate_rows(
    cells: Sequence[Cell], estimates: Estimates, confidence: float
) -> Iterator[dict[str, Any]]:
    """Yields one row per estimate: what was measured, on how many examples, value and interval."""
    flat = [(m, name, value) for m, by_name in estimates.items() for name, value in by_name.items()]
    if not flat:
        return
    low, high = confidence_intervals([value for _, _, value in flat], confidence)
    defaults = {**default_variants(cells), BLIND: ""}
    for index, (measure, benchmark, value) in enumerate(flat):
        yield {
            **measure._asdict(),
            "benchmark": benchmark,
            "default": defaults.get(measure.method) == measure.variant,
            "n_members": value.n_members,
            "n_nonmembers": value.n_nonmembers,
            "value": value.value,
            "ci_low": float(low[index]),
            "ci_high": float(high[index]),
            "needs": value.needs,
        }
