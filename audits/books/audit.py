"""The audit of books: reads them, scores snippets of them and reports which were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from contamination.audits.base import Audit, AuditStage, PreparedAudit
from contamination.audits.books.contamination_rates import NULL_MODELS, RANKS
from contamination.audits.books.epub import LIMITS, Limits
from contamination.audits.books.reading import (
    MIN_SNIPPETS,
    ROLES,
    books_digest,
    check_validation_book_counts,
    read_books,
)
from contamination.core.config import at_least, one_of, ranged_field, runtime_field
from contamination.core.errors import ConfigError

WORDS, TOKENS = "words", "tokens"


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
        from contamination.audits.books.evaluation import conduct_audit
        from contamination.audits.books.snippets import (
            SnippetPlan,
            check_snippet_count,
            draw_snippets,
            list_word_spans,
            make_token_splitter,
        )
        from contamination.data.texts import Texts
        from contamination.detection.models import open_model

        if not stage.method:
            raise ConfigError("method is {}: choose methods, such as method=[loss,min_k].")
        model = open_model("model", stage.model, stage.runs)
        limits = Limits(self.max_page_bytes, self.max_book_bytes)
        books = read_books({role: str(getattr(self, role)) for role in ROLES}, limits)
        check_validation_book_counts(books)
        split = list_word_spans if self.unit == WORDS else make_token_splitter(model.tokenizer())
        plan = SnippetPlan(self.snippets, self.length, self.unit, split, stage.seed)
        snippets = {book.role_and_title: draw_snippets(book, plan) for book in books}
        for book in books:
            check_snippet_count(book, len(snippets[book.role_and_title].texts))
        texts = Texts.of(
            [text for book_snippets in snippets.values() for text in book_snippets.texts]
        )
        scores = stage.score_texts(texts, "snippets of books")
        inputs = {"books": books_digest(books), "scores": scores.digest}
        conduct = partial(conduct_audit, books, snippets, scores, plan, model.slug, self.null_model)
        return PreparedAudit(model.slug, inputs, conduct)
