"""The audit of books, from files to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from contamination.audits.base import Audit, AuditStage, Prepared
from contamination.audits.books import charts
from contamination.audits.books.epub import LIMITS, Limits
from contamination.audits.books.rates import NORMAL, NULL_MODELS, RANKS
from contamination.audits.books.reading import ROLES, Book, books_digest, open_books, set_aside
from contamination.audits.books.results import BookScores, Result, Suspect, audited
from contamination.audits.books.snippets import Drawn, Plan, draw, tokens, words
from contamination.audits.books.tables import named, tables
from contamination.audits.findings import Findings
from contamination.core.artifacts import Artifact
from contamination.core.config import at_least, limited, one_of, runtime
from contamination.core.errors import ConfigError, DataError
from contamination.core.seeds import derive
from contamination.core.statistics.estimates import interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import FOLDS, blind_baseline, warning
from contamination.detection.evaluation import CONFIDENCE, DRAWS, Key, by_method
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.scores import open_scores

TEXTS = 1_000
"""The most snippets that are compared, as many of each book."""
FEWEST_FOLDS = 3


def blind_auroc(
    positives: Sequence[Drawn], negatives: Sequence[Drawn], seed: int
) -> tuple[float, float, float]:
    """AUROC of a classifier that never sees the model, and its 95% interval.

    All snippets of a book are in one fold: the classifier can't know a book again. The interval is
    that of shuffling the labels of whole books.
    """
    books = [*positives, *negatives]
    each = max(1, min(TEXTS // len(books), *(len(book.texts) for book in books)))
    texts = [book.texts[i].text for book in books for i in _spread(len(book.texts), each)]
    group = np.repeat(np.arange(len(books)), each)
    member = group < len(positives)
    folds = FOLDS if len(books) >= 4 * FOLDS else FEWEST_FOLDS
    made = blind_baseline(texts, member, derive(seed, "blind"), folds, group)
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    found = made.estimates(*sides, [AUROC], DRAWS)[AUROC.name]
    return found.value, *interval(found, CONFIDENCE)


def _spread(of: int, number: int) -> list[int]:
    """So many places, evenly spread."""
    return [(2 * i + 1) * of // (2 * number) for i in range(number)]


ALPHA = 0.05
ROUNDING = 1 + 1e-9
"""13 · (1 / 260) is 0.05 but for its last bit."""
SHOWN = 5
"""Titles in a sentence."""
LIMITATIONS = (
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
        limits=LIMITATIONS,
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


WORDS, TOKENS = "words", "tokens"
LEAST = 5
"""The fewest positives, and negatives: fewer don't say how books differ."""
LEAST_SNIPPETS = 4
"""The fewest of a book."""


@dataclass(frozen=True)
class Books(Audit):
    """Which suspects were trained on, and what share of each (Shi et al. 2024, section 5)."""

    kind: ClassVar[str] = "books"
    needed: ClassVar[Sequence[str]] = tuple(ROLES)

    positives: str | None = runtime(None)
    """A folder of books that the model was trained on, or one file of books."""
    negatives: str | None = runtime(None)
    """Of books that it can't have seen."""
    suspects: str | None = runtime(None)
    """Of the books that are asked about."""
    unit: str = limited(WORDS, one_of((WORDS, TOKENS)))
    """What `length` counts: words, or tokens of the model's tokenizer."""
    length: int = limited(512, at_least(2))
    """Of a snippet."""
    snippets: int = limited(100, at_least(LEAST_SNIPPETS))
    """A book, drawn at random."""
    max_page_bytes: int = runtime(LIMITS.max_page_bytes, at_least(1))
    """Of a file within an EPUB, unpacked: a larger one is refused."""
    max_book_bytes: int = runtime(LIMITS.max_book_bytes, at_least(1))
    """Of a book: all pages of an EPUB, a text file, or a line of JSONL."""
    null_model: str = limited(RANKS, one_of(NULL_MODELS))
    """Of the p-values: see `significance`."""

    def prepare(self, stage: AuditStage) -> Prepared:
        """Read the books, draw snippets and score them.

        Raises:
            UserError: a model, a method or a book that can't be used, or too few books.
        """
        if not stage.method:
            raise ConfigError("method is {}: choose methods, such as method=[loss,min_k].")
        model = open_model("model", stage.model, stage.runs)
        limits = Limits(self.max_page_bytes, self.max_book_bytes)
        books = open_books({role: str(getattr(self, role)) for role in ROLES}, limits)
        _check_enough(books)
        drawn = self._draw(books, model, stage.seed)
        texts = Texts.of([text for own in drawn.values() for text in own.texts])
        scores = stage.scores(texts, "snippets of books")
        inputs = {"books": books_digest(books), "scores": scores.digest}
        find = partial(self._find, books, drawn, scores, stage.seed, model.slug)
        return Prepared(model.slug, inputs, find)

    def _draw(self, books: Sequence[Book], model: ModelHandle, seed: int) -> dict[str, Drawn]:
        divide = words if self.unit == WORDS else tokens(model.tokenizer())
        plan = Plan(self.snippets, self.length, self.unit, divide, seed)
        drawn = {book.name: draw(book, plan) for book in books}
        for book in books:
            _check_snippets(book, len(drawn[book.name].texts))
        return drawn

    def _find(
        self,
        books: Sequence[Book],
        drawn: Mapping[str, Drawn],
        scores: Artifact,
        seed: int,
        model: str,
        folder: Path,
    ) -> Findings:
        candidates, matrix = _scored(scores)
        own = {role: [b for b in books if b.role == role] for role in ROLES}
        sides = {role: [_of(b, drawn[b.name], matrix) for b in own[role]] for role in ROLES}
        positives, negatives, suspects = sides.values()
        result = audited(candidates, positives, negatives, suspects, self.null_model, seed)
        known = {role: [drawn[b.name] for b in own[role]] for role in ROLES}
        blind = blind_auroc(known["positives"], known["negatives"], seed)
        return findings(result, Material(self, model, sides, drawn, blind, seed, set_aside(books)))


def _scored(scores: Artifact) -> tuple[list[Key], pd.DataFrame]:
    """The candidates, and a row a snippet that is ranked, with each one's score."""
    tables = dict(by_method(open_scores(scores.path).tables()))
    columns = [rows.set_index("example_id")["score"] for rows in tables.values()]
    return [*tables], pd.concat(columns, axis=1, keys=range(len(tables)))


def _of(book: Book, drawn: Drawn, matrix: pd.DataFrame) -> BookScores:
    ids = matrix.index.intersection([text.example_id for text in drawn.texts])
    _check_snippets(book, len(ids))
    found = matrix.loc[ids].to_numpy(np.float64).T
    return BookScores(book.title, found, min(drawn.independent, len(ids)))


def _check_enough(books: Sequence[Book]) -> None:
    for role in ("positives", "negatives"):
        count = sum(book.role == role for book in books)
        if count < LEAST:
            raise DataError(
                f"audit.{role}: there are {count} books in it, too few to choose a threshold on "
                f"some and to judge it on others. Give at least {LEAST}, better 20 or more."
            )


def _check_snippets(book: Book, count: int) -> None:
    if count < LEAST_SNIPPETS:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) gives {count} different "
            f"snippets that can be ranked, fewer than {LEAST_SNIPPETS}. Take it out, or change "
            "audit.length."
        )
