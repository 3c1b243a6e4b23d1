"""The report of the audit of books: sentences, tables and charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.base import AuditResult
from contamination.audits.books.contamination_rates import NORMAL, RANKS
from contamination.audits.books.reading import ROLES
from contamination.audits.books.results import BookScores, BooksResult, Suspect
from contamination.audits.books.selection import CandidateAccuracy
from contamination.audits.books.snippets import BookSnippets, SnippetPlan
from contamination.core.report import charts
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table, format_interval
from contamination.detection.baselines.blind import blind_auroc_warning

ALPHA = 0.05
"""The false discovery rate."""
ROUNDING = 1 + 1e-9
"""The tolerance of comparisons with ALPHA: 7 · (1 / 140) differs from 0.05 in its last bit."""
MAX_TITLES = 5
"""The maximum number of titles in a sentence."""


@dataclass(frozen=True)
class AuditedBooks:
    """The books of an audit and the measurements that the report shows besides the result.

    Attributes:
        model: the model's name.
        plan: how the snippets were drawn.
        null_model: how p-values were computed.
        scores: the scores of the books, by role.
        snippets: the snippets, by the book's role and title.
        blind: the AUROC of the texts alone, with the ends of its interval.
        boilerplate: phrases about the removed text that several books share.
    """

    model: str
    plan: SnippetPlan
    null_model: str
    scores: Mapping[str, Sequence[BookScores]]
    snippets: Mapping[str, BookSnippets]
    blind: tuple[float, float, float]
    boilerplate: Sequence[str] = ()


def build_report(result: BooksResult, audited_books: AuditedBooks) -> AuditResult:
    """Returns the result in sentences, tables and charts."""
    content = ReportContent(
        title=f"Which books was {audited_books.model} trained on?",
        conclusions=[*_conclusions(result, audited_books)],
        warnings=[*_warnings(result, audited_books)],
        tables=[
            _suspect_table(result),
            _candidate_table(result, audited_books.blind),
            _validation_table(result, audited_books.scores),
        ],
        charts=_charts(result, audited_books.scores),
        limits=LIMITATIONS,
        facts=_fact_by_label(audited_books),
    )
    counts = {
        **{role: len(audited_books.scores[role]) for role in ROLES},
        "snippets": sum(len(snippets.texts) for snippets in audited_books.snippets.values()),
        "found": len(_significant_suspects(result)),
    }
    return AuditResult(content, counts)


def _significant_suspects(result: BooksResult) -> list[Suspect]:
    return [suspect for suspect in result.suspects if suspect.q <= ALPHA * ROUNDING]


def _conclusions(result: BooksResult, books: AuditedBooks) -> Iterator[str]:
    significant, suspects = _significant_suspects(result), len(result.suspects)
    if significant:
        names = "; ".join(_format_title_and_share(suspect) for suspect in significant[:MAX_TITLES])
        omitted = len(significant) - MAX_TITLES
        more = f"; and {omitted} more" if omitted > 0 else ""
        yield (
            f"**{len(significant)} of {suspects} suspects** have more snippets above the threshold "
            f"than books that were not trained on (false discovery rate {ALPHA:.0%}): "
            f"{names}{more}."
        )
    else:
        yield _no_suspect_sentence(result, books.null_model)
    yield _decision_rule_sentence(result)
    if len(significant) < suspects:
        others = "the others" if significant else "they"
        yield (
            f"This does not show that {others} were not trained on: a share up to the upper end of "
            "the interval may have been."
        )
    if result.separated:
        yield (
            "The corrected rate is the share of a book's words that was trained on, if the book is "
            "like the validation books; its interval accounts for how much these differ."
        )


def _no_suspect_sentence(result: BooksResult, null_model: str) -> str:
    """Returns a sentence that no suspect was found, and whether the negatives allow any to be."""
    negatives, suspects = len(result.negatives.values), len(result.suspects)
    needed_together = result.suspects_needed_together(ALPHA * ROUNDING)
    at_fdr = f"at a false discovery rate of {ALPHA:.0%}"
    if needed_together == 1:
        return (
            f"**None of {suspects} suspects** is shown to have more snippets above the threshold "
            f"than books that were not trained on (false discovery rate {ALPHA:.0%})."
        )
    if needed_together is None:
        finding = f"**With {negatives} negatives no suspect can be found**"
    else:
        finding = (
            f"**With {negatives} negatives no suspect can be found alone**, but only "
            f"{needed_together} or more of the {suspects} together,"
        )
    none = f"**None of {suspects} suspects** is found, which therefore says nothing."
    if null_model == NORMAL:
        return f"{finding} {at_fdr}: more negatives are needed, or some that are more alike. {none}"
    for_one_suspect = round(1 / ALPHA) - 1
    for_one_of_all = round(suspects / ALPHA) - 1
    remedy = f"at least {for_one_of_all} negatives are needed to find one suspect of {suspects}"
    if needed_together is None and suspects > 1:
        remedy = (
            f"at least {for_one_suspect} negatives are needed, and {for_one_of_all} to find one "
            f"of {suspects}"
        )
    return (
        f"{finding} {at_fdr}, whatever its rate: {remedy} (audit.null_model={NORMAL} needs fewer, "
        f"but assumes that books are normally distributed). {none}"
    )


def _format_title_and_share(suspect: Suspect) -> str:
    share = suspect.corrected
    if share is None:
        return f"{suspect.title!r} ({suspect.rate:.0%} of its snippets)"
    return f"{suspect.title!r} ({share.value:.0%} [{share.low:.0%}, {share.high:.0%}] trained on)"


def _decision_rule_sentence(result: BooksResult) -> str:
    tpr, fpr = result.positives.mean, result.negatives.mean
    chosen = result.chosen_accuracy
    return (
        f"A snippet counts as trained on where {_format_candidate(chosen.candidate)} is at "
        f"least {chosen.threshold:.4g}. Method and threshold were chosen on "
        f"{len(result.positives.values)} positives and {len(result.negatives.values)} negatives; "
        f"on books held out from the choice {tpr:.0%} of the snippets of positives and {fpr:.0%} "
        f"of those of negatives count so (balanced accuracy {(tpr + 1 - fpr) / 2:.2f})."
    )


def _warnings(result: BooksResult, books: AuditedBooks) -> Iterator[str]:
    if blind_warning := blind_auroc_warning(*books.blind):
        yield blind_warning
    if not result.separated:
        yield (
            "On held-out books the rates of positives are not significantly above those of "
            "negatives, so the share of a book that was trained on can't be told. Give more "
            "validation books, or longer or more snippets, or other methods."
        )
    if books.boilerplate:
        yield (
            f"Text that several books share was set aside, and no snippet contains it: "
            f"{'; and '.join(books.boilerplate)}. If that is the books' own text, they are one "
            "book."
        )
    if overlapping := [name for name, snippets in books.snippets.items() if snippets.has_overlaps]:
        yield (
            f"{len(overlapping)} books, such as {overlapping[0].partition('/')[2]!r}, are too "
            f"short for {books.plan.number} snippets without overlap: their snippets overlap, and "
            "count as fewer in all intervals."
        )


LIMITATIONS = (
    "If a book is not found, this is no evidence that it was not trained on: it may have been "
    "trained on too rarely, or in another edition.",
    "A share that was trained on may come from quotations, reviews or another book with the "
    "same text: the audit does not know where the model read it.",
    "The correction assumes that the suspects are like the validation books. Where they differ in "
    "date, genre, edition or fame, their rates of false alarms and of hits differ too, and no "
    "interval here accounts for that.",
    "Positives stand for books that were trained on as a whole. Where they were read more often "
    "than a suspect (famous books are), the suspect's share is underestimated.",
)


def _fact_by_label(books: AuditedBooks) -> dict[str, str]:
    plan = books.plan
    return {
        "model": books.model,
        **{role: f"{len(books.scores[role])} books" for role in ROLES},
        "snippets": f"{plan.number} of {plan.length} {plan.unit} per book, without "
        f"overlap where the book is long enough, drawn with seed {plan.seed}",
        "p-values": "ranks among the negatives, by thresholds chosen without them"
        if books.null_model == RANKS
        else "angles of the rates as normal, Student's t",
    }


def _suspect_table(result: BooksResult) -> Table:
    rows = pd.DataFrame(
        [
            {
                "rank": rank,
                "contamination_rate": suspect.rate,
                "title": suspect.title,
                "snippets": suspect.snippets,
                "corrected": suspect.corrected and suspect.corrected.value,
                "low": suspect.corrected and suspect.corrected.low,
                "high": suspect.corrected and suspect.corrected.high,
                "p": suspect.p,
                "q": suspect.q,
            }
            for rank, suspect in enumerate(result.suspects, 1)
        ]
    ).astype({"corrected": float, "low": float, "high": float})
    return Table(
        "suspects",
        "Suspects",
        ["rank", "contamination %", "book title", "corrected %", "95% interval", "p", "q"],
        [_suspect_cells(rank, suspect) for rank, suspect in enumerate(result.suspects, 1)],
        rows,
        note="Contamination: the share of the snippets above the threshold (Shi et al. 2024, table "
        "2). Corrected: the share that was trained on (Rogan and Gladen 1978). p: the probability "
        "that a book that was not trained on has so many. q: p with Benjamini and Hochberg's "
        "correction.",
    )


def _suspect_cells(rank: int, suspect: Suspect) -> list[str]:
    share = suspect.corrected
    corrected, ends = "can't be told", NO_VALUE
    if share is not None:
        corrected = _format_percent(share.value)
        ends = f"{_format_percent(share.low)} to {_format_percent(share.high)}"
    p, q = f"{suspect.p:.2g}", f"{suspect.q:.2g}"
    return [str(rank), _format_percent(suspect.rate), suspect.title, corrected, ends, p, q]


def _candidate_table(result: BooksResult, blind: tuple[float, float, float]) -> Table:
    columns = ("auroc", "low", "high", "accuracy", "tpr", "fpr", "threshold")
    row_dicts = [
        dict(zip(("method", "variant"), accuracy.candidate, strict=True))
        | {"chosen": accuracy is result.chosen_accuracy}
        | {column: getattr(accuracy, column) for column in columns}
        for accuracy in result.accuracies
    ]
    blind_auroc = dict(zip(("auroc", "low", "high"), blind, strict=True))
    row_dicts.append({"method": "blind", "variant": "", "chosen": False, **blind_auroc})
    return Table(
        "candidates",
        "Methods on the validation books",
        ["method", "AUROC", "accuracy", "TPR", "FPR", "threshold"],
        [
            *(
                _candidate_cells(accuracy, accuracy is result.chosen_accuracy)
                for accuracy in result.accuracies
            ),
            ["blind (no model)", format_interval(*blind), *[NO_VALUE] * 4],
        ],
        pd.DataFrame(row_dicts),
        note="AUROC is over snippets, with an interval that resamples books and is corrected for "
        "the choice among these methods. Accuracy (balanced), TPR and FPR are those on books held "
        "out from the threshold's choice. Blind is a classifier that sees the texts alone: where "
        "it separates positives from negatives, any method may do so too, whatever the model was "
        "trained on.",
    )


def _candidate_cells(accuracy: CandidateAccuracy, is_chosen: bool) -> list[str]:
    return [
        _format_candidate(accuracy.candidate) + (" (chosen)" if is_chosen else ""),
        format_interval(accuracy.auroc, accuracy.low, accuracy.high),
        *(f"{value:.2f}" for value in (accuracy.accuracy, accuracy.tpr, accuracy.fpr)),
        f"{accuracy.threshold:.4g}",
    ]


def _validation_table(result: BooksResult, scores: Mapping[str, Sequence[BookScores]]) -> Table:
    rates_by_role = {"positives": result.positives, "negatives": result.negatives}
    rows = pd.DataFrame(
        [
            {"role": role, "title": book.title, "snippets": book.scores.shape[1], "rate": rate}
            for role, rates in rates_by_role.items()
            for book, rate in zip(scores[role], rates.values, strict=True)
        ]
    )
    lines = [[row.role, row.title, _format_percent(row.rate)] for row in rows.itertuples()]
    return Table(
        "validation",
        "Validation books",
        ["role", "book title", "contamination %"],
        lines,
        rows,
        note="Each by a method and a threshold that were chosen without it.",
    )


def _format_candidate(candidate: tuple[str, str]) -> str:
    return " ".join(candidate).strip()


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f}"


BINS = 40
MAX_SUSPECTS = 40
"""The maximum number of suspects in the chart of shares: those with the highest rates."""


def _charts(
    result: BooksResult, scores: Mapping[str, Sequence[BookScores]]
) -> list[charts.InlineChart]:
    shares = [_share_chart(result)] if result.separated else []
    return [*shares, _score_chart(result, scores), _rate_chart(result)]


def _share_chart(result: BooksResult) -> charts.InlineChart:
    """Draws each suspect's corrected share with its interval, and its contamination rate."""
    suspects = result.suspects[:MAX_SUSPECTS]
    heights = np.arange(len(suspects))[::-1]
    with charts.page_figure(8, 1.2 + 0.24 * len(suspects)) as (figure, axes):
        for y, suspect in zip(heights, suspects, strict=True):
            share = suspect.corrected
            assert share is not None
            axes.plot([100 * share.low, 100 * share.high], [y] * 2, color=charts.ACCENT, lw=2)
            axes.plot([100 * share.value], [y], "o", color=charts.ACCENT)
            axes.plot([100 * suspect.rate], [y], "|", color=charts.INK, ms=9)
        axes.plot([], [], "o-", color=charts.ACCENT, lw=2, label="corrected, with 95% interval")
        axes.plot([], [], "|", color=charts.INK, ms=9, label="contamination rate")
        axes.set(xlim=(-2, 102), xlabel="share of the book (%)", ylim=(-0.7, len(suspects) - 0.3))
        axes.set_yticks(heights, [_shorten_title(suspect.title) for suspect in suspects])
        axes.grid(axis="y", visible=False)
        return _finish_chart(
            figure,
            "shares",
            title="Estimated share of each suspect that was trained on",
            alternative="Corrected shares of the suspects with their intervals",
            caption="The contamination rate counts false alarms and misses; the corrected rate "
            "does not.",
        )


def _score_chart(
    result: BooksResult, scores: Mapping[str, Sequence[BookScores]]
) -> charts.InlineChart:
    """Draws histograms of the validation snippets' scores, with the threshold."""
    candidate, threshold = result.rule.candidate, result.rule.threshold
    snippet_scores = {
        role: np.concatenate([book.scores[candidate] for book in scores[role]])
        for role in ("positives", "negatives")
    }
    edges = np.histogram_bin_edges(np.concatenate([*snippet_scores.values()]), BINS)
    with charts.page_figure(8, 3.6) as (figure, axes):
        for role, colour in (("positives", charts.MEMBER), ("negatives", charts.NONMEMBER)):
            values = snippet_scores[role]
            weights = np.full(len(values), 100 / len(values))
            axes.hist(values, edges.tolist(), weights=weights, color=colour, alpha=0.55, label=role)
        axes.axvline(threshold, color=charts.INK, ls="--", label="threshold")
        candidate_title = _format_candidate(result.chosen_accuracy.candidate)
        axes.set(xlabel=f"score of a snippet by {candidate_title}", ylabel="snippets (%)")
        return _finish_chart(
            figure,
            "scores",
            title="Scores of the validation books' snippets",
            alternative="Histograms of positives' and negatives' scores with the threshold",
            caption="As in Raoof et al. (2025), figure 1. Scores right of the threshold count as "
            "trained on.",
        )


def _rate_chart(result: BooksResult) -> charts.InlineChart:
    """Draws histograms of the books' contamination rates (Shi et al. 2024, figures 3 and 4)."""
    groups = {
        "negatives": (result.negatives.values, charts.NONMEMBER),
        "positives": (result.positives.values, charts.MEMBER),
        "suspects": (np.array([suspect.rate for suspect in result.suspects]), charts.ACCENT),
    }
    edges = np.linspace(0, 100, 21)
    with charts.page_figure(8, 3.2) as (figure, axes):
        percentages_by_role = [100 * rates for rates, _ in groups.values()]
        colours = [colour for _, colour in groups.values()]
        axes.hist(
            percentages_by_role,
            edges.tolist(),
            color=colours,
            label=[*groups],
            edgecolor=charts.GREY,
            linewidth=0.3,
        )
        axes.set(xlim=(0, 100), xlabel="contamination rate (%)", ylabel="books")
        axes.locator_params(axis="y", integer=True)
        return _finish_chart(
            figure,
            "rates",
            title="Contamination rates of all books",
            alternative="Histograms of the contamination rates of all books by role",
            caption="Validation books by thresholds that were chosen without them.",
        )


def _finish_chart(
    figure: Any, name: str, *, title: str, alternative: str, caption: str
) -> charts.InlineChart:
    """Returns the figure with a legend above it; `alternative` is its text for screen readers."""
    figure.legend(loc="outside upper center", ncols=3)
    return charts.InlineChart(name, title, figure, alternative, caption)


def _shorten_title(title: str, limit: int = 40) -> str:
    return title if len(title) <= limit else f"{title[: limit - 1]}…"
