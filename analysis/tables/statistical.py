"""Tables of what is tested: differences between methods, and trends."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.analysis.methods import Methods, method_label, methods_of
from contamination.analysis.statistics.flagged import COUNTS
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.statistics.tidy_tables import Statistics
from contamination.analysis.statistics.trends import OCCURRENCES, ONE_DOSE
from contamination.core.report.tables import (
    ESTIMATE_COLUMNS,
    NO_VALUE,
    Table,
    format_estimate,
    format_interval,
)
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC


def condition_tables(statistics: Statistics, condition: str) -> list[Table]:
    """The best method against each other one, scores over occurrences, swapped replicates."""
    comparisons, trends, replicates = (
        table[table["condition"] == condition]
        for table in (statistics.comparisons, statistics.trends, statistics.replicates)
    )
    candidates = [
        comparison_table(comparisons),
        trend_table(trends[trends["over"] == OCCURRENCES], "trend_over_occurrences"),
        replicates_table(replicates),
        unflagged_table(statistics.pooled, statistics.unflagged, condition),
    ]
    return [table for table in candidates if table is not None]


def unflagged_table(pooled: pd.DataFrame, unflagged: pd.DataFrame, condition: str) -> Table | None:
    """AUROC with and without the flagged examples; None where there are none."""
    rows = unflagged[
        (unflagged["condition"] == condition) & (unflagged["benchmark"] == ALL_BENCHMARKS)
    ]
    if rows.empty:
        return None
    table_by_kind = {"all examples": pooled, "without the flagged": unflagged}
    estimate_texts = {
        (kind, row["checkpoint"], row["method"], row["variant"]): format_estimate(
            *(row[name] for name in ESTIMATE_COLUMNS)
        )
        for kind, table in table_by_kind.items()
        for row in table[_is_over_all(table, condition)].to_dict("records")
    }
    kinds_and_checkpoints = [
        (kind, checkpoint) for checkpoint in (CONTAMINATED, CLEAN) for kind in table_by_kind
    ]
    methods = methods_of(rows)
    lines = [
        [
            method_label(*pair, methods),
            *(
                estimate_texts.get((*kind_and_checkpoint, *pair), NO_VALUE)
                for kind_and_checkpoint in kinds_and_checkpoints
            ),
        ]
        for pair in methods
    ]
    header = [
        "method",
        *(f"{kind}, {checkpoint} model" for kind, checkpoint in kinds_and_checkpoints),
    ]
    members, nonmembers = (int(rows[name].iloc[0]) for name in COUNTS)
    title = (
        f"AUROC with and without the flagged examples ({members} members and {nonmembers} "
        "non-members share text with a corpus apart from their copies), mean over benchmarks"
    )
    return Table("without_flagged", title, header, lines, rows)


def _is_over_all(rows: pd.DataFrame, condition: str) -> pd.Series[bool]:
    """Which rows are AUROCs over all members and benchmarks of a condition."""
    selected = {
        "condition": condition,
        "metric": AUROC.name,
        "benchmark": ALL_BENCHMARKS,
        "occurrences": ANY,
    }
    return (rows[[*selected]] == pd.Series(selected)).all(axis=1)


def series_tables(trends: pd.DataFrame) -> list[Table]:
    """Returns a table per series of how AUROC follows the factor."""
    by_series = trends[trends["over"] != OCCURRENCES].groupby(["over", "condition"], sort=False)
    candidates = [
        trend_table(rows, f"trend_over_{over}-{series}") for (over, series), rows in by_series
    ]
    return [table for table in candidates if table is not None]


def comparison_table(comparisons: pd.DataFrame) -> Table | None:
    """The method with the highest AUROC less each other one; None where there is but one."""
    rows = comparisons[
        (comparisons["metric"] == AUROC.name) & (comparisons["benchmark"] == ALL_BENCHMARKS)
    ]
    if rows.empty:
        return None
    methods = sorted({*rows["method_a"], *rows["method_b"]})
    best = max(methods, key=lambda method: _total_lead(rows, method))
    of_best = rows[(rows["method_a"] == best) | (rows["method_b"] == best)]
    lines = [_difference_line(row, best) for row in of_best.to_dict("records")]
    header = [f"{best} less …", "difference in AUROC", "p", "p, corrected"]
    title = (
        f"{best}, whose AUROC is the highest, less each other method: all members, mean over "
        "benchmarks, paired bootstrap, two-sided p, corrected for all pairs of methods by max-T"
    )
    return Table("comparisons", title, header, lines, of_best)


def trend_table(trends: pd.DataFrame, name: str) -> Table | None:
    """Kendall's τ, the slope, and where AUROC reaches 0.75; None where nothing varies.

    A method without a slope has a row whose note explains what the data lack.
    """
    rows = trends[(trends["benchmark"] == ALL_BENCHMARKS) & (trends["levels"] > 1)]
    rows = rows[rows["slope"].notna() | (rows["note"] != ONE_DOSE)]
    if rows.empty:
        return None
    over = str(rows["over"].iloc[0])
    methods = list(zip(rows["method"], rows["variant"], strict=True))
    lines = [_trend_line(row, methods) for row in rows.to_dict("records")]
    tested = "p of τ" if over == OCCURRENCES else "p of the slope"
    header = ["method", "Kendall's τ", "slope [95%]", tested, "reaches 0.75 at", "note"]
    title = (
        f"Trend over {over.replace('_', ' ')}, mean over benchmarks; the slope is of AUROC's "
        f"log-odds per doubling{'; τ is of scores among members' * (over == OCCURRENCES)}"
    )
    return Table(name, title, header, lines, rows)


def replicates_table(replicates: pd.DataFrame) -> Table | None:
    """How much higher an example scores when it was in than when it was out, by occurrences."""
    if replicates.empty:
        return None
    occurrence_numbers = sorted(replicates["occurrences"].unique())
    summary = summarise_replicates(replicates, ["method", "variant", "occurrences"])
    difference_texts = {
        key: f"{mean:.2f}{f' ± {error:.2f}' if examples > 1 else ''} ({share:.0%})"
        for key, mean, error, examples, share in summary.itertuples(name=None)
    }
    methods = list(dict.fromkeys((method, variant) for method, variant, _ in difference_texts))
    lines = [
        [
            method_label(*method_and_variant, methods),
            *(
                difference_texts.get((*method_and_variant, number), NO_VALUE)
                for number in occurrence_numbers
            ),
        ]
        for method_and_variant in methods
    ]
    title = (
        "Score when in less score when out, in standard deviations of the non-members, by "
        "occurrences: mean ± standard error (share of the examples above 0)"
    )
    return Table(
        "replicates", title, ["method", *map(str, occurrence_numbers)], lines, summary.reset_index()
    )


def summarise_replicates(replicates: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """How much higher an example scores when it was in: an example counts once, whatever the seeds.

    One row per group, with columns mean, standard_error, examples and share_above_0.
    """
    examples = replicates.groupby([*by, "example_id"], sort=False)["difference"].mean()
    grouped = examples.groupby(by, sort=False)
    summary = grouped.agg(["mean", "sem", "count", lambda d: (d > 0).mean()])
    summary.columns = ["mean", "standard_error", "examples", "share_above_0"]
    return summary


def _total_lead(rows: pd.DataFrame, method: str) -> float:
    """The sum of a method's AUROC less each other's."""
    above = rows.loc[rows["method_a"] == method, "difference"].sum()
    below = rows.loc[rows["method_b"] == method, "difference"].sum()
    return float(above - below)


def _difference_line(row: dict[Any, Any], best: str) -> list[str]:
    other, value, low, high = (row[c] for c in ("method_b", "difference", "ci_low", "ci_high"))
    if other == best:
        other, value, low, high = row["method_a"], -value, -high, -low
    return [
        other,
        format_interval(value, low, high),
        _format_p_value(row["p_value"]),
        _format_p_value(row["p_max_t"]),
    ]


def _trend_line(row: dict[Any, Any], methods: Methods) -> list[str]:
    reached = NO_VALUE if math.isnan(row["reaches"]) else f"{row['reaches']:.3g}"
    slope = format_interval(row["slope"], row["slope_low"], row["slope_high"])
    slope = NO_VALUE if math.isnan(row["slope"]) else slope
    tau = NO_VALUE if math.isnan(row["tau"]) else f"{row['tau']:.2f}"
    name = method_label(row["method"], row["variant"], methods)
    return [name, tau, slope, _format_p_value(row["p_value"]), reached, row["note"]]


def _format_p_value(value: float) -> str:
    if math.isnan(value):
        return NO_VALUE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
