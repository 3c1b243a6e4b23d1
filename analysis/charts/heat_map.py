"""Method × benchmark: which detector works where, a heat map of the AUROC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import Methods, methods_of
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.statistics.groups import ANY, sorted_benchmarks
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC, Metric
from contamination.detection.baselines.blind import BLIND

Values = NDArray[np.float64]
COLOURS = ("#542788", "#b2abd2", "#f7f7f7", "#fdb863", "#b35806")
"""Worse than a guess, a guess (white), better; told apart by colour-blind readers."""


RATE = ("#f7f7f7", "#fdb863", "#b35806")
"""A rate from the worst to the best: it has no middle to turn at."""


def colour_scale(metric: Metric) -> list[tuple[float, str]]:
    """The colours of the metric's values from 0 to 1; colour-bars interpolate between them.

    AUROC turns at a guess, which is white; a rate's colours go one way, the strongest is the best.
    """
    colours = COLOURS if metric == AUROC else RATE
    ordered = colours if metric.higher_is_better else colours[::-1]
    return [(i / (len(ordered) - 1), colour) for i, colour in enumerate(ordered)]


def describe_colour_scale(metric: Metric) -> str:
    """How to read the colours."""
    if metric == AUROC:
        return f"White is a guess ({metric.guess:g}), orange is better, purple worse."
    return f"The stronger the orange the better; a guess reaches {metric.guess:g}."


def heat_map(rows: pd.DataFrame, config: AnalysisConfig) -> Figure:
    """AUROC over all members of one condition, its interval in small print; blind is last."""
    aurocs = rows[(rows["metric"] == AUROC.name) & (rows["occurrences"] == ANY)]
    aurocs = aurocs[(aurocs["checkpoint"] == CONTAMINATED) | (aurocs["method"] == BLIND)]
    methods = methods_of(aurocs)
    benchmarks = sorted_benchmarks(aurocs)
    height = 1.85 + 0.36 * len(methods)
    with base.chart_style():
        figure = Figure(figsize=(9, height), dpi=130)
        axes = figure.add_axes((0.2, 0.95 / height, 0.68, 0.36 * len(methods) / height))
        values = _estimate_array(aurocs, methods, benchmarks)
        colours = LinearSegmentedColormap.from_list("guess", colour_scale(AUROC))
        image = axes.imshow(values[..., 0], cmap=colours, vmin=0, vmax=1, aspect="auto")
        _write_estimates(axes, values)
        axes.set_xticks(range(len(benchmarks)), benchmarks)
        axes.set_yticks(range(len(methods)), [base.legend_name(*pair, methods) for pair in methods])
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if benchmarks[1:] and benchmarks[-1] == ALL_BENCHMARKS:
            axes.axvline(len(benchmarks) - 1.5, color="white", linewidth=5)
        box = axes.get_position()
        colour_bar_axes = figure.add_axes((0.9, box.y0, 0.014, box.height))
        bar = figure.colorbar(image, cax=colour_bar_axes, label=AUROC.title)
        bar.outline.set_visible(False)
        texts = (
            "Detection by benchmark",
            base.condition_subtitle(rows),
            heat_caption(aurocs, config),
        )
        base.write_title_and_caption(
            figure, *texts, control_warning(rows) is not None, 1.0 / height
        )
    return figure


def heat_caption(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the map shows: sizes, seeds, and what the brackets are."""
    aurocs = rows[(rows["metric"] == AUROC.name) & (rows["occurrences"] == ANY)]
    sizes = aurocs.drop_duplicates("benchmark").set_index("benchmark")[
        ["n_members", "n_nonmembers"]
    ]
    sizes = sizes.drop(index=ALL_BENCHMARKS, errors="ignore")
    sizes_text = ", ".join(f"{name} {m}/{n}" for name, m, n in sizes.itertuples(name=None))
    return (
        f"AUROC of all members against non-members ({sizes_text}), contaminated model. "
        f"{base.describe_seeds(aurocs)}. In brackets: {base.describe_intervals(aurocs, config)}. "
        f"{describe_colour_scale(AUROC)}"
    )


def _estimate_array(aurocs: pd.DataFrame, methods: Methods, benchmarks: list[str]) -> Values:
    """Methods × benchmarks × (value, low, high); NaN where there is nothing."""
    estimate_columns = aurocs.set_index(["method", "variant", "benchmark"])[
        ["value", "ci_low", "ci_high"]
    ]
    method_benchmark_keys = [(*pair, benchmark) for pair in methods for benchmark in benchmarks]
    estimates: Values = estimate_columns.reindex(method_benchmark_keys).to_numpy(np.float64)
    return estimates.reshape(len(methods), len(benchmarks), 3)


def _write_estimates(axes: Axes, values: Values) -> None:
    for row, column in np.ndindex(values.shape[:2]):
        value, low, high = values[row, column]
        if np.isnan(value):
            axes.text(column, row, "–", ha="center", va="center", color=base.GREY)
            continue
        colour = "white" if abs(value - AUROC.guess) > 0.35 else "black"
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
        axes.text(column, row - 0.13, f"{value:.2f}", size=9.5, **style)
        axes.text(column, row + 0.26, f"[{low:.2f}, {high:.2f}]", size=6.5, **style)
