"""The n-grams of a benchmark's items, and where a document contains them.

Words are those of `data.words` (a letter of a script without spaces is a word), in lower case and
without punctuation. A word of only punctuation does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from contamination.data.ngrams import (
    NO_WORD,
    NgramIndex,
    Places,
    WordNumbers,
    Words,
    words_of,
)
from contamination.data.words import WORD, separate_words, word_spans
from contamination.injection.decontamination.rules.base import (
    WHOLE_ITEM,
    Counts,
    Match,
    merge_spans,
)

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def split_words(text: str) -> list[str]:
    """Returns a text's words as written (those of `data.words.word_spans`)."""
    return text.split() if text.isascii() else WORD.findall(text)


class NumberedText:
    """A text with its words as numbers.

    Attributes:
        text: the text.
        words: the numbers of its words, shape (words,).
    """

    def __init__(self, text: str, numbers: WordNumbers) -> None:
        all_numbers = numbers.of_words(split_words(text))
        self.text = text
        self._written_places = np.flatnonzero(all_numbers != NO_WORD)
        self.words: Words = all_numbers[self._written_places]

    @cached_property
    def _spans(self) -> Sequence[tuple[int, int]]:
        return list(word_spans(self.text))

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Returns the characters of the words `first` to `stop` (exclusive)."""
        first_written, last_written = self._written_places[[first, stop - 1]].tolist()
        return self._spans[first_written][0], self._spans[last_written][1]


class SharedNgrams(NamedTuple):
    """The n-grams that a document shares with items: one row per place, item and item's place."""

    place: Places
    """The n-gram's first word in the document."""
    gram: Places
    """The n-gram's row in `ItemNgrams.index.grams`."""
    item: Places
    """The item."""
    item_place: Places
    """The n-gram's first word in the joined words of all items."""


class ItemNgrams:
    """The n-grams of items.

    Attributes:
        n: the number of words of an n-gram.
        numbers: the numbers of the items' words.
        index: the distinct n-grams of all items.
        item_words: the number of words of each item, shape (items,).
        distinct: the number of distinct n-grams of each item that are searched for, shape (items,).
        unseen: for each item, why it can't be found; "" if it can.
        ignored: see `ItemSearch.ignored_ngrams`.
    """

    def __init__(
        self,
        items: Sequence[str],
        n: int,
        whole_item_words: int | None,
        *,
        by_line: bool = False,
        max_documents: int | None = None,
        document_counts: Counts | None = None,
    ) -> None:
        """Index the items.

        Args:
            items: the items' texts.
            n: the number of words of an n-gram.
            whole_item_words: items without an n-gram, but with at least this many words, are
                searched for as a whole; None: they are not.
            by_line: whether an n-gram may not extend over several lines of an item.
            max_documents: n-grams in more documents are ignored; None: none are.
            document_counts: the number of documents with each n-gram, shape (n-grams,).
        """
        self.n = n
        vocabulary = dict.fromkeys(w for item in items for w in words_of(separate_words(item)))
        self.numbers = WordNumbers({word: number for number, word in enumerate(vocabulary, 1)})
        item_words = [NumberedText(item, self.numbers).words for item in items]
        self.item_words = np.array([len(words) for words in item_words], np.int64)
        lines = [item.split("\n") if by_line else [item] for item in items]
        pieces = [
            (i, NumberedText(line, self.numbers).words) for i, ls in enumerate(lines) for line in ls
        ]
        self.index = NgramIndex([words for _, words in pieces], n, places=True)
        self._item_of_place = np.repeat(
            np.array([i for i, _ in pieces], np.int64), [len(words) for _, words in pieces]
        )
        self._is_ignored = np.zeros(len(self.index.grams), bool)
        self.ignored: tuple[int, int] | None = None
        has_ngram = self._count_distinct() > 0
        if max_documents is not None and document_counts is not None:
            self._is_ignored = document_counts > max_documents
            self.ignored = int(self._is_ignored.sum()), len(self._is_ignored)
        self.distinct = self._count_distinct()
        shortest = np.inf if whole_item_words is None else whole_item_words
        is_whole = ~has_ngram & (self.item_words >= shortest)
        self._whole_items = _index_by_length(item_words, is_whole)
        self.unseen = ["" for _ in items]
        for i in np.flatnonzero(~is_whole & (self.distinct == 0)).tolist():
            self.unseen[i] = (
                f"all its {n}-grams are in more than {max_documents} documents"
                if has_ngram[i]
                else f"it has no {n}-gram{' within a line' * by_line}"
            )

    def _count_distinct(self) -> Places:
        grams, owners = self.index.all_owners(np.flatnonzero(~self._is_ignored))
        pairs = np.unique(np.stack([grams, self._item_of_place[owners]]), axis=1)
        return np.bincount(pairs[1], minlength=len(self.item_words))

    def numbered(self, document: str) -> NumberedText:
        """Returns a document with its words as numbers."""
        return NumberedText(document, self.numbers)

    def places(self, words: Words) -> tuple[Places, Places]:
        """Returns the places and the rows of the n-grams in a document that are not ignored."""
        places, grams = self.index.places(words)
        is_used = ~self._is_ignored[grams]
        return places[is_used], grams[is_used]

    def shared(self, words: Words) -> SharedNgrams:
        """Returns the n-grams that a document's words share with items."""
        places, grams = self.places(words)
        rows, owners = self.index.all_owners(grams)
        return SharedNgrams(places[rows], grams[rows], self._item_of_place[owners], owners)

    def whole_item_matches(self, document: NumberedText) -> Iterator[Match]:
        """Yields a match for each short item that the document contains as a whole."""
        spans_by_item: dict[int, list[tuple[int, int]]] = {}
        for index, items in self._whole_items:
            places, grams = index.places(document.words)
            rows, owners = index.all_owners(grams)
            for place, owner in zip(places[rows].tolist(), owners.tolist(), strict=True):
                span = document.span(place, place + index.n)
                spans_by_item.setdefault(items[owner], []).append(span)
        for item, spans in spans_by_item.items():
            yield Match(item, WHOLE_ITEM, 1.0, merge_spans(spans))


def _index_by_length(
    item_words: Sequence[Words], is_whole: Flags
) -> list[tuple[NgramIndex, list[int]]]:
    """Returns an index of the items of each length, with the items' numbers."""
    items_by_length: dict[int, list[int]] = {}
    for item in np.flatnonzero(is_whole).tolist():
        items_by_length.setdefault(len(item_words[item]), []).append(item)
    return [
        (NgramIndex([item_words[item] for item in items], length), items)
        for length, items in sorted(items_by_length.items())
        if length
    ]


def runs_of_places(places: Places, max_step: int) -> list[tuple[int, int]]:
    """Returns the first and the last place of each run with steps of at most `max_step`.

    Args:
        places: distinct places in ascending order.
        max_step: the largest distance of neighbours in a run.
    """
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > max_step)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(places) - 1)
    return list(zip(places[firsts].tolist(), places[lasts].tolist(), strict=True))
