"""The audit of books, from files to findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from core.artifacts import Artifact
from core.config import runtime
from core.errors import ConfigError, DataError
from core.ranges import at_least, limited, one_of
from detection.audits.base import Audit, AuditStage, Prepared
from detection.audits.books.blind import blind_auroc
from detection.audits.books.formats.limits import LIMITS, Limits
from detection.audits.books.reading import ROLES, Book, books_digest, open_books, set_aside
from detection.audits.books.result import BookScores, audited
from detection.audits.books.shown import Material, findings
from detection.audits.books.significance import NULL_MODELS, RANKS
from detection.audits.books.snippets import Drawn, Plan, draw, tokens, words
from detection.audits.findings import Findings
from detection.evaluation import Key, by_method
from detection.model import ScoredModel, open_node
from detection.scores import open_scores
from detection.texts import Texts

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
        model = open_node("model", stage.model, stage.runs)
        limits = Limits(self.max_page_bytes, self.max_book_bytes)
        books = open_books({role: str(getattr(self, role)) for role in ROLES}, limits)
        _check_enough(books)
        drawn = self._draw(books, model, stage.seed)
        texts = Texts.of([text for own in drawn.values() for text in own.texts])
        scores = stage.scores(texts, "snippets of books")
        inputs = {"books": books_digest(books), "scores": scores.digest}
        find = partial(self._find, books, drawn, scores, stage.seed, model.slug)
        return Prepared(model.slug, inputs, find)

    def _draw(self, books: Sequence[Book], model: ScoredModel, seed: int) -> dict[str, Drawn]:
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
