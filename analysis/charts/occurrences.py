"""The main chart: AUROC against occurrences, with its controls in the same picture."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import Methods, methods_of
from contamination.analysis.statistics.controls import control_warning, mean_control_rows
from contamination.analysis.statistics.groups import ANY, occurrences_sort_key
from contamination.analysis.sweeps import Sweep, format_short
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC


def has_occurrences(results: pd.DataFrame) -> bool:
    """Whether some number of occurrences was measured on every benchmark."""
    return bool((_mean_auroc_rows(results)["occurrences"] != ANY).any())


def occurrences_chart(results: pd.DataFrame, config: AnalysisConfig) -> Figure:
    """AUROC against occurrences of one condition, mean over benchmarks, one line per method.

    `results` are rows of one condition of the pooled table (or of one cell of the results).

    The narrow panel on the left is the clean model on the same examples: no occurrence yet. The
    blind baseline is the grey dashed line.
    """
    rows = _mean_auroc_rows(results)
    methods = methods_of(rows)
    with base.chart_style():
        figure, clean, numbered = base.figure_with_controls_panel()
        by_number = rows[rows["occurrences"] != ANY]
        _draw_occurrences_lines(numbered, by_number, methods)
        base.draw_controls(clean, mean_control_rows(rows), methods)
        base.set_auroc_axis(clean, rows)
        highest_number = max(by_number["occurrences"], key=occurrences_sort_key)
        last = by_number[by_number["occurrences"] == highest_number]
        base.draw_side_legend(numbered, last, methods, f"{highest_number} ×")
        caption = occurrences_caption(results, config)
        is_off = control_warning(results) is not None
        base.write_title_and_caption(
            figure, "Detection by occurrences", base.condition_subtitle(results), caption, is_off
        )
    return figure


def occurrences_caption(results: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    rows = _mean_auroc_rows(results)
    sizes = rows.drop_duplicates("occurrences").set_index("occurrences")["n_members"]
    numbers = [number for number in sorted(sizes.index, key=occurrences_sort_key) if number != ANY]
    members = ", ".join(f"{sizes[number]} at {number} ×" for number in numbers)
    benchmarks = sorted(set(results["benchmark"]) - {ALL_BENCHMARKS})
    mean_over = (
        f"mean over {len(benchmarks)} benchmarks ({', '.join(benchmarks)})"
        if benchmarks[1:]
        else benchmarks[0]
    )
    return (
        f"AUROC of members against non-members, {mean_over}. Members: {members}; non-members: "
        f"{rows['n_nonmembers'].iloc[0]}. {base.describe_seeds(rows)}. "
        f"Bars and band: {base.describe_intervals(rows, config)}. Left: the model before the "
        "contaminated training, on all members. Grey: a text classifier that never sees the model "
        "(its interval is from shuffled labels)."
    )


def _mean_auroc_rows(results: pd.DataFrame) -> pd.DataFrame:
    mean_aurocs = results[
        (results["metric"] == AUROC.name) & (results["benchmark"] == ALL_BENCHMARKS)
    ]
    return mean_aurocs[mean_aurocs["needs"] == ""]


def _draw_occurrences_lines(axes: Axes, rows: pd.DataFrame, methods: Methods) -> None:
    base.draw_chance_line(axes)
    numbers = sorted(rows["occurrences"].astype(int).unique())
    if len(numbers) > 1:
        base.draw_lines(axes, rows, "occurrences", methods)
    else:
        _draw_single_number(axes, rows, numbers[0], methods)
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.minorticks_off()
    axes.set_xlabel("occurrences of a member in the training corpus")


def _draw_single_number(axes: Axes, rows: pd.DataFrame, number: int, methods: Methods) -> None:
    """No line to see: points side by side."""
    for index, (method, variant) in enumerate(methods):
        x = number * 2 ** (0.04 * (index - (len(methods) - 1) / 2))
        for _, row in base.method_line_rows(rows, method, variant, "occurrences").iterrows():
            base.draw_interval_bar(axes, x, row, methods)
        axes.plot([], [], **base.line_style(method, variant, methods))
    axes.set_xlim(number / 2, number * 2)


def factor_chart(sweep: Sweep, config: AnalysisConfig) -> Figure:
    """Draws one line per method along the sweep; bars are intervals, controls are on the left."""
    rows, factor = sweep.rows, sweep.factor
    methods = methods_of(rows)
    with base.chart_style():
        figure, clean, axes = base.figure_with_controls_panel()
        base.draw_chance_line(axes)
        base.draw_lines(axes, rows, factor.column, methods)
        base.draw_controls(clean, drop_repeated_controls(mean_control_rows(rows)), methods)
        _label_factor_axis(axes, sweep)
        base.set_auroc_axis(clean, rows)
        highest = rows[factor.column].max()
        last = rows[rows[factor.column] == highest]
        base.draw_side_legend(axes, last, methods, format_short(float(highest)))
        caption = factor_caption(sweep, config)
        is_off = base.is_any_control_off(rows)
        subtitle = f"{rows['experiment'].iloc[0]}: {sweep.shared_text}"
        base.write_title_and_caption(figure, factor.title, subtitle, caption, is_off)
    return figure


def factor_caption(sweep: Sweep, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    line = sweep.rows[sweep.rows["checkpoint"] == CONTAMINATED]
    members, nonmembers = (format_range(line[name]) for name in ("n_members", "n_nonmembers"))
    return (
        f"AUROC of all members ({members}) against non-members ({nonmembers}), mean over "
        f"benchmarks, contaminated model. {base.describe_seeds(line)} per point. "
        f"Bars and band: {base.describe_intervals(line, config)}. Left: the models before the "
        "contaminated training. Grey: a text classifier that never sees the model."
        f"{describe_missing_levels(sweep)}"
    )


def describe_missing_levels(sweep: Sweep) -> str:
    """The factor's values that no line reaches, with the reason; nothing where there are none."""
    reasons = sweep.reason_by_level.items()
    return "".join(f" No value at {format_short(level)} ({reason})." for level, reason in reasons)


def drop_repeated_controls(controls: pd.DataFrame) -> pd.DataFrame:
    """The controls without those that several conditions share."""
    return controls.drop_duplicates(["method", "variant", "value"])


def format_range(sizes: pd.Series[int]) -> str:
    """The number, or the smallest and the largest: "391 to 400"."""
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _label_factor_axis(axes: Axes, sweep: Sweep) -> None:
    values = sweep.levels
    axes.set_xscale("log")
    axes.set_xticks(values, [format_short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(sweep.factor.axis)
