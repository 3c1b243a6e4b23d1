"""The tables of an audit of books: suspects, methods, validation books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from contamination.audits.books.results import BookScores, Result, Suspect
from contamination.audits.books.selection import Judged
from contamination.audits.findings import Table

Sides = Mapping[str, Sequence[BookScores]]
Blind = tuple[float, float, float]


def tables(result: Result, sides: Sides, blind: Blind) -> list[Table]:
    """All tables, the most important first.

    Args:
        result: what is shown.
        sides: role → its books.
        blind: AUROC of the texts alone, with its interval.
    """
    return [_suspects(result), _candidates(result, blind), _validation(result, sides)]


def _suspects(result: Result) -> Table:
    rows = pd.DataFrame(
        [
            {
                "rank": rank,
                "contamination_rate": s.rate,
                "title": s.title,
                "snippets": s.snippets,
                "corrected": s.corrected and s.corrected.value,
                "low": s.corrected and s.corrected.low,
                "high": s.corrected and s.corrected.high,
                "p": s.p,
                "q": s.q,
            }
            for rank, s in enumerate(result.suspects, 1)
        ]
    ).astype({"corrected": float, "low": float, "high": float})
    return Table(
        "suspects",
        "Suspects",
        rows,
        ["rank", "contamination %", "book title", "corrected %", "95% interval", "p", "q"],
        [_line(rank, suspect) for rank, suspect in enumerate(result.suspects, 1)],
        "Contamination: the share of the snippets above the threshold (Shi et al. 2024, table 2). "
        "Corrected: the share that was trained on (Rogan and Gladen 1978). p: how likely a book "
        "that was not trained on has so many. q: p with Benjamini and Hochberg's correction.",
    )


def _line(rank: int, suspect: Suspect) -> list[str]:
    share = suspect.corrected
    told = ["can't be told", "–"]
    if share is not None:
        told = [_percent(share.value), f"{_percent(share.low)} to {_percent(share.high)}"]
    p = [f"{value:.2g}" for value in (suspect.p, suspect.q)]
    return [str(rank), _percent(suspect.rate), suspect.title, *told, *p]


def _candidates(result: Result, blind: Blind) -> Table:
    columns = ("auroc", "low", "high", "accuracy", "tpr", "fpr", "threshold")
    known = [
        dict(zip(("method", "variant"), one.candidate, strict=True))
        | {"chosen": one is result.chosen}
        | {name: getattr(one, name) for name in columns}
        for one in result.judged
    ]
    guess = dict(zip(("auroc", "low", "high"), blind, strict=True))
    rows = [*known, {"method": "blind", "variant": "", "chosen": False, **guess}]
    return Table(
        "candidates",
        "Methods on the validation books",
        pd.DataFrame(rows),
        ["method", "AUROC", "accuracy", "TPR", "FPR", "threshold"],
        [
            *(_candidate(one, one is result.chosen) for one in result.judged),
            ["blind (no model)", _auroc(*blind), "–", "–", "–", "–"],
        ],
        "AUROC is over snippets, with an interval that resamples books, and is corrected for the "
        "choice among these methods. Accuracy (balanced), TPR "
        "and FPR are those on books held out from the threshold's choice. Blind is a classifier "
        "that sees the texts alone: where it tells positives from negatives, so may any method, "
        "whatever the model was trained on.",
    )


def _candidate(one: Judged, chosen: bool) -> list[str]:
    return [
        named(one.candidate) + (" (chosen)" if chosen else ""),
        _auroc(one.auroc, one.low, one.high),
        *(f"{value:.2f}" for value in (one.accuracy, one.tpr, one.fpr)),
        f"{one.threshold:.4g}",
    ]


def _validation(result: Result, sides: Sides) -> Table:
    known = (("positives", result.positives), ("negatives", result.negatives))
    rows = pd.DataFrame(
        [
            {"role": role, "title": book.title, "snippets": book.scores.shape[1], "rate": rate}
            for role, rates in known
            for book, rate in zip(sides[role], rates.values, strict=True)
        ]
    )
    lines = [[row.role, row.title, _percent(row.rate)] for row in rows.itertuples()]
    return Table(
        "validation",
        "Validation books",
        rows,
        ["role", "book title", "contamination %"],
        lines,
        "Each by a method and a threshold that were chosen without it.",
    )


def named(candidate: tuple[str, str]) -> str:
    """A candidate's method and variant."""
    return " ".join(candidate).strip()


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _auroc(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"
