"""Charts of the audit of books: scores of the validation books, rates, and corrected shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from contamination.audits.books.results import BookScores, BooksResult
from contamination.audits.books.tables import candidate_name
from contamination.core.report.charts import (
    ACCENT,
    GREY,
    INK,
    MEMBER,
    NONMEMBER,
    InlineChart,
    page_figure,
    svg_element,
)

BINS = 40
MAX_SUSPECTS = 40
"""The most suspects in the chart of shares: those with the highest rates."""


def charts(result: BooksResult, scores: Mapping[str, Sequence[BookScores]]) -> list[InlineChart]:
    """All charts, the most important first."""
    shares = [_shares(result)] if result.separated else []
    return [*shares, _scores(result, scores), _rates(result)]


def _shares(result: BooksResult) -> InlineChart:
    """Each suspect's corrected share with its interval, beside its contamination rate."""
    suspects = result.suspects[:MAX_SUSPECTS]
    heights = np.arange(len(suspects))[::-1]
    with page_figure(8, 1.2 + 0.24 * len(suspects)) as (figure, axes):
        for y, suspect in zip(heights, suspects, strict=True):
            share = suspect.corrected
            assert share is not None
            axes.plot([100 * share.low, 100 * share.high], [y] * 2, color=ACCENT, lw=2)
            axes.plot([100 * share.value], [y], "o", color=ACCENT)
            axes.plot([100 * suspect.rate], [y], "|", color=INK, ms=9)
        axes.plot([], [], "o-", color=ACCENT, lw=2, label="corrected, with 95% interval")
        axes.plot([], [], "|", color=INK, ms=9, label="contamination rate")
        axes.set(xlim=(-2, 102), xlabel="share of the book (%)", ylim=(-0.7, len(suspects) - 0.3))
        axes.set_yticks(heights, [_shortened(suspect.title) for suspect in suspects])
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=2)
        return InlineChart(
            "shares",
            "Estimated share of each suspect that was trained on",
            svg_element(figure, "Corrected shares of the suspects with their intervals"),
            "The contamination rate counts false alarms and misses; the corrected rate does not.",
        )


def _scores(result: BooksResult, scores: Mapping[str, Sequence[BookScores]]) -> InlineChart:
    """Histograms of the validation snippets' scores, with the threshold."""
    candidate, threshold = result.rule.candidate, result.rule.threshold
    snippet_scores = {
        role: np.concatenate([book.scores[candidate] for book in scores[role]])
        for role in ("positives", "negatives")
    }
    edges = np.histogram_bin_edges(np.concatenate([*snippet_scores.values()]), BINS)
    with page_figure(8, 3.6) as (figure, axes):
        for role, colour in (("positives", MEMBER), ("negatives", NONMEMBER)):
            values = snippet_scores[role]
            weights = np.full(len(values), 100 / len(values))
            axes.hist(values, edges.tolist(), weights=weights, color=colour, alpha=0.55, label=role)
        axes.axvline(threshold, color=INK, ls="--", label="threshold")
        name = candidate_name(result.chosen.candidate)
        axes.set(xlabel=f"score of a snippet by {name}", ylabel="snippets of the side (%)")
        figure.legend(loc="outside upper center", ncols=3)
        return InlineChart(
            "scores",
            "Scores of the validation books' snippets",
            svg_element(
                figure, "Histograms of positives' and negatives' scores with the threshold"
            ),
            "As in Raoof et al. (2025), figure 1. Scores right of the threshold count as trained "
            "on.",
        )


def _rates(result: BooksResult) -> InlineChart:
    """Histograms of the books' contamination rates (Shi et al. 2024, figures 3 and 4)."""
    groups = {
        "negatives": (result.negatives.values, NONMEMBER),
        "positives": (result.positives.values, MEMBER),
        "suspects": (np.array([suspect.rate for suspect in result.suspects]), ACCENT),
    }
    edges = np.linspace(0, 100, 21)
    with page_figure(8, 3.2) as (figure, axes):
        values = [100 * rates for rates, _ in groups.values()]
        colours = [colour for _, colour in groups.values()]
        axes.hist(
            values, edges.tolist(), color=colours, label=[*groups], edgecolor=GREY, linewidth=0.3
        )
        axes.set(xlim=(0, 100), xlabel="contamination rate (%)", ylabel="books")
        axes.locator_params(axis="y", integer=True)
        figure.legend(loc="outside upper center", ncols=3)
        return InlineChart(
            "rates",
            "Contamination rates of all books",
            svg_element(figure, "Histograms of the contamination rates of all books by role"),
            "Validation books by thresholds that were chosen without them.",
        )


def _shortened(title: str, limit: int = 40) -> str:
    return title if len(title) <= limit else f"{title[: limit - 1]}…"
