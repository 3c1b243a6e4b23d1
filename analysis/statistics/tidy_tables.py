"""All tidy tables of a report, computed condition by condition.

The draws of one cell are tens of megabytes, those of a sweep gigabytes: only one condition's cells
are held at a time, and of each finished condition the AUROCs that a series needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from contamination.analysis.cells import CONTAMINATED, Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import FACTORS
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics import (
    controls,
    flagged,
    paired,
    results_table,
    seed_pooling,
    trends,
)
from contamination.analysis.statistics.shared_permutations import ids_by_benchmark

log = logging.getLogger(__name__)

REPLICATES_COLUMNS = (
    *("condition", "seed", "example_id", "benchmark", "method", "variant", "occurrences"),
    "difference",
)


@dataclass(frozen=True)
class Statistics:
    """The tables; their modules describe the columns."""

    results: pd.DataFrame
    pooled: pd.DataFrame
    comparisons: pd.DataFrame
    trends: pd.DataFrame
    replicates: pd.DataFrame
    flags: pd.DataFrame
    unflagged: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=list(flagged.COLUMNS))
    )


def compute_statistics(
    experiment: str, seed: int, cells: Sequence[Cell], config: AnalysisConfig
) -> Statistics:
    """Every table of the cells. `seed` draws the resamples and the baseline's folds."""
    ids = ids_by_benchmark(cells)
    blind = results_table.BlindBaselines(config.blind_folds, seed, ids)
    rows: dict[str, list[dict[str, Any]]] = {"results": [], "pooled": [], "paired": [], "trend": []}
    rows["unflagged"] = []
    conditions = []
    distances_by_name: dict[str, dict[str, Mapping[str, controls.Distances]]] = {
        "cell": {},
        "condition": {},
    }
    for name, cells_of_condition in seed_pooling.cells_by_condition(cells).items():
        cell_estimates = [
            results_table.cell_estimates(cell, blind(cell), config, seed)
            for cell in cells_of_condition
        ]
        replicates = seed_pooling.Replicates.of(cells_of_condition)
        pooled = seed_pooling.pool_estimates(cell_estimates, replicates, seed)
        control_aurocs = [
            controls.control_aurocs(cell, blind(cell), seed, ids) for cell in cells_of_condition
        ]
        distances_by_name["condition"][name] = controls.distances_from_chance(
            controls.mean_control_aurocs(control_aurocs)
        )
        distances_by_name["cell"] |= {
            c.name: controls.distances_from_chance(o)
            for c, o in zip(cells_of_condition, control_aurocs, strict=True)
        }
        for cell, estimates in zip(cells_of_condition, cell_estimates, strict=True):
            rows["results"] += results_table.cell_rows(cell, estimates, config.confidence)
        rows["pooled"] += seed_pooling.condition_rows(
            cells_of_condition, cell_estimates, pooled, config.confidence
        )
        rows["paired"] += paired.comparison_rows(
            name, pooled, default_variants(cells_of_condition), config.confidence
        )
        responses_of_cells = [
            trends.dose_responses(cell, config, seed) for cell in cells_of_condition
        ]
        responses = trends.pool_dose_responses(responses_of_cells, replicates, seed)
        rows["trend"] += trends.occurrences_trend_rows(
            name, cells_of_condition, pooled, responses, config.confidence
        )
        rows["unflagged"] += flagged.unflagged_rows(cells_of_condition, config, seed)
        conditions.append(trends.summarise_condition(cells_of_condition, pooled))
    rows["trend"] += trends.series_trend_rows(conditions, config.confidence)
    return _make_statistics(experiment, rows, cells, distances_by_name)


def _make_statistics(
    experiment: str,
    rows: dict[str, list[dict[str, Any]]],
    cells: Sequence[Cell],
    distances_by_name: Mapping[str, Mapping[str, Mapping[str, controls.Distances]]],
) -> Statistics:
    cell_results = results_table.rows_to_table(rows["results"], results_table.COLUMNS)
    cell_results = controls.with_control_p_values(cell_results, "cell", distances_by_name["cell"])
    pooled = results_table.rows_to_table(rows["pooled"], seed_pooling.COLUMNS)
    pooled = controls.with_control_p_values(pooled, "condition", distances_by_name["condition"])
    integers = ["last_tokens", *(factor.column for factor in FACTORS if factor.integer)]
    typed = {name: pooled[name].astype("Int64") for name in integers}
    typed["stage"] = pooled["stage"].astype("string")
    typed["mean_occurrences"] = pooled["mean_occurrences"].astype(float)
    return Statistics(
        results=cell_results.assign(experiment=experiment),
        pooled=pooled.assign(experiment=experiment, **typed),
        comparisons=pd.DataFrame(rows["paired"], columns=list(paired.COLUMNS)),
        trends=pd.DataFrame(rows["trend"], columns=list(trends.COLUMNS)),
        replicates=replicates_table(cells),
        flags=flagged.flags_table(cells),
        unflagged=pd.DataFrame(rows["unflagged"], columns=list(flagged.COLUMNS)),
    )


def replicates_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Returns one row per example, method and pair of swapped cells; empty without a pair.

    Who is a member in one cell of a pair is a non-member in the other (`injection.swap_members`),
    and all else is shared, so that each example is its own control.
    """
    tables = [example_differences(*pair) for pair in swapped_pairs(cells)]
    return (
        pd.concat(tables, ignore_index=True)
        if tables
        else pd.DataFrame(columns=list(REPLICATES_COLUMNS))
    )


def swapped_pairs(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Each cell with its swapped replicate: same recipe, seed and pool of examples."""
    swapped = {(cell.recipe, cell.seed): cell for cell in cells if cell.swapped}
    for cell in cells:
        other = swapped.get((cell.recipe, cell.seed))
        if cell.swapped or other is None:
            continue
        if set(cell.examples["example_id"]) == set(other.examples["example_id"]):
            yield cell, other
        else:
            log.warning("%s and %s: not the same examples, so no pair.", cell.name, other.name)


def example_differences(cell: Cell, other: Cell) -> pd.DataFrame:
    """Returns the rows of a pair of swapped cells; columns: `REPLICATES_COLUMNS`."""
    cell_scores, other_scores = standardised_scores(cell), standardised_scores(other)
    merge_columns = ["example_id", "benchmark", "method", "variant"]
    paired_scores = cell_scores.merge(other_scores, on=merge_columns, suffixes=("", "_other"))
    paired_scores = paired_scores[paired_scores["member"] != paired_scores["member_other"]]
    sign = np.where(paired_scores["member"], 1.0, -1.0)
    paired_scores["difference"] = sign * (
        paired_scores["standard"] - paired_scores["standard_other"]
    )
    paired_scores["occurrences"] = paired_scores[["occurrences", "occurrences_other"]].max(axis=1)
    # 0 may be drawn: then it is out in both
    paired_scores = paired_scores[paired_scores["occurrences"] > 0]
    return paired_scores.assign(condition=cell.condition, seed=cell.seed)[list(REPLICATES_COLUMNS)]


def standardised_scores(cell: Cell) -> pd.DataFrame:
    """Returns one row per example and method; scores are in the non-members' units."""
    examples = cell.examples[["example_id", "benchmark", "member", "occurrences"]]
    scores = cell.scores[CONTAMINATED]
    long = scores.reset_index(drop=True).set_axis(scores.columns.to_flat_index(), axis=1)
    method_tables = []
    for method, variant in long.columns:
        method_rows = examples.assign(method=method, variant=variant, score=long[(method, variant)])
        nonmember_scores = method_rows[~method_rows["member"]].groupby("benchmark")["score"]
        level = method_rows["benchmark"].map(nonmember_scores.mean())
        spread = method_rows["benchmark"].map(nonmember_scores.std(ddof=1))
        method_tables.append(
            method_rows.assign(standard=(method_rows["score"] - level) / spread).drop(
                columns="score"
            )
        )
    return pd.concat(method_tables, ignore_index=True)
