"""ROC curves on log axes and score histograms: a small panel per method."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import method_style, methods_of
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.statistics.curves import EDGES
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.summary import format_count
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import MIN_FALSE_ALARMS

COLUMNS = 4
POINTS = ("fpr", "tpr", "ci_low", "ci_high")
SIDES = {"members": "#D55E00", "non-members": "#0072B2"}


def roc_chart(curves: pd.DataFrame, rows: pd.DataFrame, config: AnalysisConfig) -> Figure:
    """TPR against FPR, both logarithmic; grey: the clean model. `rows`: pooled, one condition."""
    mean_curves = curves[curves["benchmark"] == ALL_BENCHMARKS]
    methods = methods_of(mean_curves)
    lowest_fpr = float(mean_curves["fpr"].min())
    steps = (0.001, 0.01, 0.1, 1) if lowest_fpr < 0.02 else (0.02, 0.05, 0.1, 0.2, 0.5, 1)
    ticks = [step for step in steps if step >= lowest_fpr]

    def draw_panel(axes: Axes, method: tuple[str, str]) -> None:
        axes.plot(
            [lowest_fpr, 1], [lowest_fpr, 1], color=base.GREY, linewidth=0.8, linestyle=(0, (2, 2))
        )
        colour = method_style(method[0], methods).colour
        for checkpoint, tone in ((CLEAN, "#9A9A9A"), (CONTAMINATED, colour)):
            line = _rows_of_method(mean_curves, method, checkpoint=checkpoint)
            fpr, tpr, low, high = (line[name].clip(lower=lowest_fpr / 2) for name in POINTS)
            axes.fill_between(fpr, low, high, color=tone, alpha=0.2, linewidth=0, step="post")
            axes.plot(fpr, tpr, color=tone, linewidth=1.7, drawstyle="steps-post")
        axes.set(xscale="log", yscale="log", xlim=(lowest_fpr, 1), ylim=(lowest_fpr, 1.05))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()

    labels = "false-positive rate", "true-positive rate"
    words = "ROC on log axes", base.condition_subtitle(rows), roc_caption(rows, config)
    return _draw_panels(draw_panel, mean_curves, labels, words, control_warning(rows) is not None)


def roc_caption(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    return (
        f"Mean over benchmarks of the true-positive rate at each false-positive rate; "
        f"{_describe_sizes(rows)}. Colour: contaminated model; grey: the model before that "
        "training; dashed: a guess. Curves start where each benchmark expects "
        f"{MIN_FALSE_ALARMS} false alarms. Bands: {base.describe_curve_intervals(rows, config)}."
    )


def histogram_chart(bins: pd.DataFrame, rows: pd.DataFrame) -> Figure:
    """Scores of members and non-members on the contaminated model."""
    mean_bins = bins[(bins["benchmark"] == ALL_BENCHMARKS) & (bins["checkpoint"] == CONTAMINATED)]

    def draw_panel(axes: Axes, method: tuple[str, str]) -> None:
        for side, colour in SIDES.items():
            line = _rows_of_method(mean_bins, method, side=side)
            low, high = (line[name].where(line["share"] > 0) for name in POINTS[2:])
            band = [[*end, end.iloc[-1]] for end in (low, high)]  # the last bin has a width too
            axes.fill_between(
                EDGES, band[0], band[1], step="post", color=colour, alpha=0.22, linewidth=0
            )
            style = "-" if side == "members" else (0, (3, 1))
            axes.stairs(line["share"], EDGES, color=colour, linewidth=1.4, linestyle=style)
        axes.set(xlim=(EDGES[0], EDGES[-1]), ylim=(0, None))

    labels = "score, in standard deviations of the non-members", "share"
    texts = (
        "Scores of members and non-members",
        base.condition_subtitle(rows),
        histogram_caption(rows),
    )
    return _draw_panels(draw_panel, mean_bins, labels, texts, control_warning(rows) is not None)


def histogram_caption(rows: pd.DataFrame) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    return (
        f"Orange: members; blue, dashed: non-members; {_describe_sizes(rows)}. Mean over "
        "benchmarks of the share in each bin; seeds put together. Scores are standardised within "
        "each benchmark and seed; the outermost bins include all scores beyond. "
        "Bands: 95% Wilson intervals of a bin's share. Higher scores indicate members."
    )


def _describe_sizes(rows: pd.DataFrame) -> str:
    over_all = rows[(rows["benchmark"] == ALL_BENCHMARKS) & (rows["occurrences"] == ANY)].iloc[0]
    members, nonmembers = (
        format_count(over_all["n_members"], "member"),
        format_count(over_all["n_nonmembers"], "non-member"),
    )
    return f"{members} and {nonmembers} of all benchmarks, {base.describe_seeds(rows).lower()}"


def _rows_of_method(table: pd.DataFrame, method: tuple[str, str], **equal: str) -> pd.DataFrame:
    """The rows of one method (name, variant) and of other columns' values."""
    for column, value in {"method": method[0], "variant": method[1], **equal}.items():
        table = table[table[column] == value]
    return table


def _draw_panels(
    draw_panel: Callable[[Axes, tuple[str, str]], None],
    rows: pd.DataFrame,
    axis_labels: tuple[str, str],
    texts: tuple[str, str, str],
    stamped: bool,
) -> Figure:
    """Draws a panel per method, in the order of the tables, with shared axes."""
    methods = methods_of(rows)
    lines = ceil(len(methods) / COLUMNS)
    height = 2.4 + 1.9 * lines
    with base.chart_style():
        figure = Figure(figsize=(9, height), dpi=130)
        grid: Any = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True)
        bottom, top = 1.3 / height, 1 - 1.05 / height
        figure.subplots_adjust(0.09, bottom, 0.98, top, wspace=0.3, hspace=0.42)
        panels = list(grid.flat)
        for axes, method in zip(panels, methods, strict=False):
            draw_panel(axes, method)
            name = base.legend_name(*method, methods)
            size, colour = 9 if len(name) < 24 else 7, method_style(method[0], methods).colour
            axes.set_title(name, size=size, color=colour, loc="left")
        for index, axes in enumerate(panels):
            axes.set_visible(index < len(methods))
            axes.tick_params(labelbottom=index >= len(methods) - COLUMNS, labelsize=8)
        figure.text(0.535, bottom - 0.45 / height, axis_labels[0], ha="center")
        figure.text(0.02, (top + bottom) / 2, axis_labels[1], va="center", rotation=90)
        base.write_title_and_caption(figure, *texts, stamped, 1.0 / height)
    return figure
