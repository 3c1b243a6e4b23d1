"""The audit's charts: the members' scores by model, and the forget ratios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.unlearning.inputs import AuditedModels
from contamination.audits.unlearning.quantities import Quantity
from contamination.core.report.charts import (
    INK,
    MEMBER,
    NONMEMBER,
    SERIES,
    InlineChart,
    page_figure,
    svg_element,
)

WIDTH = 9.0
DASHES = ("-", "--", ":", "-.")


def charts(
    models: AuditedModels, score: Quantity, ratios: pd.DataFrame | None
) -> Iterator[InlineChart]:
    """The charts of one method's scores.

    Args:
        models: the models.
        score: the scores that the screen reads.
        ratios: see `comparison.forget_ratio_table`; None or without a ratio: no chart of ratios.
    """
    yield _score_chart(models, score)
    if ratios is not None and len(estimated := _estimated_ratios(ratios, score.name)):
        yield _ratio_chart(models, estimated)


def _score_chart(models: AuditedModels, score: Quantity) -> InlineChart:
    """The distribution functions of the members' scores, a line per model."""
    mask = score.units.sides[True]
    units = "members" if mask.any() else "chunks"
    mask = mask if mask.any() else np.ones(len(mask), bool)
    with page_figure(WIDTH, 3.6) as (figure, axes):
        for model in models:
            values = np.sort(score.values[model.name][mask])
            shares = np.arange(1, len(values) + 1) / len(values)
            style = _line_style(models, model.name)
            axes.step(values, shares, where="post", label=model.name, **style)
        axes.set_xlabel(f"score by {score.name}; higher: more like a member")
        axes.set_ylabel(f"share of the {units}")
        figure.legend(loc="outside right upper")
        title = f"Scores of the {units}"
        svg = svg_element(figure, f"{title} by {score.name}, a line per model")
    caption = "The share of scores at most as high as that below."
    if models.clean is not None:
        caption += (
            " A model that forgot lies on the clean twin's line. One that lies there need not have "
            "forgotten: the scores of non-members may have moved as far."
        )
    return InlineChart("scores", title, svg, caption)


def _line_style(models: AuditedModels, name: str) -> dict[str, Any]:
    if name == models.original.name:
        return {"color": MEMBER}
    if models.clean is not None and name == models.clean.name:
        return {"color": NONMEMBER}
    index = [model.name for model in models.unlearned].index(name)
    repetition = index // len(SERIES)  # the colours repeat with other dashes
    dashes = DASHES[(index + repetition) % len(DASHES)]
    return {"color": SERIES[index % len(SERIES)], "linestyle": dashes}


def _estimated_ratios(ratios: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows with a ratio, without other methods' scores: the table has those."""
    return ratios[ratios["share"].notna() & ratios["method"].isin([method, ""])]


def _ratio_chart(models: AuditedModels, ratios: pd.DataFrame) -> InlineChart:
    """The forget ratios with their intervals, a row per model and quantity."""
    rows = ratios.iloc[::-1]
    heights = np.arange(len(rows))
    edges = min(-0.5, rows["share"].min() - 0.5), max(1.5, rows["share"].max() + 0.5)
    with page_figure(WIDTH, 1.2 + 0.28 * len(rows)) as (figure, axes):
        for y, (_, row) in zip(heights, rows.iterrows(), strict=True):
            colour = _line_style(models, row["unlearned"])["color"]
            ends = np.clip(row[["share_low", "share_high"]].astype(float), *edges)
            axes.plot(ends, [y] * 2, color=colour)
            axes.plot([row["share"]], [y], "o", color=colour, markersize=4)
        for value, colour in ((0, MEMBER), (1, NONMEMBER)):
            axes.axvline(value, color=colour, linewidth=1.2)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        names = rows["unlearned"] + ": " + rows["quantity"]
        axes.set_yticks(heights, names)
        axes.set_xlabel("share of the way from the original (0) to the clean twin (1)")
        axes.set_xlim(edges)
        axes.tick_params(axis="y", colors=INK)
        title = "How far each model went"
        svg = svg_element(figure, f"{title}: the share of the way, with intervals")
    caption = (
        "0, orange: as the original; 1, violet: as the clean twin. 95% intervals over texts; one "
        "that ends at the edge continues beyond it."
    )
    return InlineChart("way", title, svg, caption)
