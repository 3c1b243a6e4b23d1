"""Shared parts of charts: style, lines of methods, interval bars, captions, deterministic files.

Files are a function of the results alone (no dates, no random ids), and figures are made without
pyplot, so that nothing global changes and no display is needed.
"""

from __future__ import annotations

import logging
import textwrap
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import Methods, checkpoint_of, method_label, method_style
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.statistics.curves import MOST_DRAWS
from contamination.analysis.summary import format_count
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND

GREY = "#555555"
WARNING = "#B00020"
STAMP: dict[str, Any] = {
    **{"size": 11, "weight": "bold", "ha": "right", "color": WARNING},
    "bbox": {"facecolor": "none", "edgecolor": WARNING, "boxstyle": "round,pad=0.35"},
}
CAPTION_WIDTH = 124
"""Characters of a caption's line that fit a figure 9 inches wide."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))
"""Line styles of a method's variants."""
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.edgecolor": GREY,
    "svg.hashsalt": "contamination-testbed",
    "pdf.fonttype": 42,  # text stays text
}


logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs each table of a PDF's font


def chart_style() -> AbstractContextManager[None]:
    """Returns the context in which charts are drawn and saved."""
    return mpl.rc_context(STYLE)


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes `<name>.png`, `<name>.svg` and, for papers, `<name>.pdf`: the same bytes every time.

    Returns:
        The files, PNG first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    paths = [folder / f"{name}.{kind}" for kind in metadata]
    with chart_style():
        for path, fields in zip(paths, metadata.values(), strict=True):
            figure.savefig(path, metadata=fields)
    return paths


def line_style(method: str, variant: str, methods: Methods) -> dict[str, Any]:
    """Returns a method's line style, the same in every chart; variants differ in their dashes."""
    variants = [v for m, v in methods if m == method]
    return {
        **_marker_style(method, methods),
        "linewidth": 2.0,
        "linestyle": "--" if method == BLIND else LINES[variants.index(variant) % len(LINES)],
        "label": legend_name(method, variant, methods),
    }


def draw_interval_bar(axes: Axes, x: float, row: Any, methods: Methods) -> None:
    """Draws a value with its interval (`row` of the results) at one x."""
    marker = _marker_style(row["method"], methods)
    ends = row["ci_low"], row["ci_high"]
    axes.plot([x, x], ends, color=marker["color"], linewidth=1.6)
    axes.plot([x], [row["value"]], **marker)


def method_line_rows(rows: pd.DataFrame, method: str, variant: str, x_column: str) -> pd.DataFrame:
    """Returns a method's rows in order of a column, which becomes `x`."""
    of_method = (rows["method"] == method) & (rows["variant"] == variant)
    line = rows[of_method & (rows["checkpoint"] == checkpoint_of(method))]
    return line.assign(x=line[x_column].astype(float)).sort_values("x")


def draw_lines(axes: Axes, rows: pd.DataFrame, x_column: str, methods: Methods) -> None:
    """Draws each method's values and intervals along a column's numbers, on a log axis.

    The intervals are bars, side by side: bands would cover each other. The blind baseline has a
    band.
    """
    levels = np.unique(rows[x_column].to_numpy(np.float64))
    detectors = [pair for pair in methods if pair[0] != BLIND]
    offset_of_method = dict(
        zip(detectors, _side_by_side_factors(np.log(levels), len(detectors)), strict=True)
    )
    for pair in methods:
        line, style = method_line_rows(rows, *pair, x_column), line_style(*pair, methods)
        x, ends = line["x"] * offset_of_method.get(pair, 1.0), (line["ci_low"], line["ci_high"])
        if pair in offset_of_method or len(levels) == 1:  # a band needs two places
            axes.vlines(x, *ends, color=style["color"], linewidth=1.4)
        else:
            axes.fill_between(x, *ends, color=style["color"], alpha=0.14, linewidth=0)
        axes.plot(x, line["value"], **style)
    margin = max(offset_of_method.values(), default=1.0) * np.exp(0.04 * _log_span(np.log(levels)))
    axes.set_xlim(levels[0] / margin, levels[-1] * margin)


def _side_by_side_factors(log_levels: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Returns factors that place this many bars side by side on a log axis."""
    span = _log_span(log_levels)
    gap = np.diff(log_levels).min(initial=span)
    step = min(0.02 * span, 0.08 * gap, 0.44 * gap / max(1, number))
    factors: NDArray[np.float64] = np.exp((np.arange(number) - (number - 1) / 2) * step)
    return factors


def _log_span(log_levels: NDArray[np.float64]) -> float:
    """Returns the span of a log axis, in powers of e; 1 for a single level."""
    return float(np.ptp(log_levels)) or 1.0


def draw_chance_line(axes: Axes) -> None:
    """Draws the AUROC of a guess."""
    axes.axhline(AUROC.guess, color=GREY, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)


def set_auroc_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Sets the AUROC axis: from below all intervals, at most 0.4, to 1."""
    axes.set_ylim(max(0.0, min(rows["ci_low"].min(), 0.4) - 0.03), 1.02)
    axes.set_ylabel(AUROC.title)


def figure_with_controls_panel() -> tuple[Figure, Axes, Axes]:
    """Returns a figure with a narrow panel for the controls and one for the lines."""
    figure = Figure(figsize=(9, 5.6), dpi=160)
    grid = figure.add_gridspec(
        1, 2, width_ratios=(1, 4), wspace=0.04, left=0.08, right=0.76, top=0.86, bottom=0.25
    )
    lines_axes = figure.add_subplot(grid[1])
    controls_axes = figure.add_subplot(grid[0], sharey=lines_axes)
    lines_axes.tick_params(labelleft=False, left=False)
    lines_axes.spines["left"].set_visible(False)
    return figure, controls_axes, lines_axes


def draw_controls(axes: Axes, rows: pd.DataFrame, methods: Methods) -> None:
    """Draws the clean model's AUROC by each method, and the blind baseline's."""
    draw_chance_line(axes)
    x_of_method = {pair: i for i, pair in enumerate(methods)}
    for _, row in rows.iterrows():
        draw_interval_bar(axes, x_of_method[row["method"], row["variant"]], row, methods)
    axes.set_xlim(-0.9, len(methods) - 0.1)
    axes.set_xticks([])
    axes.set_xlabel("controls: clean\nmodel, and blind")


def write_title_and_caption(
    figure: Figure, title: str, subtitle: str, caption: str, stamped: bool, inch: float = 1 / 5.6
) -> None:
    """Writes title, subtitle and caption, and a stamp if a control is off.

    `inch` is one inch as a share of the figure's height.
    """
    figure.text(0.08, 1 - 0.28 * inch, title, size=14, weight="bold")
    figure.text(0.08, 1 - 0.53 * inch, subtitle, size=10, color=GREY)
    wrapped = textwrap.fill(caption, CAPTION_WIDTH)
    figure.text(0.08, 0.11 * inch, wrapped, size=8, color=GREY, va="bottom", linespacing=1.35)
    if stamped:
        figure.text(0.98, 1 - 0.22 * inch, "CONTROL OFF: see the report", **STAMP)


def draw_side_legend(axes: Axes, last_rows: pd.DataFrame, methods: Methods, right_end: str) -> None:
    """Draws a legend next to the lines, in order of their last values; those without one are last.

    `last` are the rows at the right end, `right_end` is its level in words.
    """
    contaminated_rows = last_rows[last_rows["checkpoint"] == CONTAMINATED]
    value_by_method = {
        (row.method, row.variant): row.value for row in contaminated_rows.itertuples()
    }
    line_by_label = {line.get_label(): line for line in axes.get_lines()}
    ordered_methods = sorted(methods, key=lambda pair: -float(value_by_method.get(pair, 0.0)))
    legend_names = [legend_name(*pair, methods) for pair in ordered_methods]
    axes.legend(
        [line_by_label[label_text] for label_text in legend_names],
        legend_names,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        frameon=False,
        title=f"in order at {right_end}",
        alignment="left",
        fontsize=10 if len(legend_names) <= 14 else 8.5,
    )


def is_any_control_off(rows: pd.DataFrame) -> bool:
    """Returns whether a control of any condition in the pooled rows is off."""
    rows_of_conditions = (condition_rows for _, condition_rows in rows.groupby("condition"))
    return any(control_warning(condition_rows) is not None for condition_rows in rows_of_conditions)


def describe_seeds(rows: pd.DataFrame) -> str:
    """Returns the number of seeds in words, or the seed of a results table."""
    if "n_seeds" not in rows:
        return f"Seed {rows['seed'].iloc[0]}"
    return format_count(int(rows["n_seeds"].max()), "seed")


def describe_intervals(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """Returns what a band is: over examples, and over seeds if several were pooled."""
    pooled_seeds = "n_seeds" in rows and rows["n_seeds"].max() > 1
    resampled = "seeds and examples" if pooled_seeds else "examples"
    return f"{config.confidence:.0%} bootstrap intervals over {resampled} ({config.draws:,} draws)"


def describe_curve_intervals(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """`describe_intervals` of whole curves, which have fewer draws."""
    return describe_intervals(rows, replace(config, draws=min(config.draws, MOST_DRAWS)))


def condition_subtitle(rows: pd.DataFrame) -> str:
    """Returns the condition in words."""
    first = rows.iloc[0]
    return (
        f"{first['experiment']}: {first['model']}, learning rate {first['learning_rate']:g}, "
        f"{first['budget_tokens']:,} tokens"
    )


def legend_name(method: str, variant: str, methods: Methods) -> str:
    """Returns the method's name in a legend."""
    return "blind (no model)" if method == BLIND else method_label(method, variant, methods)


def _marker_style(method: str, methods: Methods) -> dict[str, Any]:
    colour, marker, _ = method_style(method, methods)
    white = {"markeredgecolor": "white", "markeredgewidth": 0.8}
    thin = not isinstance(marker, str) or marker in "*PX"  # covers less of its box
    size = 9 if thin else 6.5
    return {"color": colour, "marker": marker, "markersize": size, **white}
