"""A cell's results as the flat keys of a run in Weights & Biases, and back.

::

    auroc/min_k/boolq                       all members, contaminated model  (summary)
    clean/auroc/min_k/boolq                 the same on the clean model; also the blind baseline's
    by_occurrences/8/auroc/min_k/boolq      members with 8 occurrences, contaminated model (summary)
    by_occurrences/auroc/min_k/boolq        a point per number, over occurrences     (history)
    ci_low/…  ci_high/…                     the interval's ends of the others (by number: history)
    p_control/clean/auroc/min_k/boolq       a control's corrected p-value    (summary)
    needs/tpr_at_fpr_0.001/min_k/boolq      instead, where there are too few examples
    n_members/boolq  n_nonmembers/boolq     what stands behind them; by_occurrences/n_members/boolq

A method goes by its label: with its variant where the results have several of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.analysis.methods import Methods, method_label, methods_of
from contamination.analysis.statistics.groups import ANY, occurrences_sort_key
from contamination.analysis.statistics.results_table import COLUMNS
from contamination.analysis.statistics.trends import OCCURRENCES

BY_OCCURRENCES = f"by_{OCCURRENCES}/"
ENDS = ("ci_low", "ci_high")
SIZES = ("n_members", "n_nonmembers")
NEEDS = "needs"
P_VALUE = "p_control"

Values = dict[str, Any]


def method_by_label(results: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Label → method, variant and `default`, of all methods in the results."""
    methods = results[["method", "variant", "default"]].drop_duplicates().to_dict("records")
    pairs = [(row["method"], row["variant"]) for row in methods]
    return {method_label(*pair, pairs): row for pair, row in zip(pairs, methods, strict=True)}


def summary_values(results: pd.DataFrame) -> Values:
    """The keys of one cell's results over all members, and by number of occurrences."""
    contaminated = results[(results["checkpoint"] == CONTAMINATED) & (results["needs"] == "")]
    methods = methods_of(results)
    by_occurrences = {
        f"{BY_OCCURRENCES}{row.occurrences}/{_estimate_key(row, methods)}": float(row.value)
        for row in contaminated[contaminated["occurrences"] != ANY].itertuples()
    }
    return {**_values_by_key(results[results["occurrences"] == ANY], methods), **by_occurrences}


def occurrences_history_rows(results: pd.DataFrame) -> list[Values]:
    """Returns one row per number of occurrences, in order, with the keys at that number."""
    rows, methods = [], methods_of(results)
    for number in sorted(set(results["occurrences"]) - {ANY}, key=occurrences_sort_key):
        values = _values_by_key(results[results["occurrences"] == number], methods)
        rows.append(
            {OCCURRENCES: int(number), **{BY_OCCURRENCES + k: v for k, v in values.items()}}
        )
    return rows


def parse_result_rows(
    summary: Mapping[str, Any], history: Iterable[Mapping[str, Any]], cell_config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the rows of the results table from a run's keys.

    `cell` is the run's config node of that name: the cell's facts, and `methods`, its labels.
    """
    by_number: dict[str, dict[str, Any]] = {}
    for line in history:  # of repeated logs (a report written again) the last counts
        if OCCURRENCES in line:
            keys = [key for key in line if key.startswith(BY_OCCURRENCES)]
            values = {key.removeprefix(BY_OCCURRENCES): line[key] for key in keys}
            by_number.setdefault(str(int(line[OCCURRENCES])), {}).update(values)
    by_number[ANY] = {k: v for k, v in summary.items() if not k.startswith(BY_OCCURRENCES)}
    numbers = [ANY, *sorted(by_number.keys() - {ANY}, key=occurrences_sort_key)]
    return [row for number in numbers for row in _iter_rows(by_number[number], number, cell_config)]


def _values_by_key(rows: pd.DataFrame, methods: Methods) -> Values:
    values: Values = {}
    for row in rows.itertuples():
        key = _estimate_key(row, methods)
        key = key if row.checkpoint == CONTAMINATED else f"{row.checkpoint}/{key}"
        if row.needs:
            values[f"{NEEDS}/{key}"] = row.needs
        else:
            values[key] = float(row.value)
            values |= {f"{end}/{key}": float(getattr(row, end)) for end in ENDS}
        if pd.notna(row.p_control):
            values[f"{P_VALUE}/{key}"] = float(row.p_control)
        values |= {f"{size}/{row.benchmark}": int(getattr(row, size)) for size in SIZES}
    return values


def _estimate_key(row: Any, methods: Methods) -> str:
    return f"{row.metric}/{method_label(row.method, row.variant, methods)}/{row.benchmark}"


def _iter_rows(
    values: Mapping[str, Any], occurrences: str, cell_config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields one row per key of an estimate; other keys (the training's, media) are skipped."""
    for logged, value in values.items():
        key = logged.removeprefix(f"{NEEDS}/")
        needs = value if key != logged else ""
        parts = key.split("/")
        checkpoint = parts.pop(0) if parts[0] == CLEAN else CONTAMINATED
        if len(parts) != 3 or parts[1] not in cell_config["methods"]:
            continue
        metric, name, benchmark = parts
        yield {
            **{column: cell_config.get(column) for column in COLUMNS},
            **{"checkpoint": checkpoint, "benchmark": benchmark, "occurrences": occurrences},
            **cell_config["methods"][name],
            **{"metric": metric, "value": float("nan" if needs else value), "needs": needs},
            **{end: float(values.get(f"{end}/{key}", "nan")) for end in (*ENDS, P_VALUE)},
            **{size: values.get(f"{size}/{benchmark}") for size in SIZES},
        }
