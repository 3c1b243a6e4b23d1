"""AUROC against what conditions differ in: learning rate, corpus size, model size, text length."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.cells import CONTAMINATED, Series
from analysis.charts import base
from analysis.config import AnalysisConfig
from analysis.methods import methods_of
from analysis.statistics.controls import stamp
from analysis.statistics.groups import ANY
from analysis.statistics.results import ALL
from core.metrics import AUROC

log = logging.getLogger(__name__)


class Factor(NamedTuple):
    """A column that conditions may differ in."""

    column: str
    title: str
    axis: str
    bound: tuple[str, ...] = ()
    """Columns that change with it."""


FACTORS = (
    Factor("learning_rate", "Detection by learning rate", "peak learning rate"),
    Factor("budget_tokens", "Detection by corpus size", "tokens of the training corpus"),
    Factor("parameters", "Detection by model size", "parameters of the model", ("model",)),
    Factor("example_max_tokens", "Detection by text length", "most tokens of an example"),
)


def factor_groups(pooled: pd.DataFrame, factor: Factor, series: Series) -> Iterator[pd.DataFrame]:
    """AUROC rows of conditions that differ in the factor alone, where it has several values."""
    if factor.column not in pooled:
        return
    shown = pooled[(pooled["metric"] == AUROC.name) & (pooled["occurrences"] == ANY)]
    shown = shown[(shown["benchmark"] == ALL) & (shown["needs"] == "")]
    shown = shown[shown[factor.column].notna()]
    keys = shown["condition"].map(lambda condition: series.get((condition, factor.column)))
    for _, rows in shown.groupby(keys, sort=False):
        conditions = rows.drop_duplicates("condition")[factor.column]
        if conditions.duplicated().any():
            log.warning("%s: conditions differ in more than it, so no chart.", factor.column)
        elif len(conditions) > 1:
            yield rows


def factor_chart(rows: pd.DataFrame, factor: Factor, config: AnalysisConfig) -> Figure:
    """One line a method over one group of `factor_groups`; log x, band = interval."""
    methods = methods_of(rows)
    with base.style():
        figure = Figure(figsize=(9, 5.6), dpi=160)
        axes = figure.add_axes((0.08, 0.25, 0.66, 0.61))
        base.chance_line(axes)
        for method, variant in methods:
            line = base.line_of(rows, method, variant, factor.column)
            base.draw_line(axes, line, base.line_style(method, variant, methods), methods)
        _dress(axes, rows, factor)
        highest = rows[factor.column].max()
        last = rows[rows[factor.column] == highest]
        base.side_legend(axes, last, methods, base.short(float(highest)))
        caption = factor_caption(rows, config)
        off = any(stamp(part) is not None for _, part in rows.groupby("condition"))
        base.write_words(figure, factor.title, _subtitle(rows, factor), caption, off)
    return figure


def factor_caption(rows: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bands are."""
    line = rows[rows["checkpoint"] == CONTAMINATED]
    members, nonmembers = (_span(line[name]) for name in ("n_members", "n_nonmembers"))
    return (
        f"AUROC of all members ({members}) against non-members ({nonmembers}), mean over "
        f"benchmarks, contaminated model. {base.seeds(line)} a point. "
        f"Bands: {base.band(line, config)}. Grey: a text classifier that never sees the model."
    )


def _span(sizes: pd.Series[int]) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _subtitle(rows: pd.DataFrame, factor: Factor) -> str:
    first = rows.iloc[0]
    words = {
        "model": str(first["model"]),
        "learning_rate": f"learning rate {first['learning_rate']:g}",
        "budget_tokens": f"{first['budget_tokens']:,} tokens",
    }
    if pd.notna(first["last_tokens"]):
        words["last_tokens"] = f"copies in the last {first['last_tokens']:,} tokens"
    for varies in (factor.column, *factor.bound):
        words.pop(varies, None)
    return f"{first['experiment']}: {', '.join(words.values())}"


def _dress(axes: Axes, rows: pd.DataFrame, factor: Factor) -> None:
    values = sorted(set(rows[factor.column].astype(float)))
    axes.set_xscale("log")
    axes.set_xticks(values, [base.short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    margin = (values[-1] / values[0]) ** 0.04
    axes.set_xlim(values[0] / margin, values[-1] * margin)
    base.auroc_axis(axes, rows)
    axes.set_xlabel(factor.axis)
