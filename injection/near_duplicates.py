"""Near-duplicates between members and non-members.

Two texts are near-duplicates where they share 13 words in a row (Brown et al. 2020, appendix C),
or differ by case, punctuation and white space only. A model that saw the one has seen the other,
or nearly: a pair across the sides counts against every method, whatever it measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from injection.ngrams import Hashes, Numbering, hashes_of

NGRAM = 13


@dataclass(frozen=True)
class Item:
    """What stands for one example.

    Attributes:
        parts: texts in which n-grams are looked for.
        wholes: texts that are compared as wholes.
    """

    parts: Sequence[str]
    wholes: Sequence[str]


class Keys:
    """Hashes of what near-duplicates have in common.

    64 bits: of 10 million keys some two differ and are taken for equal once in 370,000 runs.
    """

    def __init__(self) -> None:
        self._numbers = Numbering()

    def of(self, item: Item) -> Hashes:
        """An item's distinct keys, one for each of its n-grams and wholes."""
        parts = [(words, NGRAM) for words in map(self._numbers.of, item.parts)]
        wholes = [(words, len(words)) for words in map(self._numbers.of, item.wholes)]
        keys = [hashes_of(words, n) for words, n in parts + wholes if len(words) >= max(n, 1)]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))


class Apart:
    """Takes items that are near-duplicates of none that was taken before."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        """Take some to begin with."""
        self._keys, self._taken = Keys(), set[int]()
        for item in items:
            self.takes(item)

    def takes(self, item: Item) -> bool:
        """Whether the item is apart from all before it; it then counts as taken."""
        keys = self._keys.of(item).tolist()
        apart = self._taken.isdisjoint(keys)
        if apart:
            self._taken.update(keys)
        return apart


def across(items: Sequence[Item], members: Sequence[bool]) -> dict[int, int]:
    """Each item that has a near-duplicate on the other side, and the first one that it has there.

    What more than half of the items have in common is their template, not their text.
    """
    found: dict[int, int] = {}
    for owners in _owners(items):
        sides = [[o for o in owners if members[o]], [o for o in owners if not members[o]]]
        if all(sides) and len(owners) <= max(2, len(items) / 2):
            for own, other in (sides, sides[::-1]):
                for item in own:
                    found[item] = min(found.get(item, other[0]), other[0])
    return dict(sorted(found.items()))


def _owners(items: Sequence[Item]) -> Iterator[tuple[int, ...]]:
    """The distinct sets of items that have a key in common, each in ascending order."""
    hashes = Keys()
    keys = [hashes.of(item) for item in items]
    owners = np.repeat(np.arange(len(items)), [len(k) for k in keys])
    joined = np.concatenate([np.empty(0, np.uint64), *keys])
    order = np.argsort(joined, kind="stable")
    _, first, counts = np.unique(joined[order], return_index=True, return_counts=True)
    several = zip(first[counts > 1], counts[counts > 1], strict=True)
    yield from {tuple(owners[order[start : start + n]].tolist()) for start, n in several}
