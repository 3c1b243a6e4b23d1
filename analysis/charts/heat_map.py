"""Method × benchmark: which detector works where, a heat map of the AUROC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.cells import CONTAMINATED
from analysis.charts import base
from analysis.charts.appearance import in_order
from analysis.config import AnalysisConfig
from analysis.inference.baseline import BLIND
from analysis.inference.controls import stamp
from analysis.inference.groups import ANY
from analysis.inference.results import ALL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Values = NDArray[np.float64]
COLOURS = "PuOr_r"
"""Diverging about 0.5, and told apart by colour-blind readers."""


def heat_map(rows: pd.DataFrame, config: AnalysisConfig) -> Figure:
    """AUROC over all members of one condition, its interval in small print; blind is last."""
    shown = rows[(rows["metric"] == "auroc") & (rows["occurrences"] == ANY)]
    shown = shown[(shown["checkpoint"] == CONTAMINATED) | (shown["method"] == BLIND)]
    methods = in_order(shown[["method", "variant"]].itertuples(index=False, name=None))
    benchmarks = sorted(shown["benchmark"].unique(), key=lambda name: (name == ALL, name))
    height = 1.85 + 0.36 * len(methods)
    with base.style():
        figure = Figure(figsize=(9, height), dpi=130)
        axes = figure.add_axes((0.2, 0.95 / height, 0.68, 0.36 * len(methods) / height))
        values = _values(shown, methods, benchmarks)
        image = axes.imshow(values[..., 0], cmap=COLOURS, vmin=0, vmax=1, aspect="auto")
        _write(axes, values)
        axes.set_xticks(range(len(benchmarks)), benchmarks)
        axes.set_yticks(range(len(methods)), [base.name(*pair, methods) for pair in methods])
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if benchmarks[1:] and benchmarks[-1] == ALL:
            axes.axvline(len(benchmarks) - 1.5, color="white", linewidth=5)
        bar = figure.colorbar(image, cax=figure.add_axes((0.9, *_bar(axes))), label="AUROC")
        bar.outline.set_visible(False)
        words = "Detection by benchmark", base.subtitle(rows), heat_caption(shown, config)
        base.write_words(figure, *words, stamp(rows) is not None, 1.0 / height)
    return figure


def heat_caption(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the map shows: sizes, seeds, and what the brackets are."""
    shown = rows[(rows["metric"] == "auroc") & (rows["occurrences"] == ANY)]
    sizes = shown.drop_duplicates("benchmark").set_index("benchmark")
    parts = ", ".join(
        f"{name} {row['n_members']}/{row['n_nonmembers']}"
        for name, row in sizes.iterrows()
        if name != ALL
    )
    return (
        f"AUROC of all members against non-members ({parts}), contaminated model. "
        f"{base.seeds(shown)}. In brackets: {base.band(shown, config)}. White is a guess."
    )


def _bar(axes: Axes) -> tuple[float, float, float]:
    box = axes.get_position()
    return box.y0, 0.014, box.height


def _values(shown: pd.DataFrame, methods: base.Methods, benchmarks: list[str]) -> Values:
    """Methods × benchmarks × (value, low, high); NaN where there is nothing."""
    numbers = shown.set_index(["method", "variant", "benchmark"])[["value", "ci_low", "ci_high"]]
    index = [(*pair, benchmark) for pair in methods for benchmark in benchmarks]
    found: Values = numbers.reindex(index).to_numpy(np.float64)
    return found.reshape(len(methods), len(benchmarks), 3)


def _write(axes: Axes, values: Values) -> None:
    for row, column in np.ndindex(values.shape[:2]):
        value, low, high = values[row, column]
        if np.isnan(value):
            axes.text(column, row, "–", ha="center", va="center", color=base.GREY)
            continue
        colour = "white" if abs(value - 0.5) > 0.35 else "black"
        text = f"{value:.2f}"
        axes.text(column, row - 0.13, text, ha="center", va="center", color=colour, size=9.5)
        bracket = f"[{low:.2f}, {high:.2f}]"
        axes.text(column, row + 0.26, bracket, ha="center", va="center", color=colour, size=6.5)
