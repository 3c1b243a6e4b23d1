"""The interface of rules: a rule and a benchmark's items give a search of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.config import Ranged

if TYPE_CHECKING:
    from contamination.injection.decontamination.rules.item_ngrams import ItemNgrams

Counts = np.ndarray[Any, np.dtype[np.int64]]
WHOLE_ITEM = "whole item"
"""The kind of a match of an item that is too short for the rule itself."""


@dataclass(frozen=True)
class Match:
    """The text that a document shares with one item.

    Attributes:
        item: the item's index.
        kind: the rule's name, or WHOLE_ITEM.
        share: the value that the rule compares with its threshold, at most 1.
        spans: the shared text as character ranges of the document (start, end), in order and
            disjoint.
    """

    item: int
    kind: str
    share: float
    spans: tuple[tuple[int, int], ...]


class ItemSearch(ABC):
    """The search for the items of a benchmark in documents.

    Attributes:
        unseen: for each item, why the rule can't find it in any document; "" if it can.
        ignored_ngrams: how many of the items' distinct n-grams are ignored, as they are in more
            documents than the rule's limit, and how many there are; None: it has no limit.
    """

    unseen: Sequence[str]
    ignored_ngrams: tuple[int, int] | None = None

    @abstractmethod
    def matches(self, document: str) -> list[Match]:
        """Returns at most one match per item, in the order of the items."""


class Rule(Ranged, ABC, node="matcher"):
    """Decides whether a document contains an item; a frozen dataclass of settings."""

    @abstractmethod
    def search(self, items: Sequence[str], document_counts: Counts | None = None) -> ItemSearch:
        """Returns the search for these items.

        Args:
            items: the items' texts.
            document_counts: the number of documents of the corpus that contain each n-gram of
                `counted_ngrams(items)`, shape (n-grams,); None if that returns None.
        """

    def counted_ngrams(self, items: Sequence[str]) -> ItemNgrams | None:
        """Returns the items' n-grams if the rule needs to know how many documents have them."""
        return None

    def inputs(self) -> Mapping[str, str]:
        """Returns the digests of the files that the rule reads, by name."""
        return {}


def merge_spans(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Returns the ranges in order, with those that overlap or touch merged into one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
