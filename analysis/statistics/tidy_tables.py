"""All tidy tables of a report, computed condition by condition.

The draws of one cell are tens of megabytes, those of a sweep gigabytes: only one condition's cells
are held at a time, and of each finished condition the AUROCs that a series needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from contamination.analysis.cells import Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import FACTORS
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics import (
    controls,
    flagged,
    paired,
    results,
    seed_pooling,
    trends,
)
from contamination.analysis.statistics import trends as trends_module
from contamination.analysis.statistics.counterfactual import replicates_table
from contamination.analysis.statistics.flagged import flags_table
from contamination.analysis.statistics.relabelling import ids_by_benchmark


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


def statistics(
    experiment: str, seed: int, cells: Sequence[Cell], config: AnalysisConfig
) -> Statistics:
    """Every table of the cells. `seed` draws the resamples and the baseline's folds."""
    ids = ids_by_benchmark(cells)
    blind = results.BlindBaselines(config.blind_folds, seed, ids)
    rows: dict[str, list[dict[str, Any]]] = {"results": [], "pooled": [], "paired": [], "trend": []}
    rows["unflagged"] = []
    conditions = []
    distances_by_name: dict[str, dict[str, Mapping[str, controls.Distances]]] = {
        "cell": {},
        "condition": {},
    }
    for name, members in seed_pooling.cells_by_condition(cells).items():
        of_cells = [results.cell_estimates(cell, blind(cell), config, seed) for cell in members]
        texts = [cell.examples_digest for cell in members]
        joint = seed_pooling.pool_estimates(of_cells, texts, seed)
        control_aurocs = [controls.control_aurocs(cell, blind(cell), seed, ids) for cell in members]
        distances_by_name["condition"][name] = controls.distances(
            controls.mean_control_aurocs(control_aurocs)
        )
        distances_by_name["cell"] |= {
            c.name: controls.distances(o) for c, o in zip(members, control_aurocs, strict=True)
        }
        for cell, estimates in zip(members, of_cells, strict=True):
            rows["results"] += results.cell_rows(cell, estimates, config.confidence)
        rows["pooled"] += seed_pooling.condition_rows(members, of_cells, joint, config.confidence)
        rows["paired"] += paired.comparison_rows(
            name, joint, default_variants(members), config.confidence
        )
        by_cell = [trends_module.dose_responses(cell, config, seed) for cell in members]
        responses = trends_module.pool_dose_responses(by_cell, texts, seed)
        rows["trend"] += trends.occurrences_trend_rows(
            name, members, joint, responses, config.confidence
        )
        rows["unflagged"] += flagged.unflagged_rows(members, config, seed)
        conditions.append(trends.summarise_condition(members, joint))
    rows["trend"] += trends.series_trend_rows(conditions, config.confidence)
    return _make_statistics(experiment, rows, cells, distances_by_name)


def _make_statistics(
    experiment: str,
    rows: dict[str, list[dict[str, Any]]],
    cells: Sequence[Cell],
    distances_by_name: Mapping[str, Mapping[str, Mapping[str, controls.Distances]]],
) -> Statistics:
    single = results.rows_to_table(rows["results"], results.COLUMNS)
    single = controls.with_p_values(single, "cell", distances_by_name["cell"])
    joint = results.rows_to_table(rows["pooled"], seed_pooling.COLUMNS)
    joint = controls.with_p_values(joint, "condition", distances_by_name["condition"])
    integers = ["last_tokens", *(factor.column for factor in FACTORS if factor.integer)]
    typed = {name: joint[name].astype("Int64") for name in integers}
    typed["stage"] = joint["stage"].astype("string")
    typed["mean_occurrences"] = joint["mean_occurrences"].astype(float)
    return Statistics(
        results=single.assign(experiment=experiment),
        pooled=joint.assign(experiment=experiment, **typed),
        comparisons=pd.DataFrame(rows["paired"], columns=list(paired.COLUMNS)),
        trends=pd.DataFrame(rows["trend"], columns=list(trends.COLUMNS)),
        replicates=replicates_table(cells),
        flags=flags_table(cells),
        unflagged=pd.DataFrame(rows["unflagged"], columns=list(flagged.COLUMNS)),
    )
