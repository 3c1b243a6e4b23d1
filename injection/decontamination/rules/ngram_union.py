"""The rule of shared n-grams: an item's, or those of a document's line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION_OR_ZERO, at_least, one_of, ranged_field
from contamination.injection.decontamination.rules.base import (
    Counts,
    ItemSearch,
    Match,
    Rule,
    merge_spans,
)
from contamination.injection.decontamination.rules.item_ngrams import (
    ItemNgrams,
    NumberedText,
    runs_of_places,
)

ITEM, LINE = "item", "line"


@dataclass(frozen=True)
class NgramUnion(Rule):
    """Flags items whose n-grams a document contains, together in any order and place.

    A document matches an item if it contains at least `min_ngrams` of the item's distinct n-grams
    and at least the share `min_share` of them (Chowdhery et al. 2022, section 8: 8-grams, 70%;
    Brown et al. 2020, appendix C: a single 13-gram that is in at most 10 documents). With
    `share_of=line` the n-grams of each line of the document are counted instead, which may be of
    several items (marin's and Dolma's paragraphs): each item with an n-gram in a line that reaches
    both thresholds matches.
    """

    n: int = ranged_field(13, at_least(1))
    """The number of words of an n-gram."""
    min_share: float = ranged_field(0.0, FRACTION_OR_ZERO)
    """The smallest share of n-grams that are shared."""
    min_ngrams: int = ranged_field(1, at_least(1))
    """The smallest number of n-grams that are shared."""
    share_of: str = ranged_field(ITEM, one_of((ITEM, LINE)))
    """Whose n-grams are counted: item (distinct ones), or line (of the document; n-grams then don't
    extend over several lines)."""
    max_documents: int | None = ranged_field(None, at_least(1))
    """n-grams that are in more documents of the corpus are ignored; null: none. The corpus is then
    read twice."""
    whole_item_words: int | None = ranged_field(5, at_least(1))
    """Items without an n-gram, but with at least this many words, match as a whole; null: they are
    never found."""

    def search(self, items: Sequence[str], document_counts: Counts | None = None) -> ItemSearch:
        """Returns the search for these items."""
        return _Search(self, self._index(items, document_counts))

    def counted_ngrams(self, items: Sequence[str]) -> ItemNgrams | None:
        """Returns the items' n-grams if some may be ignored."""
        return None if self.max_documents is None else self._index(items)

    def _index(self, items: Sequence[str], document_counts: Counts | None = None) -> ItemNgrams:
        return ItemNgrams(
            *(items, self.n, self.whole_item_words),
            by_line=self.share_of == LINE,
            max_documents=self.max_documents,
            document_counts=document_counts,
        )


class _Search(ItemSearch):
    def __init__(self, rule: NgramUnion, ngrams: ItemNgrams) -> None:
        self._rule, self._ngrams, self.unseen = rule, ngrams, ngrams.unseen
        self.ignored_ngrams = ngrams.ignored
        self._kind = f"{rule.n}-grams"

    def matches(self, document: str) -> list[Match]:
        """Returns the items of which the document has enough n-grams."""
        text = self._ngrams.numbered(document)
        by_ngrams = self._item_matches if self._rule.share_of == ITEM else self._line_matches
        matches = [*by_ngrams(text), *self._ngrams.whole_item_matches(text)]
        return sorted(matches, key=lambda match: match.item)

    def _item_matches(self, text: NumberedText) -> list[Match]:
        shared = self._ngrams.shared(text.words)
        pairs = np.unique(np.stack([shared.item, shared.gram]), axis=1)
        items, counts = np.unique(pairs[0], return_counts=True)
        shares = counts / self._ngrams.distinct[items]
        is_match = (counts >= self._rule.min_ngrams) & (shares >= self._rule.min_share)
        return [
            Match(
                item,
                self._kind,
                share,
                self._spans(text, np.unique(shared.place[shared.item == item])),
            )
            for item, share in zip(items[is_match].tolist(), shares[is_match].tolist(), strict=True)
        ]

    def _spans(self, text: NumberedText, places: Counts) -> tuple[tuple[int, int], ...]:
        n = self._rule.n
        return merge_spans([text.span(a, b + n) for a, b in runs_of_places(places, n)])

    def _line_matches(self, text: NumberedText) -> list[Match]:
        if not len(self._ngrams.places(text.words)[0]):  # most documents
            return []
        spans_by_item: dict[int, list[tuple[int, int]]] = {}
        share_by_item: dict[int, float] = {}
        start = 0
        for line in text.text.split("\n"):
            words = self._ngrams.numbered(line).words
            shared = self._ngrams.shared(words)
            count = len(np.unique(shared.place))
            share = count / max(1, len(words) - self._rule.n + 1)
            if count >= self._rule.min_ngrams and share >= self._rule.min_share:
                for item in np.unique(shared.item).tolist():
                    spans_by_item.setdefault(item, []).append((start, start + len(line)))
                    share_by_item[item] = max(share, share_by_item.get(item, 0.0))
            start += len(line) + 1
        return [
            Match(item, self._kind, share_by_item[item], tuple(spans))
            for item, spans in spans_by_item.items()
        ]
