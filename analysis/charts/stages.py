"""AUROC by stage × scope × epochs × method: where the members were, and which part was scored."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.charts.occurrences import format_range
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import Methods, methods_of
from contamination.analysis.statistics.groups import ANY
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC
from contamination.detection.config import SCOPES
from contamination.injection.finetuning.config import STAGE_TITLES

PANEL = 2.75
"""Inches of a panel's height."""


def stage_rows(pooled: pd.DataFrame) -> pd.DataFrame:
    """The AUROCs of all members, mean over benchmarks, of conditions of two stages."""
    selected = (pooled["metric"] == AUROC.name) & (pooled["occurrences"] == ANY)
    selected &= (
        (pooled["benchmark"] == ALL_BENCHMARKS) & pooled["stage"].notna() & pooled["value"].notna()
    )
    return pooled[selected]


def rows_by_condition_family(pooled: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The rows of conditions that differ in stage, scope and epochs alone, by their common name.

    A chart is of one family: another learning rate or layout would be a second point in its lines.
    """
    rows_with_stage = pooled[pooled["stage"].notna()]
    facts = zip(
        *(rows_with_stage[name] for name in ("condition", "stage", "epochs", "scope")), strict=True
    )
    family_names = [
        name.replace(f"-{stage}-epochs{n}-{scope}", "") for name, stage, n, scope in facts
    ]
    return {
        str(name): family_rows
        for name, family_rows in rows_with_stage.groupby(family_names, sort=True)
    }


def has_several_panels(pooled: pd.DataFrame) -> bool:
    """Whether there is more than one panel to draw."""
    return len(stage_rows(pooled)[["stage", "scope"]].drop_duplicates()) > 1


def stage_chart(pooled: pd.DataFrame, config: AnalysisConfig, family: str = "") -> Figure:
    """Draws a row per scope and a column per stage; panels have a line per method over epochs.

    `family` distinguishes it from charts of other families; empty: there are none.
    """
    rows = stage_rows(pooled)
    methods = methods_of(rows)
    stages = [name for name in STAGE_TITLES if name in set(rows["stage"])]
    scopes = [name for name in SCOPES if name in set(rows["scope"])]
    height = PANEL * len(scopes) + 2.1
    with base.chart_style():
        figure = Figure(figsize=(9, height), dpi=130)
        panels = figure.subplots(len(scopes), len(stages), sharex=True, sharey=True, squeeze=False)
        figure.subplots_adjust(
            left=0.09,
            right=0.8,
            top=1 - 1.15 / height,
            bottom=1.1 / height,
            wspace=0.08,
            hspace=0.32,
        )
        for i, scope in enumerate(scopes):
            for j, stage in enumerate(stages):
                panel_rows = rows[(rows["scope"] == scope) & (rows["stage"] == stage)]
                _draw_panel(
                    panels[i, j],
                    panel_rows,
                    methods,
                    f"members in {STAGE_TITLES[stage]}\n{scope} scored",
                )
                panels[i, j].tick_params(labelbottom=True)
        base.set_auroc_axis(panels[0, 0], rows)
        for left in panels[:, 0]:
            left.set_ylabel(AUROC.title)
        panels[-1, len(stages) // 2].set_xlabel("epochs of fine-tuning")
        _draw_legend(panels[0, -1], methods)
        is_off = base.is_any_control_off(rows)
        title = "Detection by stage, scope and epochs"
        experiment = f"{rows['experiment'].iloc[0]}{family and f', {family}'}"
        subtitle = f"{experiment}: where the members were, and what was scored"
        base.write_title_and_caption(
            figure, title, subtitle, stage_caption(pooled, config), is_off, 1 / height
        )
    return figure


def stage_caption(pooled: pd.DataFrame, config: AnalysisConfig) -> str:
    """What the chart shows: sizes, seeds, and what the bars are."""
    rows = stage_rows(pooled)
    contaminated_rows = rows[rows["checkpoint"] == CONTAMINATED]
    members, nonmembers = (
        format_range(contaminated_rows[name]) for name in ("n_members", "n_nonmembers")
    )
    return (
        f"AUROC of all members ({members}) against non-members ({nonmembers}), mean over "
        f"benchmarks, the fine-tuned model. {base.describe_seeds(contaminated_rows)} per point. "
        f"Bars: {base.describe_intervals(contaminated_rows, config)}. "
        "Whole: the mean over all tokens. Output: its tokens given the input. Input: its own "
        "tokens. Grey, with its band: a text classifier that never sees the model."
    )


def _draw_panel(axes: Axes, rows: pd.DataFrame, methods: Methods, title: str) -> None:
    base.draw_chance_line(axes)
    base.draw_lines(axes, rows, "epochs", methods)
    levels = sorted(rows["epochs"].unique())
    axes.set_xscale("log")
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(title, size=8.5, loc="left")


def _draw_legend(axes: Axes, methods: Methods) -> None:
    names = [base.legend_name(*pair, methods) for pair in methods]
    lines = {line.get_label(): line for line in axes.get_lines()}
    axes.legend(
        [lines[name] for name in names], names, loc="upper left", bbox_to_anchor=(1.02, 1.0),
        frameon=False, fontsize=9,
    )  # fmt: skip
