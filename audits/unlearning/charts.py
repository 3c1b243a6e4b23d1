"""The audit's charts: the members' scores by model, and how far each unlearned model went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.findings import INK, MEMBER, NONMEMBER, SERIES, Chart, drawn, svg
from contamination.audits.unlearning.inputs import Models
from contamination.audits.unlearning.quantities import Quantity

WIDTH = 9.0
DASHES = ("-", "--", ":", "-.")


def charts(models: Models, main: Quantity, ways: pd.DataFrame | None) -> Iterator[Chart]:
    """All charts that there is something for."""
    yield _scores(models, main)
    if ways is not None and len(shown := _shown(ways, main.name)):
        yield _ways(models, shown)


def _scores(models: Models, main: Quantity) -> Chart:
    """The cumulative share of the members' scores, a line a model."""
    mask = main.units.sides[True]
    what = "members" if mask.any() else "chunks"
    mask = mask if mask.any() else np.ones(len(mask), bool)
    with drawn(WIDTH, 3.6) as (figure, axes):
        for model in models:
            values = np.sort(main.values[model.name][mask])
            share = np.arange(1, len(values) + 1) / len(values)
            axes.step(values, share, where="post", label=model.name, **_line(models, model.name))
        axes.set_xlabel(f"score by {main.name}; higher: more like a member")
        axes.set_ylabel(f"share of the {what}")
        figure.legend(loc="outside right upper")
        title = f"Scores of the {what}"
        picture = svg(figure, f"{title} by {main.name}, a line a model")
    caption = "The share of scores at most as high as that below."
    if models.clean is not None:
        caption += (
            " A model that forgot lies on the clean twin's line. One that lies there need not have "
            "forgotten: the scores of non-members may have moved as far."
        )
    return Chart("scores", title, picture, caption)


def _line(models: Models, name: str) -> dict[str, Any]:
    if name == models.original.name:
        return {"color": MEMBER}
    if models.clean is not None and name == models.clean.name:
        return {"color": NONMEMBER}
    place = [model.name for model in models.unlearned].index(name)
    turn = place // len(SERIES)  # the next models have the same colours, with other dashes
    dashes = DASHES[(place + turn) % len(DASHES)]
    return {"color": SERIES[place % len(SERIES)], "linestyle": dashes}


def _shown(ways: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows that can be told, of one method's scores alone: all methods' are in the table."""
    return ways[ways["share"].notna() & ways["method"].isin([method, ""])]


def _ways(models: Models, ways: pd.DataFrame) -> Chart:
    """The share of the way with its interval, a row a model and quantity."""
    rows = ways.iloc[::-1]
    places = np.arange(len(rows))
    edges = min(-0.5, rows["share"].min() - 0.5), max(1.5, rows["share"].max() + 0.5)
    with drawn(WIDTH, 1.2 + 0.28 * len(rows)) as (figure, axes):
        for place, (_, row) in zip(places, rows.iterrows(), strict=True):
            colour = _line(models, row["unlearned"])["color"]
            ends = np.clip(row[["share_low", "share_high"]].astype(float), *edges)
            axes.plot(ends, [place] * 2, color=colour)
            axes.plot([row["share"]], [place], "o", color=colour, markersize=4)
        for value, colour in ((0, MEMBER), (1, NONMEMBER)):
            axes.axvline(value, color=colour, linewidth=1.2)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        names = rows["unlearned"] + ": " + rows["quantity"]
        axes.set_yticks(places, names)
        axes.set_xlabel("share of the way from the original (0) to the clean twin (1)")
        axes.set_xlim(edges)
        axes.tick_params(axis="y", colors=INK)
        title = "How far each model went"
        picture = svg(figure, f"{title}: the share of the way, with intervals")
    caption = (
        "0, orange: as the original; 1, violet: as the clean twin. 95% intervals over texts; one "
        "that ends at the edge goes on."
    )
    return Chart("way", title, picture, caption)
