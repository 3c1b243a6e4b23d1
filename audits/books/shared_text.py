"""Text at the beginning or the end of several books that is none of theirs, such as a licence.

It is found from the books alone: runs of words that stand at the beginnings (or ends) of
LEAST_BOOKS books or more, and reach from the first word (or last). What two books alone share may
be the work itself. Neither is a run set aside that is longer than any licence, or nearly all of one
of the books that have it: then it is left in all of them, and two files may hold one book.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

GRAM = 13
"""Words in a row that two texts share by no accident (Brown et al. 2020, appendix C)."""
ONE_IN = 4
"""Of all GRAM-grams, those that are compared."""
FAR_EAST = "\u2e80"
"""The first letter of those scripts in Unicode that no space parts."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)
Keys = NDArray[np.uint64]


def _parted(letter: str) -> str:
    if not letter.isalnum():
        return " "
    return letter if letter < FAR_EAST else f" {letter} "


def gram_keys(text: str) -> Keys:
    """Hashes of one in ONE_IN of the text's runs of GRAM words, each once, in order.

    Case and punctuation don't count. A text of fewer words has one key, of all of them. A Chinese
    or Japanese letter is a word, since no space parts them.
    """
    words = "".join(map(_parted, text.casefold())).split()
    keys: Keys = np.unique(gram_hashes(words))
    return _sample(keys) if len(words) > 40 * GRAM else keys


def gram_hashes(words: Sequence[str]) -> Keys:
    """The hash of each run of GRAM words, in order; of fewer words one, of all of them."""
    numbers = {w: int.from_bytes(hashlib.sha256(w.encode()).digest()[:8], "big") for w in {*words}}
    hashes = np.array([numbers[word] for word in words], np.uint64)
    length = min(GRAM, len(hashes))
    found = np.zeros(len(hashes) - length + 1 if length else 0, np.uint64)
    for place in range(length):  # modulo 2**64
        found = found * FACTOR + hashes[place : place + len(found)]
    return found


def shared(one: Keys, other: Keys) -> float:
    """The share of the shorter text's keys that are the other's, too.

    Of a long text only a sample is known: then only the same sample of a short one can be found.
    """
    sampled = _sample(one), _sample(other)
    whole = [len(own) > len(kept) for own, kept in zip((one, other), sampled, strict=True)]
    pair = (one, other) if all(whole) else sampled
    common = np.intersect1d(*pair, assume_unique=True)
    return len(common) / max(1, min(map(len, pair)))


def _sample(keys: Keys) -> Keys:
    """The keys that are kept of a long text: whichever text they are in, the same ones."""
    kept: Keys = keys[(keys >> np.uint64(32)) % np.uint64(ONE_IN) == 0]
    return kept


WORD = re.compile(rf"[^\W_{FAR_EAST}-\U0010ffff]+|[^\W_]")
"""A word as `grams` has it."""
MOST_WORDS = 5_000
"""Of a run. Project Gutenberg's licence has 2,900, Creative Commons' legal code 3,400."""
MOST_CHARACTERS = 16 * MOST_WORDS
"""That are searched for the last MOST_WORDS words of a text."""
GAP_WORDS = 50
"""Within a run, such as the book's title within a licence."""
LEAST_BOOKS = 3
"""That share a run."""
LEAST_LEFT = 0.1
"""The share of a book's words that must be left. A book that has fewer words of its own is itself
what the others share."""
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
    places = {
        BEGINNING: Place(texts, [_first(t) for t in texts]),
        END: Place(texts, [_last(t) for t in texts], backwards=True),
    }
    while works := [n for n, text in enumerate(texts) if _is_the_work(n, text, places.values())]:
        for place in places.values():
            place.keep(works)
    return [_stripped(n, text, places) for n, text in enumerate(texts)]


class Place:
    """The beginnings of all texts, or their ends, and what several of them share there."""

    def __init__(
        self, texts: Sequence[str], spans: Sequence[list[Span]], *, backwards: bool = False
    ) -> None:
        self.spans = spans
        """Where in each text the words are that are searched."""
        self._backwards = backwards
        pairs = zip(texts, spans, strict=True)
        self._grams = [gram_hashes([t[a:b].casefold() for a, b in own]) for t, own in pairs]
        once_each = np.concatenate([np.unique(own) for own in self._grams])
        self._hashes, self._books = np.unique(once_each, return_counts=True)

    def books(self, number: int) -> NDArray[np.intp]:
        """Of each word of a text how many texts have some GRAM words around it; 1: no other one."""
        words, own = len(self.spans[number]), self._grams[number]
        books = self._books[np.searchsorted(self._hashes, own)]
        around = np.ones(words, np.intp)
        for step in range(min(GRAM, words) if len(own) else 0):
            np.maximum(around[step : step + len(own)], books, out=around[step : step + len(own)])
        return around

    def reach(self, number: int) -> int:
        """How many words of a text's run; 0: it has none."""
        books = self.books(number)
        return _reach(books[::-1] if self._backwards else books)

    def keep(self, numbers: Sequence[int]) -> None:
        """Take nothing that is in these texts for boilerplate."""
        works = np.concatenate([self._grams[number] for number in numbers])
        self._books[np.isin(self._hashes, works)] = 1


def _is_the_work(number: int, text: str, places: Iterable[Place]) -> bool:
    """Whether what a text shares is nearly all of it."""
    shared = sum(place.reach(number) for place in places)
    if not shared:
        return False
    total = sum(1 for _ in WORD.finditer(text))
    return total - shared < max(LEAST_LEFT * total, 1)


def _first(text: str) -> list[Span]:
    return [word.span() for word in islice(WORD.finditer(text), MOST_WORDS)]


def _last(text: str) -> list[Span]:
    begin = max(0, len(text) - MOST_CHARACTERS)
    return [word.span() for word in WORD.finditer(text, begin)][-MOST_WORDS:]


def _stripped(number: int, text: str, places: Mapping[str, Place]) -> tuple[str, tuple[Run, ...]]:
    first, last = places[BEGINNING].spans[number], places[END].spans[number]
    lengths = places[BEGINNING].reach(number), places[END].reach(number)
    start = first[lengths[0]][0] if lengths[0] else 0
    stop = last[-lengths[1] - 1][1] if lengths[1] else len(text)
    runs = []
    if length := lengths[0]:
        books = places[BEGINNING].books(number)[:length]
        runs.append(_run(BEGINNING, text, first[:length], books))
    if length := lengths[1]:
        books = places[END].books(number)[-length:]
        runs.append(_run(END, text, last[-length:], books))
    return text[start:stop], tuple(runs)


def _run(place: str, text: str, spans: Sequence[Span], books: NDArray[np.intp]) -> Run:
    begins = text[spans[0][0] : spans[:FIRST_WORDS][-1][1]]
    return Run(place, len(spans), " ".join(begins.split()), int(books.max()))


def _reach(books: NDArray[np.intp]) -> int:
    """How many words from the first on are shared, but for gaps; 0: none, or too many."""
    places = np.flatnonzero(books >= LEAST_BOOKS)
    ends = np.flatnonzero(np.diff(places, prepend=-1) > GAP_WORDS)
    shared = places[: ends[0]] if len(ends) else places
    reach = int(shared[-1]) + 1 if len(shared) else 0
    return reach if reach + GAP_WORDS < MOST_WORDS else 0
