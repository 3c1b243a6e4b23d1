"""Snippets of a book, drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.audits.books.reading import MIN_SNIPPETS, ROLES, Book
from contamination.core.errors import DataError
from contamination.core.seeds import derive_seed
from contamination.data.examples import make_text
from contamination.data.texts import Text
from contamination.data.words import word_spans

Spans = Sequence[tuple[int, int]]
"""The start and end of each word or token of a text, in characters."""


@dataclass(frozen=True)
class BookSnippets:
    """A book's snippets.

    Attributes:
        texts: the snippets, in the book's order.
        effective_count: the effective number of independent snippets, lower if they overlap.
    """

    texts: Sequence[Text]
    effective_count: int

    @property
    def has_overlaps(self) -> bool:
        """Whether snippets share words, because the book is too short."""
        return self.effective_count < len(self.texts)


def list_word_spans(text: str) -> Spans:
    """Returns the spans of the words (see `data.words.word_spans`)."""
    return [*word_spans(text)]


def make_token_splitter(tokenizer: Callable[..., Mapping[str, Spans]]) -> Callable[[str], Spans]:
    """Returns a function that returns the spans of a text's tokens, without special tokens."""

    def split_tokens(text: str) -> Spans:
        encoding = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return [
            (token_start, token_end)
            for token_start, token_end in encoding["offset_mapping"]
            if token_end > token_start
        ]

    return split_tokens


@dataclass(frozen=True)
class SnippetPlan:
    """How snippets are drawn.

    Attributes:
        number: the maximum number of snippets per book.
        length: the length of a snippet, in units.
        unit: the name of the unit, `words` or `tokens`.
        split: returns the spans of the units of a text.
        seed: the seed of the draws.
    """

    number: int
    length: int
    unit: str
    split: Callable[[str], Spans]
    seed: int


def draw_snippets(book: Book, plan: SnippetPlan) -> BookSnippets:
    """Draws up to `plan.number` snippets of `plan.length` units from a book.

    If the book has at least `number` × `length` units, the snippets do not overlap, and all ways to
    place them are equally likely. In a shorter book they begin at different random positions.

    Raises:
        DataError: the book is shorter than a snippet.
    """
    spans, length = plan.split(book.text), plan.length
    if len(spans) < length:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) has {len(spans):,} {plan.unit}, "
            f"fewer than a snippet's {length:,}. Remove it, or give a smaller audit.length."
        )
    rng = np.random.default_rng(derive_seed(plan.seed, "snippets", book.role_and_title))
    starts = _draw_starts(len(spans), length, plan.number, rng)
    snippet_spans = [(spans[start][0], spans[start + length - 1][1]) for start in starts]
    label = ROLES[book.role]
    texts = [
        make_text(f"{book.role_and_title}#{number}", book.text[start:end], label, "")
        for number, (start, end) in enumerate(snippet_spans)
    ]
    return BookSnippets(texts, min(len(texts), len(spans) // length))


def _draw_starts(
    units: int, snippet_units: int, snippet_count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Returns the index of each snippet's first unit, ascending."""
    if units >= snippet_count * snippet_units:
        # draw positions with each snippet shrunk to one unit, then expand the snippets
        shrunk_units = units - snippet_count * (snippet_units - 1)
        shrunk_starts = np.sort(rng.choice(shrunk_units, snippet_count, replace=False))
        starts: NDArray[np.int64] = shrunk_starts + np.arange(snippet_count) * (snippet_units - 1)
        return starts
    possible_starts = units - snippet_units + 1
    return np.sort(rng.choice(possible_starts, min(snippet_count, possible_starts), replace=False))


def check_snippet_count(book: Book, count: int) -> None:
    """Raises a DataError if a book gives too few snippets."""
    if count < MIN_SNIPPETS:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) gives {count} different "
            f"snippets that can be ranked, fewer than {MIN_SNIPPETS}. Remove it, or change "
            "audit.length."
        )
