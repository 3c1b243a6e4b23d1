"""Snippets of a book, drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contamination.audits.books.reading import ROLES, Book
from contamination.core.errors import DataError
from contamination.core.seeds import derive
from contamination.data.examples import make_text
from contamination.data.text import word_spans
from contamination.data.texts import Text

Spans = Sequence[tuple[int, int]]
"""Where a book's words or tokens stand in its text."""


@dataclass(frozen=True)
class Drawn:
    """A book's snippets.

    Attributes:
        texts: the snippets, in the book's order.
        independent: as how many snippets they count: fewer than there are where they overlap.
        units: words or tokens of the whole book.
    """

    texts: Sequence[Text]
    independent: int
    units: int

    @property
    def overlaps(self) -> bool:
        """Whether snippets share words, because the book is too short for so many."""
        return self.independent < len(self.texts)


def words(text: str) -> Spans:
    """The places of the words (see `core.words`)."""
    return [*word_spans(text)]


def tokens(tokenizer: Callable[..., Mapping[str, Spans]]) -> Callable[[str], Spans]:
    """What gives the places of a tokenizer's tokens, without special ones."""

    def spans(text: str) -> Spans:
        made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(start, end) for start, end in made["offset_mapping"] if end > start]

    return spans


@dataclass(frozen=True)
class Plan:
    """How snippets are drawn: how many of which length, in which unit, and what finds the units."""

    number: int
    length: int
    unit: str
    divide: Callable[[str], Spans]
    seed: int


def draw(book: Book, plan: Plan) -> Drawn:
    """Up to `number` snippets of `length` units of a book.

    They don't overlap where the book has `number` × `length` units; all ways to place them are then
    equally likely. In a shorter book they begin at different places, drawn at random.

    Raises:
        DataError: the book is shorter than a snippet.
    """
    spans, length = plan.divide(book.text), plan.length
    if len(spans) < length:
        raise DataError(
            f"audit.{book.role}: {book.title!r} ({book.file}) has {len(spans):,} {plan.unit}, "
            f"fewer than a snippet's {length:,}. Take it out, or give a smaller audit.length."
        )
    rng = np.random.default_rng(derive(plan.seed, "snippets", book.name))
    starts = _starts(len(spans), length, plan.number, rng)
    pieces = [(spans[start][0], spans[start + length - 1][1]) for start in starts]
    label = ROLES[book.role]
    texts = [
        make_text(f"{book.name}#{place}", book.text[start:end], label, "")
        for place, (start, end) in enumerate(pieces)
    ]
    return Drawn(texts, min(len(texts), len(spans) // length), len(spans))


def _starts(units: int, length: int, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first units of the snippets, ascending."""
    free = units - number * (length - 1)
    if units >= number * length:  # each snippet as one unit among those between them
        places = np.sort(rng.choice(free, number, replace=False))
        found: NDArray[np.int64] = places + np.arange(number) * (length - 1)
        return found
    room = units - length + 1
    return np.sort(rng.choice(room, min(number, room), replace=False))
