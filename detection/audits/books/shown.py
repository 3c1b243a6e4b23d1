"""What an audit of books says: sentences, tables and charts of a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detection.audits.books import charts
from detection.audits.books.reading import ROLES
from detection.audits.books.result import BookScores, Result, Suspect
from detection.audits.books.significance import NORMAL, RANKS
from detection.audits.books.snippets import Drawn
from detection.audits.books.tables import named, tables
from detection.audits.findings import Findings
from detection.blind import warning

if TYPE_CHECKING:
    from detection.audits.books.audit import Books

ALPHA = 0.05
ROUNDING = 1 + 1e-9
"""13 · (1 / 260) is 0.05 but for its last bit."""
SHOWN = 5
"""Titles in a sentence."""
LIMITS = (
    "That a book is not found says nothing: it may have been trained on too rarely, or in an "
    "edition that differs.",
    "A share that was trained on may come from quotations, reviews or another book that holds the "
    "same text: the audit does not know where the model read it.",
    "The correction takes the suspects to be like the validation books. Where they differ in date, "
    "genre, edition or fame, their rates of false alarms and of hits differ too, and no interval "
    "here knows of that.",
    "Positives stand for books that were trained on as a whole. Where they were read more often "
    "than a suspect (famous books are), the suspect's share is underestimated.",
)


@dataclass(frozen=True)
class Material:
    """What a result was made of.

    Attributes:
        settings: the audit's.
        model: what it is called.
        sides: role → its books' scores.
        drawn: the snippets by the book's name.
        blind: AUROC of the texts alone, with its interval.
        seed: of the draws.
        set_aside: what the books lost, since others have it too.
    """

    settings: Books
    model: str
    sides: Mapping[str, Sequence[BookScores]]
    drawn: Mapping[str, Drawn]
    blind: tuple[float, float, float]
    seed: int
    set_aside: Sequence[str] = ()

    def independent(self, role: str) -> list[int]:
        """As how many snippets each book's count."""
        return [book.independent for book in self.sides[role]]


def findings(result: Result, material: Material) -> Findings:
    """All that is written and shown."""
    return Findings(
        title=f"Which books was {material.model} trained on?",
        conclusions=[*_conclusions(result, material)],
        warnings=[*_warnings(result, material)],
        tables=tables(result, material.sides, material.blind),
        charts=charts.charts(result, material.sides),
        limits=LIMITS,
        facts=_facts(material),
        counts={
            **{role: len(material.sides[role]) for role in ROLES},
            "snippets": sum(len(own.texts) for own in material.drawn.values()),
            "found": len(_found(result)),
        },
    )


def _found(result: Result) -> list[Suspect]:
    return [suspect for suspect in result.suspects if suspect.q <= ALPHA * ROUNDING]


def _conclusions(result: Result, material: Material) -> Iterator[str]:
    found, every = _found(result), len(result.suspects)
    if found:
        names = "; ".join(_named(suspect) for suspect in found[:SHOWN])
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield (
            f"**{len(found)} of {every} suspects** have more snippets above the threshold than "
            f"books that were not trained on (false discovery rate {ALPHA:.0%}): {names}{more}."
        )
    else:
        yield _none_found(result, material.settings.null_model)
    yield _judged(result)
    if len(found) < every:
        which = "the others" if found else "they"
        yield (
            f"This does not show that {which} were not trained on: a share up to the upper end of "
            "the interval may have been."
        )
    if result.told:
        yield (
            "The corrected rate is the share of a book's words that was trained on, if the book is "
            "like the validation books; its interval takes in how much these differ."
        )


def _none_found(result: Result, null_model: str) -> str:
    """That none was found; before that, where none or no single one could have been."""
    negatives, suspects = len(result.negatives.values), len(result.suspects)
    together = result.needed_together(ALPHA * ROUNDING)
    at_rate = f"at a false discovery rate of {ALPHA:.0%}"
    if together == 1:
        return (
            f"**None of {suspects} suspects** is shown to have more snippets above the threshold "
            f"than books that were not trained on (false discovery rate {ALPHA:.0%})."
        )
    if together is None:
        which = f"**With {negatives} negatives no suspect can be found**"
    else:
        which = (
            f"**With {negatives} negatives no suspect can be found alone**, but only {together} or "
            f"more of the {suspects} together,"
        )
    none = f"**None of {suspects} suspects** is found, which therefore says nothing."
    if null_model == NORMAL:
        return f"{which} {at_rate}: more negatives are needed, or some that are more alike. {none}"
    least = round(1 / ALPHA) - 1
    alone = round(suspects / ALPHA) - 1
    remedy = f"at least {alone} negatives are needed to find one suspect of {suspects}"
    if together is None and suspects > 1:
        remedy = f"at least {least} negatives are needed, and {alone} to find one of {suspects}"
    return (
        f"{which} {at_rate}, whatever its rate: {remedy} (audit.null_model={NORMAL} needs fewer, "
        f"but takes books as normal). {none}"
    )


def _named(suspect: Suspect) -> str:
    share = suspect.corrected
    if share is None:
        return f"{suspect.title!r} ({suspect.rate:.0%} of its snippets)"
    return f"{suspect.title!r} ({share.value:.0%} [{share.low:.0%}, {share.high:.0%}] trained on)"


def _judged(result: Result) -> str:
    t, f = result.positives.mean, result.negatives.mean
    return (
        f"A snippet counts as trained on where {named(result.chosen.candidate)} is at least "
        f"{result.chosen.threshold:.4g}. Method and threshold were chosen on "
        f"{len(result.positives.values)} positives and {len(result.negatives.values)} negatives; "
        f"on books held out from the choice {t:.0%} of the snippets of positives and {f:.0%} of "
        f"those of negatives count so (balanced accuracy {(t + 1 - f) / 2:.2f})."
    )


def _warnings(result: Result, material: Material) -> Iterator[str]:
    if said := warning(*material.blind):
        yield said
    if not result.told:
        yield (
            "On held-out books the positives are not above the negatives for certain, so the share "
            "of a book that was trained on can't be told. Give more validation books, or longer "
            "or more snippets, or other methods."
        )
    if material.set_aside:
        yield (
            f"Text that several books share was set aside, and no snippet is of it: "
            f"{'; and '.join(material.set_aside)}. If that is the books' own, they are one book."
        )
    if overlapping := [name for name, own in material.drawn.items() if own.overlaps]:
        yield (
            f"{len(overlapping)} books, such as {overlapping[0].partition('/')[2]!r}, are too "
            f"short for {material.settings.snippets} snippets without overlap: theirs overlap, and "
            "count as fewer in all intervals."
        )


def _facts(material: Material) -> dict[str, str]:
    own = material.settings
    return {
        "model": material.model,
        **{role: f"{len(material.sides[role])} books" for role in ROLES},
        "snippets": f"{own.snippets} of {own.length} {own.unit} a book, without overlap where the "
        f"book is long enough, drawn with seed {material.seed}",
        "p-values": "ranks among the negatives, by thresholds chosen without them"
        if own.null_model == RANKS
        else "angles of the rates as normal, Student's t",
    }
