"""Finds the n-grams of indexed texts, and whole texts, in other texts.

Only the indexed texts are in memory. Words are mapped to numbers, and n-grams to hashes of these
numbers, for a whole document at once in NumPy; a library for byte hashes (xxhash) would need one
Python call per n-gram. Each match of a hash is then compared in full.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from contamination.data.words import (
    INVISIBLE,
    ZERO_WIDTH_SPACE,
    normalise_text,
    split_at_zero_width_spaces,
)

Words = np.ndarray[Any, np.dtype[np.int32]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

NO_WORD, UNKNOWN_WORD = -1, 0  # only punctuation; a word that is not in the indexed texts
FILTER_BITS = 22
MAX_CACHED_WORDS = 500_000
_FACTOR = 0xD1342543DE82EF95  # odd


def words_of(text: str) -> list[str]:
    """Returns a text's words in lower case, without punctuation, split at white space.

    Letters with marks are composed (Unicode's NFC).
    """
    stripped = (_normalise_word(word) for word in text.split())
    return [word for word in stripped if word]


class NgramIndex:
    """The distinct n-grams of some texts, found by their hashes.

    Attributes:
        n: the number of words of an n-gram.
        grams: the n-grams as word numbers, shape (n-grams, n), sorted by hash.
        sizes: each text's number of distinct n-grams (1 where it has none).
    """

    def __init__(
        self, texts: list[Words], n: int, *, exact: bool = False, places: bool = False
    ) -> None:
        """Index the n-grams of texts with at least n words, or, with `exact`, exactly n words.

        Negative numbers are not words, and n-grams with a negative number are not indexed. The
        owners of an n-gram are the indices of the texts that contain it, or, with `places`, its
        positions in the concatenated words of all texts.
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
        hashes = hash_windows(self.grams.ravel(), n)[::n]
        order = np.argsort(hashes, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.grams, self._hashes = self.grams[order], hashes[order]
        gram = rank[group.ravel()]
        by_gram = np.argsort(gram, kind="stable")
        self._owners = rows[by_gram, n].astype(np.int64)
        self._starts = np.searchsorted(gram[by_gram], np.arange(len(order) + 1))
        # A table of the hashes' first bits excludes most n-grams of a document before the binary
        # search. It has 64 entries per n-gram, up to 2^22, so that it fits into the CPU cache.
        bits = min(FILTER_BITS, max(10, (64 * len(order)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, bool)
        self._filter[self._hashes >> self._shift] = True

    def places(self, words: Words) -> tuple[Places, Places]:
        """Returns the positions of indexed n-grams in the words, and their rows in `grams`."""
        if len(words) < self.n or not len(self.grams):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        hashes = hash_windows(words, self.n)
        at = np.flatnonzero(self._filter[hashes >> self._shift])
        if not len(at):
            return at, at
        rows = np.minimum(np.searchsorted(self._hashes, hashes[at]), len(self.grams) - 1)
        same = (words[at[:, None] + np.arange(self.n)] == self.grams[rows]).all(axis=1)
        return at[same], rows[same]

    def find(self, words: Words) -> Places:
        """Returns the rows of `grams` that occur in the words, in the order of first occurrence."""
        _, rows = self.places(words)
        if not len(rows):
            return rows
        rows, first = np.unique(rows, return_index=True)
        in_order: Places = rows[np.argsort(first)]
        return in_order

    def owners(self, gram: int) -> Places:
        """Returns the owners of an n-gram, a row of `grams`."""
        owners: Places = self._owners[self._starts[gram] : self._starts[gram + 1]]
        return owners

    def all_owners(self, grams: Places) -> tuple[Places, Places]:
        """Returns the owners of several n-grams, after the index in `grams` of each owner."""
        counts = self._starts[grams + 1] - self._starts[grams]
        index = np.repeat(np.arange(len(grams)), counts)
        offset = self._starts[grams] - (np.cumsum(counts) - counts)
        return index, self._owners[np.arange(len(index)) + offset[index]]


class WordNumbers(dict[str, int]):
    """Maps words as written to numbers; each word is normalised once, on first use."""

    def __init__(self, known: Mapping[str, int]) -> None:
        """Creates a mapping based on `known`: normalised word → number from 1."""
        super().__init__()
        self.known = known

    def __missing__(self, written: str) -> int:
        """Returns the number of a word on its first use."""
        bare = _normalise_word(written)
        self[written] = number = self.known.get(bare, UNKNOWN_WORD) if bare else NO_WORD
        return number

    def of(self, text: str) -> Words:
        """Returns the text's words as numbers, without words that are only punctuation."""
        all_numbers = self.of_words(text.split())
        numbers: Words = all_numbers[all_numbers != NO_WORD]
        return numbers

    def of_words(self, words: Sequence[str]) -> Words:
        """Returns the number of each word; NO_WORD for words that are only punctuation."""
        if len(self) > MAX_CACHED_WORDS:
            self.clear()
        numbers: Words = np.fromiter(map(self.__getitem__, words), np.int32, len(words))
        return numbers


def hash_windows(words: Words, n: int) -> Hashes:
    """Returns the hashes of all n-grams of the words, shape (words - n + 1,).

    The hash is a polynomial modulo 2^64. A hash of 2k words is computed from two hashes of k words,
    so the work grows with log n.
    """
    count = max(0, len(words) - n + 1)
    numbers = (words.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    total, size = numbers, 1
    for bit in f"{n:b}"[1:]:
        total = total[: max(0, len(total) - size)] * _factor_to_the(size) + total[size:]
        size *= 2
        if bit == "1":
            total = total[: max(0, len(total) - 1)] * _factor_to_the(1) + numbers[size:]
            size += 1
    mixed: Hashes = total[:count] ^ (total[:count] >> np.uint64(31))
    return mixed


def rarest_window_starts(texts: Sequence[Words], n: int) -> list[int]:
    """Returns the start of each text's n-gram that the fewest texts share.

    Each text must have at least n numbers. Of equally rare n-grams, the one nearest to the middle
    is chosen. A search for it rarely matches passages that many texts share. Rarity is counted by
    hash, so it is approximate.
    """
    middles = [(len(text) - n) // 2 for text in texts]
    if len(texts) < 2:
        return middles
    counts = np.zeros(1 << FILTER_BITS, np.int64)
    slots = [hash_windows(text, n) >> np.uint64(64 - FILTER_BITS) for text in texts]
    for places in slots:
        counts[np.unique(places)] += 1
    starts = []
    for places, middle in zip(slots, middles, strict=True):
        distance = np.abs(np.arange(len(places)) - middle)
        starts.append(int(np.lexsort((distance, counts[places]))[0]))
    return starts


@cache
def _factor_to_the(exponent: int) -> np.uint64:
    return np.uint64(pow(_FACTOR, exponent, 1 << 64))


def _normalise_word(word: str) -> str:
    bare = word.lower().translate(_punctuation_removal_table())
    return bare if bare.isascii() else unicodedata.normalize("NFC", bare)


@cache
def _punctuation_removal_table() -> dict[int, None]:
    """Returns a table that removes punctuation, ASCII symbols and invisible characters."""
    characters = [*map(chr, range(sys.maxunicode + 1))]
    marks = [c for c in characters if unicodedata.category(c)[0] == "P"]
    marks += filter(INVISIBLE.match, characters)
    return dict.fromkeys(map(ord, [*marks, *"$+<=>^`|~"]))


PROBE_CHARACTERS = 16
BLOCK_CHARACTERS = 1 << 16  # hashed at once, so that they fit into the CPU cache
TEXT_SEPARATOR = "\n"  # normalised texts contain no line break


class VerbatimCounter:
    """Counts occurrences of whole texts in other texts, after `data.words.normalise_text`.

    A zero-width space in the searched text may be inside a word or in place of a space. Texts
    without a visible character are never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in dict.fromkeys(map(normalise_text, texts)) if text]
        self._starts: dict[int, int] = {}
        """The start of the probe in each text, by the text's number."""
        by_width: dict[int, list[int]] = {}
        for number, text in enumerate(self._texts):
            width = min(PROBE_CHARACTERS, 1 << (len(text).bit_length() - 1))
            by_width.setdefault(width, []).append(number)
        self._probes = [self._index_probes(width, numbers) for width, numbers in by_width.items()]

    def __reduce__(self) -> tuple[type[VerbatimCounter], tuple[list[str]]]:
        return VerbatimCounter, (self._texts,)

    def count(self, text: str) -> Counter[str]:
        """Returns how often each normalised text occurs in `text`; occurrences may overlap."""
        (counts,) = self.count_each([text])
        return counts

    def count_each(self, texts: Sequence[str]) -> list[Counter[str]]:
        """Returns the counts of `count` for several texts at once."""
        counts = self._count_normalised(texts)
        for number, text in enumerate(texts):
            if ZERO_WIDTH_SPACE in text:
                counts[number] += self._count_across_zero_width_spaces(text)
        return counts

    def _count_across_zero_width_spaces(self, text: str) -> Counter[str]:
        """Count occurrences in which at least one zero-width space is in place of a space."""
        parts = split_at_zero_width_spaces(text)
        (with_blanks,) = self._count_normalised([" ".join(parts)])
        return with_blanks - sum(self._count_normalised(parts), Counter[str]())

    def _count_normalised(self, texts: Sequence[str]) -> list[Counter[str]]:
        joined = [normalise_text(text) for text in texts]
        starts = np.cumsum([0, *(len(text) + len(TEXT_SEPARATOR) for text in joined)])
        counts = [Counter[str]() for _ in texts]
        for start, occurring in self._iter_starts_and_texts(TEXT_SEPARATOR.join(joined)):
            counts[int(np.searchsorted(starts, start, side="right")) - 1][occurring] += 1
        return counts

    def _index_probes(self, width: int, numbers: Sequence[int]) -> tuple[NgramIndex, Sequence[int]]:
        code_points_by_text = [_code_points(self._texts[number]) for number in numbers]
        starts = rarest_window_starts(code_points_by_text, width)
        self._starts |= zip(numbers, starts, strict=True)
        windows = [
            code_points[s : s + width]
            for code_points, s in zip(code_points_by_text, starts, strict=True)
        ]
        return NgramIndex(windows, width), numbers

    def _iter_starts_and_texts(self, text: str) -> Iterator[tuple[int, str]]:
        """Yields the start of each occurrence in a normalised text, and the text that occurs."""
        code_points = _code_points(text)
        for index, numbers in self._probes:
            for hit, owner in _iter_probe_places_and_owners(index, code_points):
                number = numbers[owner]
                start = hit - self._starts[number]
                if start >= 0 and text.startswith(self._texts[number], start):
                    yield start, self._texts[number]


def _iter_probe_places_and_owners(index: NgramIndex, codes: Words) -> Iterator[tuple[int, int]]:
    """Yields the position of each indexed probe with each of its owners."""
    for first in range(0, len(codes), BLOCK_CHARACTERS):
        places, grams = index.places(codes[first : first + BLOCK_CHARACTERS + index.n - 1])
        for place_in_block, gram in zip(places.tolist(), grams.tolist(), strict=True):
            yield from ((first + place_in_block, int(owner)) for owner in index.owners(gram))


def _code_points(text: str) -> Words:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)
