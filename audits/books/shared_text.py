"""Finds text that books share: duplicates of one book, by n-gram keys, and boilerplate.

Boilerplate, such as a licence, is text at the beginning or the end of several books that belongs to
none of them. It is recognised from the books alone: a run of words that begins with the first word
(or ends with the last) and that MIN_BOOKS books or more share. Text that only two books share may
be the work itself. A run is not removed if it is longer than any licence, or if it is nearly all of
one of the books that have it, because two files may then be the same book.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

GRAM_WORDS = 13
"""The length of n-grams in words. Two books do not share so long a run by chance (Brown et al.
2020, appendix C)."""
SAMPLING_INTERVAL = 4
"""Of the n-grams of a long text, about one in this many is compared."""
FIRST_CJK = "\u2e80"
"""The first character of the Unicode blocks of scripts that are written without spaces."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""The base of the polynomial hash of an n-gram."""
Keys = NDArray[np.uint64]


def _separate_character(character: str) -> str:
    """Returns the character, between spaces if it is a word of its own; a space for punctuation."""
    if not character.isalnum():
        return " "
    return character if character < FIRST_CJK else f" {character} "


def gram_keys(text: str) -> Keys:
    """Returns the sorted unique hashes of the text's n-grams of GRAM_WORDS words.

    Of a long text, only a sample is returned, about one in SAMPLING_INTERVAL. Case and punctuation
    are ignored. A text with fewer words has a single key. A Chinese or Japanese character is a
    word, because these scripts are written without spaces.
    """
    words = "".join(map(_separate_character, text.casefold())).split()
    keys: Keys = np.unique(gram_hashes(words))
    return _sample_keys(keys) if len(words) > 40 * GRAM_WORDS else keys


def gram_hashes(words: Sequence[str]) -> Keys:
    """Returns the hash of each n-gram, in order; one of all words if there are too few."""
    number_by_word = {
        word: int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") for word in {*words}
    }
    word_numbers = np.array([number_by_word[word] for word in words], np.uint64)
    length = min(GRAM_WORDS, len(word_numbers))
    hashes = np.zeros(len(word_numbers) - length + 1 if length else 0, np.uint64)
    for offset in range(length):  # a polynomial modulo 2**64
        hashes = hashes * HASH_FACTOR + word_numbers[offset : offset + len(hashes)]
    return hashes


def shared_fraction(keys: Keys, other_keys: Keys) -> float:
    """Returns the fraction of the shorter text's keys that the other text has too.

    For a long text only a sample of the keys is known. The same sample of the other text is then
    compared.
    """
    samples = _sample_keys(keys), _sample_keys(other_keys)
    complete = len(keys) > len(samples[0]) and len(other_keys) > len(samples[1])
    compared = (keys, other_keys) if complete else samples
    common = np.intersect1d(*compared, assume_unique=True)
    return len(common) / max(1, min(map(len, compared)))


def _sample_keys(keys: Keys) -> Keys:
    """Returns the keys of a long text that are compared; the choice depends on the keys alone."""
    sample: Keys = keys[(keys >> np.uint64(32)) % np.uint64(SAMPLING_INTERVAL) == 0]
    return sample


WORD = re.compile(rf"[^\W_{FIRST_CJK}-\U0010ffff]+|[^\W_]")
"""A word as `gram_keys` counts them."""
MAX_WORDS = 5_000
"""The maximum length of boilerplate. Project Gutenberg's licence has 2,900 words, the legal code of
Creative Commons 3,400."""
MAX_CHARACTERS = 16 * MAX_WORDS
"""The number of characters in which the last MAX_WORDS words of a text are searched."""
GAP_WORDS = 50
"""The maximum gap within a run, such as the book's title within a licence."""
MIN_BOOKS = 3
"""The minimum number of books that share a run."""
MIN_OWN_WORDS = 0.1
"""The minimum share of a book's words that are not boilerplate. A book with a smaller share is
itself the text that the others share."""
POSITIONS = BEGINNING, END = "beginning", "end"
FIRST_WORDS = 8
"""The number of words of a run that a description of it quotes."""
Span = tuple[int, int]


@dataclass(frozen=True)
class BoilerplateRun:
    """Words that were removed from a book.

    Attributes:
        position: BEGINNING or END.
        words: the number of words.
        first_words: the first few of them.
    """

    position: str
    words: int
    first_words: str


def strip_boilerplate(
    texts: Sequence[str],
) -> list[tuple[str, tuple[BoilerplateRun, ...]]]:
    """Returns each text without the boilerplate at its beginning and end, and the removed runs."""
    edges = {
        BEGINNING: SharedEdges(texts, [_first_word_spans(text) for text in texts]),
        END: SharedEdges(texts, [_last_word_spans(text) for text in texts], backwards=True),
    }
    while mostly_shared := [
        i for i, text in enumerate(texts) if _is_mostly_shared(i, text, edges.values())
    ]:
        for shared_edges in edges.values():
            shared_edges.exempt_texts(mostly_shared)
    return [_strip_text(index, text, edges) for index, text in enumerate(texts)]


class SharedEdges:
    """The words at the beginnings (or the ends) of all texts, and how many texts share them.

    Args:
        texts: all texts.
        spans: the spans of the words at the beginning, or at the end, of each text.
        backwards: whether these are the ends.
    """

    def __init__(
        self, texts: Sequence[str], spans: Sequence[list[Span]], *, backwards: bool = False
    ) -> None:
        self.spans = spans
        self._backwards = backwards
        self._hashes_by_text = [
            gram_hashes([text[start:end].casefold() for start, end in text_spans])
            for text, text_spans in zip(texts, spans, strict=True)
        ]
        unique_per_text = [np.unique(hashes) for hashes in self._hashes_by_text]
        self._hashes, self._book_counts = np.unique(
            np.concatenate(unique_per_text), return_counts=True
        )

    def word_book_counts(self, text_index: int) -> NDArray[np.intp]:
        """Returns for each word of a text how many texts have an n-gram with it; at least 1."""
        words, hashes = len(self.spans[text_index]), self._hashes_by_text[text_index]
        counts = self._book_counts[np.searchsorted(self._hashes, hashes)]
        word_counts = np.ones(words, np.intp)
        for offset in range(min(GRAM_WORDS, words)):
            covered = word_counts[offset : offset + len(hashes)]
            np.maximum(covered, counts, out=covered)
        return word_counts

    def shared_word_count(self, text_index: int) -> int:
        """Returns the length in words of a text's run of shared words; 0 if it has none."""
        counts = self.word_book_counts(text_index)
        return _shared_edge_word_count(counts[::-1] if self._backwards else counts)

    def exempt_texts(self, text_indices: Sequence[int]) -> None:
        """Stops counting the words of these texts as boilerplate, in any text."""
        exempt_hashes = np.concatenate([self._hashes_by_text[index] for index in text_indices])
        self._book_counts[np.isin(self._hashes, exempt_hashes)] = 1


def _is_mostly_shared(index: int, text: str, edges: Iterable[SharedEdges]) -> bool:
    shared_words = sum(shared_edges.shared_word_count(index) for shared_edges in edges)
    if not shared_words:
        return False
    all_words = sum(1 for _ in WORD.finditer(text))
    return all_words - shared_words < max(MIN_OWN_WORDS * all_words, 1)


def _first_word_spans(text: str) -> list[Span]:
    return [word.span() for word in islice(WORD.finditer(text), MAX_WORDS)]


def _last_word_spans(text: str) -> list[Span]:
    start = max(0, len(text) - MAX_CHARACTERS)
    return [word.span() for word in WORD.finditer(text, start)][-MAX_WORDS:]


def _strip_text(
    index: int, text: str, edges: Mapping[str, SharedEdges]
) -> tuple[str, tuple[BoilerplateRun, ...]]:
    first_spans, last_spans = edges[BEGINNING].spans[index], edges[END].spans[index]
    start, stop, runs = 0, len(text), []
    if length := edges[BEGINNING].shared_word_count(index):
        start = first_spans[length][0]
        runs.append(_make_boilerplate_run(BEGINNING, text, first_spans[:length]))
    if length := edges[END].shared_word_count(index):
        stop = last_spans[-length - 1][1]
        runs.append(_make_boilerplate_run(END, text, last_spans[-length:]))
    return text[start:stop], tuple(runs)


def _make_boilerplate_run(position: str, text: str, spans: Sequence[Span]) -> BoilerplateRun:
    first_words = text[spans[0][0] : spans[:FIRST_WORDS][-1][1]]
    return BoilerplateRun(position, len(spans), " ".join(first_words.split()))


def _shared_edge_word_count(book_counts: NDArray[np.intp]) -> int:
    """Returns how many of the first words are shared, including gaps; 0 if none or too many are."""
    shared = np.flatnonzero(book_counts >= MIN_BOOKS)
    gaps = np.flatnonzero(np.diff(shared, prepend=-1) > GAP_WORDS)
    before_gap = shared[: gaps[0]] if len(gaps) else shared
    length = int(before_gap[-1]) + 1 if len(before_gap) else 0
    return length if length + GAP_WORDS < MAX_WORDS else 0
