"""The tables of a report: each value with its interval, next to the controls."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.analysis.methods import checkpoint_of, method_label, methods_of
from contamination.analysis.statistics.controls import (
    LEVEL,
    control_rows_with_p_value,
    mean_control_rows,
)
from contamination.analysis.statistics.groups import ANY, occurrences_sort_key, sorted_benchmarks
from contamination.analysis.sweeps import Sweep, format_short
from contamination.analysis.tables.paper_comparisons import paper_method_tables
from contamination.core.report.tables import (
    ESTIMATE_COLUMNS,
    NO_VALUE,
    Table,
    format_estimate,
    format_interval,
)
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC, metric_title
from contamination.detection.baselines.blind import BLIND


def cell_tables(results: pd.DataFrame) -> list[Table]:
    """Every table of one cell, the main one (AUROC by occurrences) first; none without a number."""
    if results["value"].isna().all():
        return []
    metrics = list(results["metric"].unique())
    return [
        *(occurrences_table(results, metric) for metric in metrics),
        *(benchmark_table(results, metric) for metric in metrics),
        controls_table(results),
        *paper_method_tables(results),
    ]


def occurrences_table(results: pd.DataFrame, metric: str) -> Table:
    """Method × occurrences on the contaminated model; the controls are in the last columns."""
    means = results[(results["metric"] == metric) & (results["benchmark"] == ALL_BENCHMARKS)]
    numbers = sorted(means["occurrences"].unique(), key=occurrences_sort_key)
    texts = _estimate_texts(means)

    def row_cells(method: str, variant: str) -> list[str]:
        texts_by_number = [
            texts[checkpoint_of(method), method, variant, ALL_BENCHMARKS, number]
            for number in numbers
        ]
        return [
            *texts_by_number,
            NO_VALUE if method == BLIND else texts[CLEAN, method, variant, ALL_BENCHMARKS, ANY],
        ]

    return Table(
        f"{metric}_by_occurrences",
        f"{metric_title(metric)} by occurrences (contaminated model, mean over benchmarks)",
        ["method", *numbers, "clean model, any"],
        _method_lines(means, row_cells),
        means,
        numbers[1:-2],
    )


def benchmark_table(results: pd.DataFrame, metric: str) -> Table:
    """Method × benchmark on the contaminated model, over all members, and the blind baseline."""
    over_all_members = results[(results["metric"] == metric) & (results["occurrences"] == ANY)]
    over_all_members = over_all_members[
        (over_all_members["checkpoint"] == CONTAMINATED) | (over_all_members["method"] == BLIND)
    ]
    benchmarks = sorted_benchmarks(over_all_members)
    texts = _estimate_texts(over_all_members)

    def row_cells(method: str, variant: str) -> list[str]:
        return [texts[checkpoint_of(method), method, variant, b, ANY] for b in benchmarks]

    return Table(
        f"{metric}_by_benchmark",
        f"{metric_title(metric)} by benchmark (contaminated model, any number of occurrences)",
        ["method", *benchmarks],
        _method_lines(over_all_members, row_cells),
        over_all_members,
    )


def controls_table(results: pd.DataFrame) -> Table:
    """AUROC of the clean model and the blind baseline, with the verdict on each."""
    clean_rows = results[(results["metric"] == AUROC.name) & (results["occurrences"] == ANY)]
    clean_rows = clean_rows[clean_rows["checkpoint"] == CLEAN]
    benchmarks = sorted_benchmarks(clean_rows)
    texts = _estimate_texts(clean_rows)
    tested_rows = control_rows_with_p_value(results)
    p_values = tested_rows.groupby(["method", "variant"])["p_control"].min().to_dict()

    def row_cells(method: str, variant: str) -> list[str]:
        auroc_texts = [texts[CLEAN, method, variant, benchmark, ANY] for benchmark in benchmarks]
        p_value = p_values.get((method, variant))
        if p_value is None:
            return [*auroc_texts, NO_VALUE, NO_VALUE]
        return [*auroc_texts, f"{p_value:.3f}", "**OFF**" if p_value <= LEVEL else "within chance"]

    return Table(
        "controls",
        "Controls: AUROC without contamination (clean model) and without a model (blind)",
        ["method", *benchmarks, "p, corrected", "verdict"],
        _method_lines(clean_rows, row_cells),
        clean_rows,
    )


def _estimate_texts(results: pd.DataFrame) -> defaultdict[tuple[str, ...], str]:
    """(checkpoint, method, variant, benchmark, occurrences) → the estimate in words."""
    columns = ["checkpoint", "method", "variant", "benchmark", "occurrences"]
    estimates = results[[*columns, *ESTIMATE_COLUMNS]].itertuples(index=False, name=None)
    return defaultdict(lambda: NO_VALUE, {row[:5]: format_estimate(*row[5:]) for row in estimates})


def _method_lines(
    rows: pd.DataFrame, value_cells: Callable[[str, str], list[str]]
) -> list[list[str]]:
    """Returns one line per method; a single line if there are too few examples."""
    methods = methods_of(rows)
    if methods and (rows["needs"] != "").all():
        return [["every method", *value_cells(*methods[0])]]
    return [
        [method_label(method, variant, methods), *value_cells(method, variant)]
        for method, variant in methods
    ]


def sweep_table(sweep: Sweep) -> Table:
    """Method × the factor's values on the contaminated model, all members."""
    methods = methods_of(sweep.line_rows)
    slopes = sweep.trend_by_method
    levels = sorted({*sweep.levels, *sweep.reason_by_level})
    reason_by_level = {at: why.partition(":")[0] for at, why in sweep.reason_by_level.items()}
    lines = []
    for pair in methods:
        row_by_level = sweep.method_rows(*pair).set_index(sweep.factor.column).to_dict("index")
        level_cells = [
            _value_text(row_by_level[at])
            if at in row_by_level
            else reason_by_level.get(at, NO_VALUE)
            for at in levels
        ]
        slope_and_clean_cells = [
            _slope_text(slopes[pair]) if pair in slopes else NO_VALUE,
            _clean_auroc_text(sweep, pair),
        ]
        lines.append([method_label(*pair, methods), *level_cells, *slope_and_clean_cells])
    title = (
        f"AUROC by {sweep.factor.axis}: contaminated model, all members, mean over benchmarks; "
        f"slope of its log-odds per doubling ({sweep.shared_text})"
    )
    level_texts = [format_short(level) for level in levels]
    header = ["method", *level_texts, "slope", "clean model"]
    tidy_rows = pd.concat([sweep.rows, sweep.unmeasured])
    return Table(sweep.name, title, header, lines, tidy_rows, [*level_texts[1:-1], "slope"])


def _value_text(row: Mapping[Any, Any]) -> str:
    return format_interval(row["value"], row["ci_low"], row["ci_high"])


def _slope_text(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["slope"]):
        return str(row["note"])
    return format_interval(row["slope"], row["slope_low"], row["slope_high"])


def _clean_auroc_text(sweep: Sweep, pair: tuple[str, str]) -> str:
    """The clean model's AUROC; the range of its values where conditions differ in it."""
    if pair[0] == BLIND:
        return NO_VALUE
    clean_rows = mean_control_rows(sweep.rows)
    method_rows = clean_rows[(clean_rows["method"] == pair[0]) & (clean_rows["variant"] == pair[1])]
    if method_rows["value"].nunique() == 1:
        return _value_text(method_rows.iloc[0].to_dict())
    range_texts = dict.fromkeys(
        f"{auroc:.2f}" for auroc in (method_rows["value"].min(), method_rows["value"].max())
    )
    return " to ".join(range_texts) if len(method_rows) else NO_VALUE
