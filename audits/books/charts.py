"""Charts of an audit of books: scores of the validation books, rates, and corrected shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from contamination.audits.books.results import BookScores, Result
from contamination.audits.findings import GREY, INK, MARKED, MEMBER, NONMEMBER, Chart, drawn, svg
from contamination.core.statistics.bootstrap import Scores

BINS = 40
SHOWN = 40
"""Suspects in the chart of shares: the highest."""


def charts(result: Result, sides: Mapping[str, Sequence[BookScores]]) -> list[Chart]:
    """All charts, the most important first."""
    made = [_shares(result)] if result.told else []
    return [*made, _scores(result, sides), _rates(result)]


def _shares(result: Result) -> Chart:
    """Each suspect's corrected share with its interval, beside its contamination rate."""
    shown = result.suspects[:SHOWN]
    places = np.arange(len(shown))[::-1]
    with drawn(8, 1.2 + 0.24 * len(shown)) as (figure, axes):
        for place, suspect in zip(places, shown, strict=True):
            share = suspect.corrected
            assert share is not None
            axes.plot([100 * share.low, 100 * share.high], [place] * 2, color=MARKED, lw=2)
            axes.plot([100 * share.value], [place], "o", color=MARKED)
            axes.plot([100 * suspect.rate], [place], "|", color=INK, ms=9)
        axes.plot([], [], "o-", color=MARKED, lw=2, label="corrected, with 95% interval")
        axes.plot([], [], "|", color=INK, ms=9, label="contamination rate")
        axes.set(xlim=(-2, 102), xlabel="share of the book (%)", ylim=(-0.7, len(shown) - 0.3))
        axes.set_yticks(places, [_short(suspect.title) for suspect in shown])
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=2)
        return Chart(
            "shares",
            "Estimated share of each suspect that was trained on",
            svg(figure, "Corrected shares of the suspects with their intervals"),
            "The contamination rate counts false alarms and misses; the corrected rate does not.",
        )


def _scores(result: Result, sides: Mapping[str, Sequence[BookScores]]) -> Chart:
    """Histograms of the validation snippets' scores, with the threshold."""
    candidate, threshold = result.rule.candidate, result.rule.threshold
    scores = {r: _joined(sides[r], candidate) for r in ("positives", "negatives")}
    edges = np.histogram_bin_edges(np.concatenate([*scores.values()]), BINS)
    with drawn(8, 3.6) as (figure, axes):
        for (role, own), colour in zip(scores.items(), (MEMBER, NONMEMBER), strict=True):
            weights = np.full(len(own), 100 / len(own))
            axes.hist(own, edges.tolist(), weights=weights, color=colour, alpha=0.55, label=role)
        axes.axvline(threshold, color=INK, ls="--", label="threshold")
        name = " ".join(result.chosen.candidate).strip()
        axes.set(xlabel=f"score of a snippet by {name}", ylabel="snippets of the side (%)")
        figure.legend(loc="outside upper center", ncols=3)
        return Chart(
            "scores",
            "Scores of the validation books' snippets",
            svg(figure, "Histogram of scores of positives and negatives with the threshold"),
            "As in Raoof et al. (2025), figure 1. What is right of the threshold counts as trained "
            "on.",
        )


def _rates(result: Result) -> Chart:
    """Histograms of the books' contamination rates (Shi et al. 2024, figures 3 and 4)."""
    groups = {
        "negatives": (result.negatives.values, NONMEMBER),
        "positives": (result.positives.values, MEMBER),
        "suspects": (np.array([suspect.rate for suspect in result.suspects]), MARKED),
    }
    edges = np.linspace(0, 100, 21)
    with drawn(8, 3.2) as (figure, axes):
        values = [100 * rates for rates, _ in groups.values()]
        colours = [colour for _, colour in groups.values()]
        axes.hist(
            values, edges.tolist(), color=colours, label=[*groups], edgecolor=GREY, linewidth=0.3
        )
        axes.set(xlim=(0, 100), xlabel="contamination rate (%)", ylabel="books")
        axes.locator_params(axis="y", integer=True)
        figure.legend(loc="outside upper center", ncols=3)
        return Chart(
            "rates",
            "Contamination rates of all books",
            svg(figure, "Histogram of the contamination rates of suspects and validation books"),
            "Validation books by thresholds that were chosen without them.",
        )


def _joined(books: Sequence[BookScores], candidate: int) -> Scores:
    return np.concatenate([book.scores[candidate] for book in books])


def _short(title: str, most: int = 40) -> str:
    return title if len(title) <= most else f"{title[: most - 1]}…"
