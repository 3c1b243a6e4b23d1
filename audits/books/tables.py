"""The tables of an audit of books: suspects, methods, validation books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from contamination.audits.books.results import BookScores, BooksResult, Suspect
from contamination.audits.books.selection import CandidateAccuracy
from contamination.core.report.tables import NOTHING, Table, with_interval

ScoresByRole = Mapping[str, Sequence[BookScores]]
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""


def tables(result: BooksResult, scores: ScoresByRole, blind: Interval) -> list[Table]:
    """All tables, the most important first.

    Args:
        result: the result for all books.
        scores: role → its books' scores.
        blind: AUROC of the texts alone, with its interval.
    """
    return [_suspects(result), _candidates(result, blind), _validation(result, scores)]


def _suspects(result: BooksResult) -> Table:
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
        [_suspect_line(rank, suspect) for rank, suspect in enumerate(result.suspects, 1)],
        rows,
        note="Contamination: the share of the snippets above the threshold (Shi et al. 2024, table "
        "2). Corrected: the share that was trained on (Rogan and Gladen 1978). p: the probability "
        "that a book that was not trained on has so many. q: p with Benjamini and Hochberg's "
        "correction.",
    )


def _suspect_line(rank: int, suspect: Suspect) -> list[str]:
    share = suspect.corrected
    corrected, ends = "can't be told", NOTHING
    if share is not None:
        corrected = _percent(share.value)
        ends = f"{_percent(share.low)} to {_percent(share.high)}"
    p, q = f"{suspect.p:.2g}", f"{suspect.q:.2g}"
    return [str(rank), _percent(suspect.rate), suspect.title, corrected, ends, p, q]


def _candidates(result: BooksResult, blind: Interval) -> Table:
    columns = ("auroc", "low", "high", "accuracy", "tpr", "fpr", "threshold")
    rows = [
        dict(zip(("method", "variant"), accuracy.candidate, strict=True))
        | {"chosen": accuracy is result.chosen}
        | {name: getattr(accuracy, name) for name in columns}
        for accuracy in result.accuracies
    ]
    blind_auroc = dict(zip(("auroc", "low", "high"), blind, strict=True))
    rows.append({"method": "blind", "variant": "", "chosen": False, **blind_auroc})
    return Table(
        "candidates",
        "Methods on the validation books",
        ["method", "AUROC", "accuracy", "TPR", "FPR", "threshold"],
        [
            *(_candidate_line(row, row is result.chosen) for row in result.accuracies),
            ["blind (no model)", with_interval(*blind), *[NOTHING] * 4],
        ],
        pd.DataFrame(rows),
        note="AUROC is over snippets, with an interval that resamples books and is corrected for "
        "the choice among these methods. Accuracy (balanced), TPR and FPR are those on books held "
        "out from the threshold's choice. Blind is a classifier that sees the texts alone: where "
        "it separates positives from negatives, any method may do so too, whatever the model was "
        "trained on.",
    )


def _candidate_line(row: CandidateAccuracy, chosen: bool) -> list[str]:
    return [
        candidate_name(row.candidate) + (" (chosen)" if chosen else ""),
        with_interval(row.auroc, row.low, row.high),
        *(f"{value:.2f}" for value in (row.accuracy, row.tpr, row.fpr)),
        f"{row.threshold:.4g}",
    ]


def _validation(result: BooksResult, scores: ScoresByRole) -> Table:
    rates_by_role = {"positives": result.positives, "negatives": result.negatives}
    rows = pd.DataFrame(
        [
            {"role": role, "title": book.title, "snippets": book.scores.shape[1], "rate": rate}
            for role, rates in rates_by_role.items()
            for book, rate in zip(scores[role], rates.values, strict=True)
        ]
    )
    lines = [[row.role, row.title, _percent(row.rate)] for row in rows.itertuples()]
    return Table(
        "validation",
        "Validation books",
        ["role", "book title", "contamination %"],
        lines,
        rows,
        note="Each by a method and a threshold that were chosen without it.",
    )


def candidate_name(candidate: tuple[str, str]) -> str:
    """The candidate's method and variant, such as "min_k k=0.2"."""
    return " ".join(candidate).strip()


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
