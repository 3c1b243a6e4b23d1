"""Losses of members, non-members and validation text during training, with the exposures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contamination.analysis.charts import base
from contamination.analysis.charts.curves import SIDES
from contamination.analysis.provenance import LOSSES, CellRecord, loss_table
from contamination.analysis.summary import format_count

COLOURS = {**SIDES, "validation": "#4D4D4D"}
DASHES = {"members": "-", "non-members": (0, (4, 1.5)), "validation": (0, (1.5, 1.5))}
MARKERS = {"members": "o", "non-members": "s", "validation": "^"}


def loss_chart(records: Sequence[CellRecord], rows: pd.DataFrame, stamped: bool) -> Figure:
    """The mean loss per token by optimizer step; below, how many copies each step saw."""
    table = loss_table(records)
    with base.chart_style():
        figure = Figure(figsize=(9, 5.6), dpi=160)
        grid = figure.add_gridspec(
            2, 1, height_ratios=(4, 1), hspace=0.09, left=0.08, right=0.8, top=0.86, bottom=0.22
        )
        copies = figure.add_subplot(grid[1])
        losses = figure.add_subplot(grid[0], sharex=copies)
        for side in LOSSES:
            _draw_loss_line(losses, table[table["side"] == side], side)
        losses.tick_params(labelbottom=False)
        losses.set_ylabel("loss per token")
        losses.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
        _draw_exposures(copies, records, losses.get_xlim())
        texts = "Loss during training", base.condition_subtitle(rows), loss_caption(records)
        base.write_title_and_caption(figure, *texts, stamped)
    return figure


def loss_caption(records: Sequence[CellRecord]) -> str:
    """What the chart shows: seeds, exposures and what the bands are."""
    several = len(records) > 1
    band = "Bands: from the lowest to the highest seed. " if several else "No bands: one seed. "
    return (
        f"Mean loss per token of members, non-members and validation text; "
        f"{format_count(len(records), 'seed')}. {band}Below: inserted copies that the optimizer "
        f"saw, by step ({len(records[0].exposures):,} in all{', first seed' if several else ''})."
    )


def _draw_loss_line(axes: Axes, line: pd.DataFrame, side: str) -> None:
    if line.empty:
        return
    colour = COLOURS[side]
    axes.fill_between(line["step"], line["low"], line["high"], color=colour, alpha=0.15)
    points: dict[str, Any] = {"marker": MARKERS[side], "markersize": 5, "markeredgecolor": "white"}
    style = {"color": colour, "linestyle": DASHES[side], "linewidth": 2, **points}
    axes.plot(line["step"], line["loss"], label=side, **style)


def _draw_exposures(axes: Axes, records: Sequence[CellRecord], limits: tuple[float, float]) -> None:
    last = max(limits[1], float(records[0].exposures.max(initial=1)))
    bins = min(60, max(1, int(last)))
    axes.hist(records[0].exposures, bins=bins, range=(0, last), color="#999999", rwidth=0.85)
    axes.set_ylabel("copies")
    axes.set_xlabel("optimizer step")
