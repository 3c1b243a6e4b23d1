"""The rule of the longest match: the longest run of words that an item and a document share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION_OR_ZERO, at_least, ranged_field
from contamination.data.ngrams import Words
from contamination.injection.decontamination.rules.base import (
    Counts,
    ItemSearch,
    Match,
    Rule,
    merge_spans,
)
from contamination.injection.decontamination.rules.item_ngrams import ItemNgrams

KIND = "longest match"


@dataclass(frozen=True)
class LongestMatch(Rule):
    """Flags items with which a document shares a long enough run of consecutive words.

    The share is the length of the longest shared run, divided by the number of words of the item.
    Singh et al. 2024 ("Evaluation data contamination in LLMs", arXiv 2411.03923) report that the
    longest run predicts a model's gain better than the union of all shared runs. Their variants
    with a budget of skipped words are not available here.
    """

    n: int = ranged_field(8, at_least(1))
    """The smallest number of words of a run."""
    min_share: float = ranged_field(0.5, FRACTION_OR_ZERO)
    """The smallest share of the item's words in one run."""
    max_documents: int | None = ranged_field(None, at_least(1))
    """n-grams that are in more documents of the corpus interrupt a run; null: none. The corpus is
    then read twice."""
    whole_item_words: int | None = ranged_field(5, at_least(1))
    """Items with fewer than `n` words, but at least this many, match as a whole; null: they are
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
            max_documents=self.max_documents,
            document_counts=document_counts,
        )


class _Search(ItemSearch):
    def __init__(self, rule: LongestMatch, ngrams: ItemNgrams) -> None:
        self._rule, self._ngrams, self.unseen = rule, ngrams, ngrams.unseen
        self.ignored_ngrams = ngrams.ignored

    def matches(self, document: str) -> list[Match]:
        """Returns the items with a long enough run in the document."""
        text = self._ngrams.numbered(document)
        items, firsts, lengths = self._runs(text.words)
        shares = lengths / np.maximum(self._ngrams.item_words[items], 1)
        is_long = shares >= self._rule.min_share
        matches = [*self._ngrams.whole_item_matches(text)]
        for item in np.unique(items[is_long]).tolist():
            rows = np.flatnonzero(is_long & (items == item)).tolist()
            spans = [text.span(int(firsts[r]), int(firsts[r] + lengths[r])) for r in rows]
            share = float(shares[rows].max())
            matches.append(Match(item, KIND, share, merge_spans(spans)))
        return sorted(matches, key=lambda match: match.item)

    def _runs(self, words: Words) -> tuple[Counts, Counts, Counts]:
        """Returns the item, first word and number of words of each longest shared run.

        A run has n-grams at consecutive places of the document and of the item.
        """
        shared = self._ngrams.shared(words)
        diagonal = shared.item_place - shared.place
        order = np.lexsort((shared.place, diagonal, shared.item))
        item, place, diagonal = shared.item[order], shared.place[order], diagonal[order]
        continues = (np.diff(item) == 0) & (np.diff(diagonal) == 0) & (np.diff(place) == 1)
        firsts = np.flatnonzero(np.append(True, ~continues)[: len(item)])
        n_grams = np.diff(np.append(firsts, len(item)))
        return item[firsts], place[firsts], n_grams + self._rule.n - 1
