"""The audit of books: reads them, scores snippets of them and reports which were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.books import charts
from contamination.audits.books.epub import LIMITS, Limits
from contamination.audits.books.rates import NORMAL, NULL_MODELS, RANKS
from contamination.audits.books.reading import (
    ROLES,
    Book,
    books_digest,
    describe_boilerplate,
    open_books,
)
from contamination.audits.books.results import BookScores, BooksResult, Suspect, audit_books
from contamination.audits.books.snippets import (
    BookSnippets,
    SnippetPlan,
    draw_snippets,
    split_words,
    token_splitter,
)
from contamination.audits.books.tables import candidate_name, tables
from contamination.core.artifacts import Artifact
from contamination.core.config import at_least, limited, one_of, runtime
from contamination.core.errors import ConfigError, DataError
from contamination.core.report.document import ReportContent
from contamination.core.seeds import derive
from contamination.core.statistics.estimates import interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import FOLDS, blind_baseline, warning
from contamination.detection.evaluation import CONFIDENCE, DRAWS, Key, by_method
from contamination.detection.models import open_node
from contamination.detection.models.base import ModelHandle
from contamination.detection.scores import open_scores

MAX_BLIND_SNIPPETS = 1_000
"""The most snippets that the blind baseline compares, equally many of each book."""
MIN_FOLDS = 3


def blind_auroc(
    positives: Sequence[BookSnippets], negatives: Sequence[BookSnippets], seed: int
) -> tuple[float, float, float]:
    """AUROC of a classifier that never sees the model, with the ends of its 95% interval.

    All snippets of a book are in one fold, so that the classifier can't recognise a book. The
    interval is that of shuffling the labels of whole books.
    """
    books = [*positives, *negatives]
    shortest = min(len(book.texts) for book in books)
    per_book = max(1, min(MAX_BLIND_SNIPPETS // len(books), shortest))
    texts = [
        book.texts[i].text for book in books for i in _evenly_spaced(len(book.texts), per_book)
    ]
    book_index = np.repeat(np.arange(len(books)), per_book)
    is_member = book_index < len(positives)
    folds = FOLDS if len(books) >= 4 * FOLDS else MIN_FOLDS
    baseline = blind_baseline(texts, is_member, derive(seed, "blind"), folds, book_index)
    sides = np.flatnonzero(is_member), np.flatnonzero(~is_member)
    auroc = baseline.estimates(*sides, [AUROC], DRAWS)[AUROC.name]
    return auroc.value, *interval(auroc, CONFIDENCE)


def _evenly_spaced(length: int, number: int) -> list[int]:
    """`number` indices, evenly spaced over range(length)."""
    return [(2 * i + 1) * length // (2 * number) for i in range(number)]


ALPHA = 0.05
ROUNDING = 1 + 1e-9
"""Tolerance of comparisons with ALPHA: 13 · (1 / 260) is 0.05 except for its last bit."""
MAX_TITLES = 5
"""The most titles in a sentence."""
LIMITATIONS = (
    "That a book is not found says nothing: it may have been trained on too rarely, or in an "
    "edition that differs.",
    "A share that was trained on may come from quotations, reviews or another book with the "
    "same text: the audit does not know where the model read it.",
    "The correction assumes that the suspects are like the validation books. Where they differ in "
    "date, genre, edition or fame, their rates of false alarms and of hits differ too, and no "
    "interval here accounts for that.",
    "Positives stand for books that were trained on as a whole. Where they were read more often "
    "than a suspect (famous books are), the suspect's share is underestimated.",
)


@dataclass(frozen=True)
class AuditedBooks:
    """The books of an audit and what was measured of them before the result.

    Attributes:
        settings: the audit's.
        model: the model's name.
        scores: role → its books' scores.
        snippets: the snippets by the book's name.
        blind: AUROC of the texts alone, with its interval.
        seed: of the draws.
        boilerplate: sentences about text that several books share, which was set aside.
    """

    settings: Books
    model: str
    scores: Mapping[str, Sequence[BookScores]]
    snippets: Mapping[str, BookSnippets]
    blind: tuple[float, float, float]
    seed: int
    boilerplate: Sequence[str] = ()


def report(result: BooksResult, books: AuditedBooks) -> AuditResult:
    """The result in sentences, tables and charts."""
    content = ReportContent(
        title=f"Which books was {books.model} trained on?",
        conclusions=[*_conclusions(result, books)],
        warnings=[*_warnings(result, books)],
        tables=tables(result, books.scores, books.blind),
        charts=charts.charts(result, books.scores),
        limits=LIMITATIONS,
        facts=_facts(books),
    )
    counts = {
        **{role: len(books.scores[role]) for role in ROLES},
        "snippets": sum(len(snippets.texts) for snippets in books.snippets.values()),
        "found": len(_significant(result)),
    }
    return AuditResult(content, counts)


def _significant(result: BooksResult) -> list[Suspect]:
    return [suspect for suspect in result.suspects if suspect.q <= ALPHA * ROUNDING]


def _conclusions(result: BooksResult, books: AuditedBooks) -> Iterator[str]:
    significant, suspects = _significant(result), len(result.suspects)
    if significant:
        names = "; ".join(_suspect_with_share(suspect) for suspect in significant[:MAX_TITLES])
        omitted = len(significant) - MAX_TITLES
        more = f"; and {omitted} more" if omitted > 0 else ""
        yield (
            f"**{len(significant)} of {suspects} suspects** have more snippets above the threshold "
            f"than books that were not trained on (false discovery rate {ALPHA:.0%}): "
            f"{names}{more}."
        )
    else:
        yield _no_suspect_found(result, books.settings.null_model)
    yield _decision_rule(result)
    if len(significant) < suspects:
        which = "the others" if significant else "they"
        yield (
            f"This does not show that {which} were not trained on: a share up to the upper end of "
            "the interval may have been."
        )
    if result.separated:
        yield (
            "The corrected rate is the share of a book's words that was trained on, if the book is "
            "like the validation books; its interval accounts for how much these differ."
        )


def _no_suspect_found(result: BooksResult, null_model: str) -> str:
    """That no suspect was found, after whether the negatives allow any to be found."""
    negatives, suspects = len(result.negatives.values), len(result.suspects)
    needed_together = result.needed_together(ALPHA * ROUNDING)
    at_rate = f"at a false discovery rate of {ALPHA:.0%}"
    if needed_together == 1:
        return (
            f"**None of {suspects} suspects** is shown to have more snippets above the threshold "
            f"than books that were not trained on (false discovery rate {ALPHA:.0%})."
        )
    if needed_together is None:
        which = f"**With {negatives} negatives no suspect can be found**"
    else:
        which = (
            f"**With {negatives} negatives no suspect can be found alone**, but only "
            f"{needed_together} or more of the {suspects} together,"
        )
    none = f"**None of {suspects} suspects** is found, which therefore says nothing."
    if null_model == NORMAL:
        return f"{which} {at_rate}: more negatives are needed, or some that are more alike. {none}"
    for_one_suspect = round(1 / ALPHA) - 1
    for_one_of_all = round(suspects / ALPHA) - 1
    remedy = f"at least {for_one_of_all} negatives are needed to find one suspect of {suspects}"
    if needed_together is None and suspects > 1:
        remedy = (
            f"at least {for_one_suspect} negatives are needed, and {for_one_of_all} to find one "
            f"of {suspects}"
        )
    return (
        f"{which} {at_rate}, whatever its rate: {remedy} (audit.null_model={NORMAL} needs fewer, "
        f"but assumes that books are normally distributed). {none}"
    )


def _suspect_with_share(suspect: Suspect) -> str:
    share = suspect.corrected
    if share is None:
        return f"{suspect.title!r} ({suspect.rate:.0%} of its snippets)"
    return f"{suspect.title!r} ({share.value:.0%} [{share.low:.0%}, {share.high:.0%}] trained on)"


def _decision_rule(result: BooksResult) -> str:
    tpr, fpr = result.positives.mean, result.negatives.mean
    return (
        f"A snippet counts as trained on where {candidate_name(result.chosen.candidate)} is at "
        f"least {result.chosen.threshold:.4g}. Method and threshold were chosen on "
        f"{len(result.positives.values)} positives and {len(result.negatives.values)} negatives; "
        f"on books held out from the choice {tpr:.0%} of the snippets of positives and {fpr:.0%} "
        f"of those of negatives count so (balanced accuracy {(tpr + 1 - fpr) / 2:.2f})."
    )


def _warnings(result: BooksResult, books: AuditedBooks) -> Iterator[str]:
    if blind_warning := warning(*books.blind):
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
    if overlapping := [name for name, snippets in books.snippets.items() if snippets.overlaps]:
        yield (
            f"{len(overlapping)} books, such as {overlapping[0].partition('/')[2]!r}, are too "
            f"short for {books.settings.snippets} snippets without overlap: theirs overlap, and "
            "count as fewer in all intervals."
        )


def _facts(books: AuditedBooks) -> dict[str, str]:
    settings = books.settings
    return {
        "model": books.model,
        **{role: f"{len(books.scores[role])} books" for role in ROLES},
        "snippets": f"{settings.snippets} of {settings.length} {settings.unit} per book, without "
        f"overlap where the book is long enough, drawn with seed {books.seed}",
        "p-values": "ranks among the negatives, by thresholds chosen without them"
        if settings.null_model == RANKS
        else "angles of the rates as normal, Student's t",
    }


WORDS, TOKENS = "words", "tokens"
MIN_BOOKS = 5
"""The fewest positives, and negatives: fewer don't show how much books differ."""
MIN_SNIPPETS = 4
"""The fewest snippets of a book."""


@dataclass(frozen=True)
class Books(Audit):
    """Which suspects were trained on, and what share of each (Shi et al. 2024, section 5)."""

    kind: ClassVar[str] = "books"
    needed: ClassVar[Sequence[str]] = tuple(ROLES)

    positives: str | None = runtime(None)
    """A folder of books that the model was trained on, or one file of books."""
    negatives: str | None = runtime(None)
    """The same of books that the model can't have seen."""
    suspects: str | None = runtime(None)
    """The same of the books in question."""
    unit: str = limited(WORDS, one_of((WORDS, TOKENS)))
    """What `length` counts: words, or tokens of the model's tokenizer."""
    length: int = limited(512, at_least(2))
    """Units of a snippet."""
    snippets: int = limited(100, at_least(MIN_SNIPPETS))
    """Snippets per book, drawn at random."""
    max_page_bytes: int = runtime(LIMITS.max_page_bytes, at_least(1))
    """Largest size of a file within an EPUB, unpacked; a larger one is an error."""
    max_book_bytes: int = runtime(LIMITS.max_book_bytes, at_least(1))
    """Largest size of a book: all pages of an EPUB, a text file, or a line of JSONL."""
    null_model: str = limited(RANKS, one_of(NULL_MODELS))
    """How p-values are computed: see `rates`."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Read the books, draw snippets and score them.

        Raises:
            UserError: a model, a method or a book can't be used, or there are too few books.
        """
        if not stage.method:
            raise ConfigError("method is {}: choose methods, such as method=[loss,min_k].")
        model = open_node("model", stage.model, stage.runs)
        limits = Limits(self.max_page_bytes, self.max_book_bytes)
        books = open_books({role: str(getattr(self, role)) for role in ROLES}, limits)
        _check_enough(books)
        snippets = self._draw(books, model, stage.seed)
        texts = Texts.of([text for of_book in snippets.values() for text in of_book.texts])
        scores = stage.scores(texts, "snippets of books")
        inputs = {"books": books_digest(books), "scores": scores.digest}
        conduct = partial(self._conduct, books, snippets, scores, stage.seed, model.slug)
        return PreparedAudit(model.slug, inputs, conduct)

    def _draw(
        self, books: Sequence[Book], model: ModelHandle, seed: int
    ) -> dict[str, BookSnippets]:
        split = split_words if self.unit == WORDS else token_splitter(model.tokenizer())
        plan = SnippetPlan(self.snippets, self.length, self.unit, split, seed)
        snippets = {book.name: draw_snippets(book, plan) for book in books}
        for book in books:
            _check_snippets(book, len(snippets[book.name].texts))
        return snippets

    def _conduct(
        self,
        books: Sequence[Book],
        snippets: Mapping[str, BookSnippets],
        scores: Artifact,
        seed: int,
        model: str,
        folder: Path,
    ) -> AuditResult:
        candidates, score_matrix = _candidate_scores(scores)
        by_role = {role: [book for book in books if book.role == role] for role in ROLES}
        book_scores = {
            role: [_book_scores(book, snippets[book.name], score_matrix) for book in by_role[role]]
            for role in ROLES
        }
        positives, negatives, suspects = (book_scores[role] for role in ROLES)
        result = audit_books(candidates, positives, negatives, suspects, self.null_model, seed)
        positive_snippets, negative_snippets = (
            [snippets[book.name] for book in by_role[role]] for role in ("positives", "negatives")
        )
        blind = blind_auroc(positive_snippets, negative_snippets, seed)
        boilerplate = describe_boilerplate(books)
        return report(
            result, AuditedBooks(self, model, book_scores, snippets, blind, seed, boilerplate)
        )


def _candidate_scores(scores: Artifact) -> tuple[list[Key], pd.DataFrame]:
    """The candidates, and their scores: a row per ranked snippet, a column per candidate."""
    tables = dict(by_method(open_scores(scores.path).tables()))
    columns = [rows.set_index("example_id")["score"] for rows in tables.values()]
    return [*tables], pd.concat(columns, axis=1, keys=range(len(tables)))


def _book_scores(book: Book, snippets: BookSnippets, score_matrix: pd.DataFrame) -> BookScores:
    ids = score_matrix.index.intersection([text.example_id for text in snippets.texts])
    _check_snippets(book, len(ids))
    scores = score_matrix.loc[ids].to_numpy(np.float64).T
    return BookScores(book.title, scores, min(snippets.independent, len(ids)))


def _check_enough(books: Sequence[Book]) -> None:
    for role in ("positives", "negatives"):
        count = sum(book.role == role for book in books)
        if count < MIN_BOOKS:
            raise DataError(
                f"audit.{role}: it has {count} books, too few to choose a threshold on "
                f"some and to evaluate it on others. Give at least {MIN_BOOKS}, better 20 or more."
            )


def _check_snippets(book: Book, count: int) -> None:
    if count < MIN_SNIPPETS:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) gives {count} different "
            f"snippets that can be ranked, fewer than {MIN_SNIPPETS}. Remove it, or change "
            "audit.length."
        )
