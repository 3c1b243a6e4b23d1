"""AUROC against what was swept: learning rate, corpus size, occurrences and the rest."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.cells import CONTAMINATED
from analysis.charts import base
from analysis.config import AnalysisConfig
from analysis.methods import methods_of
from analysis.statistics.controls import control_rows, stamp
from analysis.sweeps import Sweep, short


def factor_chart(sweep: Sweep, config: AnalysisConfig) -> Figure:
    """One line a method along the sweep; log x, bars = intervals; the controls on the left."""
    rows, factor = sweep.rows, sweep.factor
    methods = methods_of(rows)
    with base.style():
        figure, clean, axes = base.with_controls()
        base.chance_line(axes)
        base.draw_lines(axes, rows, factor.column, methods)
        base.draw_controls(clean, once(control_rows(rows)), methods)
        _dress(axes, sweep)
        base.auroc_axis(clean, rows)
        highest = rows[factor.column].max()
        last = rows[rows[factor.column] == highest]
        base.side_legend(axes, last, methods, short(float(highest)))
        caption = factor_caption(sweep, config)
        off = any(stamp(part) is not None for _, part in rows.groupby("condition"))
        subtitle = f"{rows['experiment'].iloc[0]}: {sweep.fixed}"
        base.write_words(figure, factor.title, subtitle, caption, off)
    return figure


def factor_caption(sweep: Sweep, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    line = sweep.rows[sweep.rows["checkpoint"] == CONTAMINATED]
    members, nonmembers = (span(line[name]) for name in ("n_members", "n_nonmembers"))
    return (
        f"AUROC of all members ({members}) against non-members ({nonmembers}), mean over "
        f"benchmarks, contaminated model. {base.seeds(line)} a point. "
        f"Bars and band: {base.band(line, config)}. Left: the models before the contaminated "
        f"training. Grey: a text classifier that never sees the model.{without(sweep)}"
    )


def without(sweep: Sweep) -> str:
    """The factor's values that no line reaches, with the reason; nothing where there are none."""
    return "".join(f" No value at {short(at)} ({why})." for at, why in sweep.reasons.items())


def once(controls: pd.DataFrame) -> pd.DataFrame:
    """The controls without those that several conditions share."""
    return controls.drop_duplicates(["method", "variant", "value"])


def span(sizes: pd.Series[int]) -> str:
    """The number, or the least and the most: "391 to 400"."""
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _dress(axes: Axes, sweep: Sweep) -> None:
    values = sweep.levels
    axes.set_xscale("log")
    axes.set_xticks(values, [short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(sweep.factor.axis)
