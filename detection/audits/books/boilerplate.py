"""Text at the beginning or the end of several books that is none of theirs, such as a licence.

It is found from the books alone: runs of words that a book shares with another one's beginning (or
end), reach from its own first word (or last), and leave most or much of it. A run that is longer
than any licence is not set aside: then two files hold one book.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from detection.audits.books.grams import FAR_EAST, GRAM, gram_hashes

WORD = re.compile(rf"[^\W_{FAR_EAST}-\U0010ffff]+|[^\W_]")
"""A word as `grams` has it."""
MOST_WORDS = 5_000
"""Of a run. Project Gutenberg's licence has 2,900, Creative Commons' legal code 3,400."""
MOST_CHARACTERS = 16 * MOST_WORDS
"""That are searched for the last MOST_WORDS words of a text."""
GAP_WORDS = 50
"""Within a run, such as the book's title within a licence."""
LEAST_LEFT = 0.1
"""The share of a book's words that must be left. Of two that differ in less, one is a copy."""
PLACES = BEGINNING, END = "beginning", "end"
FIRST_WORDS = 8
"""Of a run, for the reader."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """Words of a book that were set aside.

    Attributes:
        place: BEGINNING or END.
        words: how many.
        begins: the first of them.
        books: how many books share some of them, this one included.
    """

    place: str
    words: int
    begins: str
    books: int


def without_boilerplate(texts: Sequence[str]) -> list[tuple[str, tuple[Run, ...]]]:
    """Each text without what it shares with others at its beginning and end, and these runs."""
    spans = {BEGINNING: [_first(t) for t in texts], END: [_last(t) for t in texts]}
    shared = {place: _shared(texts, own) for place, own in spans.items()}
    return [
        _stripped(text, {place: (spans[place][n], shared[place][n]) for place in spans})
        for n, text in enumerate(texts)
    ]


def _first(text: str) -> list[Span]:
    return [word.span() for word in islice(WORD.finditer(text), MOST_WORDS)]


def _last(text: str) -> list[Span]:
    begin = max(0, len(text) - MOST_CHARACTERS)
    return [word.span() for word in WORD.finditer(text, begin)][-MOST_WORDS:]


def _shared(texts: Sequence[str], spans: Sequence[list[Span]]) -> list[NDArray[np.intp]]:
    """Of each word of each text how many texts have some GRAM words around it; 1: no other one."""
    words = [[text[a:b].casefold() for a, b in own] for text, own in zip(texts, spans, strict=True)]
    grams = [gram_hashes(own) for own in words]
    once_each = np.concatenate([np.unique(own) for own in grams])
    hashes, counts = np.unique(once_each, return_counts=True)
    found = []
    for own_words, own in zip(words, grams, strict=True):
        books = counts[np.searchsorted(hashes, own)]
        around = np.ones(len(own_words), np.intp)
        for step in range(min(GRAM, len(own_words)) if len(own) else 0):
            np.maximum(around[step : step + len(own)], books, out=around[step : step + len(own)])
        found.append(around)
    return found


def _stripped(
    text: str, places: Mapping[str, tuple[list[Span], NDArray[np.intp]]]
) -> tuple[str, tuple[Run, ...]]:
    (first, beginning), (last, end) = places[BEGINNING], places[END]
    lengths = _reach(beginning), _reach(end[::-1])
    if not any(lengths):
        return text, ()
    total = sum(1 for _ in WORD.finditer(text))
    if total - sum(lengths) < max(LEAST_LEFT * total, 1):
        return text, ()
    start = first[lengths[0]][0] if lengths[0] else 0
    stop = last[-lengths[1] - 1][1] if lengths[1] else len(text)
    runs = []
    if lengths[0]:
        runs.append(_run(BEGINNING, text, first[: lengths[0]], beginning[: lengths[0]]))
    if lengths[1]:
        runs.append(_run(END, text, last[-lengths[1] :], end[-lengths[1] :]))
    return text[start:stop], tuple(runs)


def _run(place: str, text: str, spans: Sequence[Span], books: NDArray[np.intp]) -> Run:
    begins = text[spans[0][0] : spans[:FIRST_WORDS][-1][1]]
    return Run(place, len(spans), " ".join(begins.split()), int(books.max()))


def _reach(books: NDArray[np.intp]) -> int:
    """How many words from the first on are shared, but for gaps; 0: none, or too many."""
    places = np.flatnonzero(books > 1)
    ends = np.flatnonzero(np.diff(places, prepend=-1) > GAP_WORDS)
    shared = places[: ends[0]] if len(ends) else places
    reach = int(shared[-1]) + 1 if len(shared) else 0
    return reach if reach + GAP_WORDS < MOST_WORDS else 0
