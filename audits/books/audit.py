"""The audit of books: reads them, scores snippets of them and reports which were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.books.contamination_rates import NULL_MODELS, RANKS
from contamination.audits.books.epub import LIMITS, Limits
from contamination.audits.books.reading import (
    ROLES,
    Book,
    books_digest,
    describe_boilerplate,
    read_books,
)
from contamination.audits.books.report import AuditedBooks, build_report
from contamination.audits.books.results import BookScores, audit_books
from contamination.audits.books.snippets import (
    BookSnippets,
    SnippetPlan,
    draw_snippets,
    list_word_spans,
    make_token_splitter,
)
from contamination.core.artifacts import Artifact
from contamination.core.config import at_least, one_of, ranged_field, runtime_field
from contamination.core.errors import ConfigError, DataError
from contamination.core.seeds import derive_seed
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import FOLDS, blind_baseline
from contamination.detection.evaluation import CONFIDENCE, DRAWS, MethodKey, group_by_method
from contamination.detection.models import open_model
from contamination.detection.scores import open_scores

WORDS, TOKENS = "words", "tokens"
MIN_BOOKS = 5
"""The minimum number of positives and of negatives: fewer do not show how much books differ."""
MIN_SNIPPETS = 4
"""The minimum number of snippets of a book."""
MAX_BLIND_SNIPPETS = 1_000
"""The maximum number of snippets for the blind baseline, the same number from each book."""
MIN_FOLDS = 3
"""The number of folds of the blind baseline if there are few books."""


def blind_auroc_and_interval(
    positives: Sequence[BookSnippets], negatives: Sequence[BookSnippets], seed: int
) -> tuple[float, float, float]:
    """Returns the AUROC of a classifier that never sees the model, and its 95% interval.

    All snippets of a book are in one fold, so that the classifier can't recognise a book. The
    interval comes from shuffling the labels of whole books.

    Returns:
        The AUROC, and the lower and upper end of its interval.
    """
    books = [*positives, *negatives]
    shortest = min(len(book.texts) for book in books)
    per_book = max(1, min(MAX_BLIND_SNIPPETS // len(books), shortest))
    texts = [
        book.texts[i].text
        for book in books
        for i in _evenly_spaced_indices(len(book.texts), per_book)
    ]
    book_index = np.repeat(np.arange(len(books)), per_book)
    is_member = book_index < len(positives)
    folds = FOLDS if len(books) >= 4 * FOLDS else MIN_FOLDS
    baseline = blind_baseline(texts, is_member, derive_seed(seed, "blind"), folds, book_index)
    member_and_nonmember_rows = np.flatnonzero(is_member), np.flatnonzero(~is_member)
    auroc = baseline.estimates(*member_and_nonmember_rows, [AUROC], DRAWS)[AUROC.name]
    return auroc.value, *confidence_interval(auroc, CONFIDENCE)


def _evenly_spaced_indices(length: int, number: int) -> list[int]:
    return [(2 * i + 1) * length // (2 * number) for i in range(number)]


@dataclass(frozen=True)
class Books(Audit):
    """Which suspects were trained on, and what share of each (Shi et al. 2024, section 5)."""

    kind: ClassVar[str] = "books"
    needed: ClassVar[Sequence[str]] = tuple(ROLES)

    positives: str | None = runtime_field(None)
    """A folder of books that the model was trained on, or one file of books."""
    negatives: str | None = runtime_field(None)
    """A folder of books that the model can't have seen, or one file of books."""
    suspects: str | None = runtime_field(None)
    """A folder of the books in question, or one file of books."""
    unit: str = ranged_field(WORDS, one_of((WORDS, TOKENS)))
    """What `length` counts: words, or tokens of the model's tokenizer."""
    length: int = ranged_field(512, at_least(2))
    """The length of a snippet, in words or tokens (see `unit`)."""
    snippets: int = ranged_field(100, at_least(MIN_SNIPPETS))
    """Snippets per book, drawn at random."""
    max_page_bytes: int = runtime_field(LIMITS.max_page_bytes, at_least(1))
    """The maximum size of a file within an EPUB, after decompression; a larger one is an error."""
    max_book_bytes: int = runtime_field(LIMITS.max_book_bytes, at_least(1))
    """The maximum size of a book: all pages of an EPUB, a text file, or a line of JSONL."""
    null_model: str = ranged_field(RANKS, one_of(NULL_MODELS))
    """How p-values are computed: see `rates`."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the books, draws snippets and scores them.

        Raises:
            UserError: a model, a method or a book can't be used, or there are too few books.
        """
        if not stage.method:
            raise ConfigError("method is {}: choose methods, such as method=[loss,min_k].")
        model = open_model("model", stage.model, stage.runs)
        limits = Limits(self.max_page_bytes, self.max_book_bytes)
        books = read_books({role: str(getattr(self, role)) for role in ROLES}, limits)
        _check_validation_book_counts(books)
        split = list_word_spans if self.unit == WORDS else make_token_splitter(model.tokenizer())
        plan = SnippetPlan(self.snippets, self.length, self.unit, split, stage.seed)
        snippets = {book.role_and_title: draw_snippets(book, plan) for book in books}
        for book in books:
            _check_snippet_count(book, len(snippets[book.role_and_title].texts))
        texts = Texts.of(
            [text for book_snippets in snippets.values() for text in book_snippets.texts]
        )
        scores = stage.score_texts(texts, "snippets of books")
        inputs = {"books": books_digest(books), "scores": scores.digest}
        conduct = partial(self._conduct, books, snippets, scores, plan, model.slug)
        return PreparedAudit(model.slug, inputs, conduct)

    def _conduct(
        self,
        books: Sequence[Book],
        snippets: Mapping[str, BookSnippets],
        scores: Artifact,
        plan: SnippetPlan,
        model: str,
        folder: Path,
    ) -> AuditResult:
        candidates, score_matrix = _candidates_and_scores(scores)
        by_role = {role: [book for book in books if book.role == role] for role in ROLES}
        book_scores = {
            role: [
                _book_scores(book, snippets[book.role_and_title], score_matrix)
                for book in by_role[role]
            ]
            for role in ROLES
        }
        positives, negatives, suspects = (book_scores[role] for role in ROLES)
        result = audit_books(candidates, positives, negatives, suspects, self.null_model, plan.seed)
        positive_snippets, negative_snippets = (
            [snippets[book.role_and_title] for book in by_role[role]]
            for role in ("positives", "negatives")
        )
        audited_books = AuditedBooks(
            model=model,
            plan=plan,
            null_model=self.null_model,
            scores=book_scores,
            snippets=snippets,
            blind=blind_auroc_and_interval(positive_snippets, negative_snippets, plan.seed),
            boilerplate=describe_boilerplate(books),
        )
        return build_report(result, audited_books)


def _candidates_and_scores(artifact: Artifact) -> tuple[list[MethodKey], pd.DataFrame]:
    """Returns the candidates, and their scores: one row per ranked snippet, one column each."""
    tables = dict(group_by_method(open_scores(artifact.path).tables()))
    score_columns = [rows.set_index("example_id")["score"] for rows in tables.values()]
    return [*tables], pd.concat(score_columns, axis=1, keys=range(len(tables)))


def _book_scores(book: Book, snippets: BookSnippets, score_matrix: pd.DataFrame) -> BookScores:
    ids = score_matrix.index.intersection([text.example_id for text in snippets.texts])
    _check_snippet_count(book, len(ids))
    scores = score_matrix.loc[ids].to_numpy(np.float64).T
    return BookScores(book.title, scores, min(snippets.effective_count, len(ids)))


def _check_validation_book_counts(books: Sequence[Book]) -> None:
    for role in ("positives", "negatives"):
        count = sum(book.role == role for book in books)
        if count < MIN_BOOKS:
            raise DataError(
                f"audit.{role}: it has {count} books, too few to choose a threshold on "
                f"some and to evaluate it on others. Give at least {MIN_BOOKS}, better 20 or more."
            )


def _check_snippet_count(book: Book, count: int) -> None:
    if count < MIN_SNIPPETS:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) gives {count} different "
            f"snippets that can be ranked, fewer than {MIN_SNIPPETS}. Remove it, or change "
            "audit.length."
        )
