"""The audit's charts: the members' scores by model, and how far each unlearned model went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from detection.audits.drawing import GREY, INK, MARKED, MEMBER, NONMEMBER, drawn, svg
from detection.audits.findings import Chart
from detection.audits.unlearning.given import Models
from detection.audits.unlearning.quantities import Quantity

WIDTH = 9.0
DASHES = ("-", "--", ":", "-.")


def charts(models: Models, main: Quantity, ways: pd.DataFrame | None) -> Iterator[Chart]:
    """All charts that there is something for."""
    yield _scores(models, main)
    if ways is not None and len(shown := _shown(ways, main.name)):
        yield _ways(shown)


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
        axes.set_xlabel(f"{main.name} score")
        axes.set_ylabel(f"share of the {what}")
        axes.legend(loc="upper left")
        title = f"Scores of the {what}"
        picture = svg(figure, f"{title} by {main.name}, a line a model")
    caption = "The share of scores at most as high. A model that forgot lies on the clean twin's."
    return Chart("scores", title, picture, caption)


def _line(models: Models, name: str) -> dict[str, Any]:
    if name == models.original.name:
        return {"color": MEMBER}
    if models.clean is not None and name == models.clean.name:
        return {"color": NONMEMBER}
    place = [model.name for model in models.unlearned].index(name)
    colour = MARKED if place < len(DASHES) else GREY
    return {"color": colour, "linestyle": DASHES[place % len(DASHES)]}


def _shown(ways: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows that can be told, of one method's scores alone: all methods' are in the table."""
    return ways[ways["share"].notna() & ways["method"].isin([method, ""])]


def _ways(ways: pd.DataFrame) -> Chart:
    """The share of the way with its interval, a row a model and quantity."""
    rows = ways.iloc[::-1]
    places = np.arange(len(rows))
    ends = np.abs(rows[["share_low", "share_high"]].to_numpy().T - rows["share"].to_numpy())
    with drawn(WIDTH, 1.2 + 0.28 * len(rows)) as (figure, axes):
        axes.errorbar(rows["share"], places, xerr=ends, fmt="o", color=MARKED, markersize=4)
        for value, colour in ((0, MEMBER), (1, NONMEMBER)):
            axes.axvline(value, color=colour, linewidth=1.2)
        names = rows["unlearned"] + ": " + rows["quantity"]
        axes.set_yticks(places, names)
        axes.set_xlabel("share of the way from the original (0) to the clean twin (1)")
        low, high = rows["share"].min(), rows["share"].max()
        axes.set_xlim(min(-0.5, low - 0.5), max(1.5, high + 0.5))
        axes.tick_params(axis="y", colors=INK)
        title = "How far each model went"
        picture = svg(figure, f"{title}: the share of the way, with intervals")
    caption = "95% intervals over texts; one that ends at the edge goes on."
    return Chart("way", title, picture, caption)
