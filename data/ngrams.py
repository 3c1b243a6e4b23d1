"""Words as numbers, and an index of the n-grams of some texts that finds them in any other text.

Memory holds the indexed texts alone. Words become numbers by a table of their words, and n-grams
become hashes of those numbers, all of a document's at once in NumPy; a library of byte hashes
(xxhash) would take a Python call an n-gram. A hash only proposes: the words are then compared.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from contamination.data.text import (
    ZERO_WIDTH_SPACE,
    divided_at_zero_width_spaces,
    invisible,
    normalised,
)

Words = np.ndarray[Any, np.dtype[np.int32]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

NO_WORD, FOREIGN = -1, 0  # punctuation alone; a word that the indexed texts do not have
FILTER_BITS = 22
REMEMBERED_WORDS = 500_000
_FACTOR = 0xD1342543DE82EF95  # odd


def words_of(text: str) -> list[str]:
    """The text's words: lowercased, without punctuation, split at whitespace.

    A letter and its mark are one, however they are written (Unicode's NFC).
    """
    stripped = (_bare(word) for word in text.split())
    return [word for word in stripped if word]


class Index:
    """The distinct n-grams of one length of some texts, findable by hash.

    Attributes:
        n: words of an n-gram.
        grams: the n-grams as word numbers, shape (n-grams, n), sorted by hash.
        sizes: each text's number of distinct n-grams (1 where it has none).
    """

    def __init__(
        self, texts: list[Words], n: int, *, exact: bool = False, places: bool = False
    ) -> None:
        """Index the n-grams of the texts of n words or more (`exact`: of n words).

        A negative number is no word: it breaks its text, and no n-gram over it is indexed.
        An n-gram's owners are the numbers of the texts that have it; with `places`, the places in
        all texts' words joined where it stands.
        """
        self.n = n
        windows = [
            np.lib.stride_tricks.sliding_window_view(e, n)
            if len(e) == n or (len(e) > n and not exact)
            else np.empty((0, n), np.int32)
            for e in texts
        ]
        counts = [len(w) for w in windows]
        owner = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
        if places:
            starts = np.cumsum([0, *map(len, texts)])[:-1]
            first = np.cumsum([0, *counts])[:-1]
            owner = np.arange(len(owner), dtype=np.int32) + (starts - first)[owner].astype(np.int32)
        rows = np.column_stack([np.concatenate([*windows, np.empty((0, n), np.int32)]), owner])
        rows = rows[(rows >= 0).all(axis=1)]
        rows = np.unique(rows, axis=0)  # one row for each n-gram and owner
        self.sizes = np.maximum(np.bincount(rows[:, n], minlength=len(texts)), 1)
        self.grams, group = np.unique(rows[:, :n], axis=0, return_inverse=True)
        hashes = hashes_of(self.grams.ravel(), n)[::n]
        order = np.argsort(hashes, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.grams, self._hashes = self.grams[order], hashes[order]
        place = rank[group.ravel()]
        by_place = np.argsort(place, kind="stable")
        self._owners = rows[by_place, n].astype(np.int64)
        self._starts = np.searchsorted(place[by_place], np.arange(len(order) + 1))
        # A table of first bits excludes most of a document's n-grams before the binary search. It
        # has 64 places per n-gram, up to 2^22: a small one stays in a processor's cache.
        bits = min(FILTER_BITS, max(10, (64 * len(order)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, bool)
        self._filter[self._hashes >> self._shift] = True

    def places(self, words: Words) -> tuple[Places, Places]:
        """Where in the words an indexed n-gram starts, in order, and each one's row in `grams`."""
        if len(words) < self.n or not len(self.grams):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        hashes = hashes_of(words, self.n)
        at = np.flatnonzero(self._filter[hashes >> self._shift])
        rows = np.minimum(np.searchsorted(self._hashes, hashes[at]), len(self.grams) - 1)
        same = (words[at[:, None] + np.arange(self.n)] == self.grams[rows]).all(axis=1)
        return at[same], rows[same]

    def find(self, words: Words) -> Places:
        """Rows of `grams` that occur in the words, in the order in which they first occur."""
        rows, first = np.unique(self.places(words)[1], return_index=True)
        found: Places = rows[np.argsort(first)]
        return found

    def owners(self, gram: int) -> Places:
        """An n-gram's owners."""
        owners: Places = self._owners[self._starts[gram] : self._starts[gram + 1]]
        return owners

    def all_owners(self, grams: Places) -> tuple[Places, Places]:
        """Each n-gram's owners one after another, and before them which of `grams` each is of."""
        counts = self._starts[grams + 1] - self._starts[grams]
        of = np.repeat(np.arange(len(grams)), counts)
        before = np.cumsum(counts) - counts
        return of, self._owners[np.arange(len(of)) + (self._starts[grams] - before)[of]]


class Numbers(dict[str, int]):
    """Written word → its number; filled as words are met, so that each is normalised once."""

    def __init__(self, known: Mapping[str, int]) -> None:
        """Number by the table `known`, bare word → number from 1."""
        super().__init__()
        self.known = known

    def __missing__(self, written: str) -> int:
        """The number of a word that was not met yet."""
        bare = _bare(written)
        self[written] = number = self.known.get(bare, FOREIGN) if bare else NO_WORD
        return number

    def of(self, text: str) -> Words:
        """The text's words as numbers, without what is punctuation alone."""
        if len(self) > REMEMBERED_WORDS:
            self.clear()
        numbers: Words = np.fromiter(map(self.__getitem__, text.split()), np.int32)
        numbers = numbers[numbers != NO_WORD]
        return numbers


def hashes_of(words: Words, n: int) -> Hashes:
    """A hash of each n words in a row, shape (words - n + 1,): a polynomial modulo 2^64.

    Hashes of 2k words are made of two of k words, so the work grows with log n.
    """
    count = max(0, len(words) - n + 1)
    numbers = (words.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    total, size = numbers, 1
    for bit in f"{n:b}"[1:]:
        total = total[: max(0, len(total) - size)] * _power(size) + total[size:]
        size *= 2
        if bit == "1":
            total = total[: max(0, len(total) - 1)] * _power(1) + numbers[size:]
            size += 1
    mixed: Hashes = total[:count] ^ (total[:count] >> np.uint64(31))
    return mixed


def rarest_windows(texts: Sequence[Words], n: int) -> list[int]:
    """Where in each text of n numbers or more the n in a row start that the fewest texts share.

    Of several that are as rare, the one nearest to the middle. So what many texts have in common
    proposes none of them. Rarity is counted by hash, and is not exact.
    """
    middles = [(len(text) - n) // 2 for text in texts]
    if len(texts) < 2:
        return middles
    counts = np.zeros(1 << FILTER_BITS, np.int64)
    slots = [hashes_of(text, n) >> np.uint64(64 - FILTER_BITS) for text in texts]
    for places in slots:
        counts[np.unique(places)] += 1
    starts = []
    for places, middle in zip(slots, middles, strict=True):
        distance = np.abs(np.arange(len(places)) - middle)
        starts.append(int(np.lexsort((distance, counts[places]))[0]))
    return starts


@cache
def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(_FACTOR, exponent, 1 << 64))


def _bare(word: str) -> str:
    bare = word.lower().translate(_punctuation())
    return bare if bare.isascii() else unicodedata.normalize("NFC", bare)


@cache
def _punctuation() -> dict[int, None]:
    """Unicode's punctuation, ASCII's, which counts symbols such as $ and + too, and `invisible`."""
    characters = [*map(chr, range(sys.maxunicode + 1))]
    marks = [c for c in characters if unicodedata.category(c)[0] == "P"]
    marks += filter(invisible().match, characters)
    return dict.fromkeys(map(ord, [*marks, *"$+<=>^`|~"]))


PROBE_CHARACTERS = 16
AT_ONCE = 1 << 16
"""Characters that are hashed at once: more would not fit a processor's cache."""
BETWEEN = "\n"  # no normalised text holds one


class Verbatim:
    """Counts texts in other text; all are compared as `data.text.normalised` writes them.

    A zero-width space in the searched text may stand within a word or in place of a blank. A text
    without a visible character is never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in dict.fromkeys(map(normalised, texts)) if text]
        self._starts: dict[int, int] = {}
        """Where in each text, by its number, its probe starts."""
        by_width: dict[int, list[int]] = {}
        for number, text in enumerate(self._texts):
            width = min(PROBE_CHARACTERS, 1 << (len(text).bit_length() - 1))
            by_width.setdefault(width, []).append(number)
        self._probes = [self._index(width, numbers) for width, numbers in by_width.items()]

    def __reduce__(self) -> tuple[type[Verbatim], tuple[list[str]]]:
        return Verbatim, (self._texts,)

    def count(self, text: str) -> Counter[str]:
        """How often each of the texts (normalised) occurs in `text`; occurrences may overlap."""
        (counts,) = self.count_each([text])
        return counts

    def count_each(self, texts: Sequence[str]) -> list[Counter[str]]:
        """`count` of several texts at once, none of which goes on in the next."""
        counts = self._count_normalised(texts)
        for number, text in enumerate(texts):
            if ZERO_WIDTH_SPACE in text:
                counts[number] += self._count_across_zero_width_spaces(text)
        return counts

    def _count_across_zero_width_spaces(self, text: str) -> Counter[str]:
        """Occurrences in which at least one zero-width space stands in place of a blank."""
        parts = divided_at_zero_width_spaces(text)
        (with_blanks,) = self._count_normalised([" ".join(parts)])
        return with_blanks - sum(self._count_normalised(parts), Counter[str]())

    def _count_normalised(self, texts: Sequence[str]) -> list[Counter[str]]:
        joined = [normalised(text) for text in texts]
        starts = np.cumsum([0, *(len(text) + len(BETWEEN) for text in joined)])
        counts = [Counter[str]() for _ in texts]
        for place, found in self._places(BETWEEN.join(joined)):
            counts[int(np.searchsorted(starts, place, side="right")) - 1][found] += 1
        return counts

    def _index(self, width: int, numbers: Sequence[int]) -> tuple[Index, Sequence[int]]:
        """The probes of the texts of these numbers, `width` characters each, and the numbers."""
        codes = [_characters(self._texts[number]) for number in numbers]
        starts = rarest_windows(codes, width)
        self._starts |= zip(numbers, starts, strict=True)
        windows = [text[s : s + width] for text, s in zip(codes, starts, strict=True)]
        return Index(windows, width), numbers

    def _places(self, text: str) -> Iterator[tuple[int, str]]:
        """Where in a normalised text one of the texts starts, and which."""
        codes = _characters(text)
        for index, numbers in self._probes:
            for place, owner in _proposed(index, codes):
                number = numbers[owner]
                start = place - self._starts[number]
                if start >= 0 and text.startswith(self._texts[number], start):
                    yield start, self._texts[number]


def _proposed(index: Index, codes: Words) -> Iterator[tuple[int, int]]:
    """Where an indexed probe stands, and each of its owners."""
    for first in range(0, len(codes), AT_ONCE):
        places, grams = index.places(codes[first : first + AT_ONCE + index.n - 1])
        for place, gram in zip(places.tolist(), grams.tolist(), strict=True):
            yield from ((first + place, int(owner)) for owner in index.owners(gram))


def overlapping(part: str, whole: str) -> int:
    """How often one text occurs in another; occurrences may overlap."""
    count, place = 0, whole.find(part) if part else -1
    while place >= 0:
        count, place = count + 1, whole.find(part, place + 1)
    return count


def _characters(text: str) -> Words:
    """The text's code points, shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)
