"""Near-duplicates between members and non-members.

Two texts are near-duplicates where they share 13 words in a row (Brown et al. 2020, appendix C),
or differ by case, punctuation, emoji and white space only. A model that saw the one has seen the
other, or nearly: a pair across the sides counts against every method, whatever it measures.

What more than half of a group's texts share in a row is the group's template, not their text. That
holds for 13 words in a row alone: texts that are equal as wholes are near-duplicates whatever.

Texts are compared by their letters and digits (with the letters' marks), after Unicode's
compatibility normalisation (NFKC) and without case. In the 13 words all else separates, so that
"well-known" is the two words that "well known" is. Wholes are compared as if written in one:
"well known", "well-known" and "wellknown" differ by punctuation and white space only. But numbers
stay apart ("1 23" is not "12 3"), and operators and signs stay ("x < -3" is not "x > 3"). They are
no words in the 13: lines of "=====" would be near-duplicates.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from contamination.data.ngrams import Hashes, hashes_of
from contamination.data.texts import Text, Texts

NGRAM = 13


@dataclass(frozen=True)
class Item:
    """What stands for one example.

    Attributes:
        parts: texts in which n-grams are looked for.
        wholes: texts that are compared as wholes.
        group: whose template it may have: its benchmark.
    """

    parts: Sequence[str]
    wholes: Sequence[str]
    group: str = ""


class Keys:
    """Hashes of what near-duplicates have in common, without the templates of some items' groups.

    64 bits: of 10 million keys some two differ and are taken for equal once in 370,000 runs.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        """Learn the templates from the items."""
        self._numbers: dict[str, int] = {}
        grams: dict[str, list[Hashes]] = {}
        for item in items:
            grams.setdefault(item.group, []).append(self._grams(item))
        self._template = {group: _common(each) for group, each in grams.items()}

    @property
    def has_templates(self) -> bool:
        """Whether some group has a template, whose words `of` leaves out."""
        return any(len(hashes) for hashes in self._template.values())

    def of(self, item: Item) -> Hashes:
        """An item's distinct keys, one for each of its n-grams and wholes."""
        own = np.setdiff1d(self._grams(item), self._template.get(item.group, _NONE))
        wholes = {joined(whole) for whole in item.wholes} - {""}
        return np.union1d(own, np.array([_hash(whole) for whole in wholes], np.uint64))

    def _grams(self, item: Item) -> Hashes:
        """The distinct n-grams of its parts."""
        parts = [self._numbered(words_of(part)) for part in item.parts]
        hashes = [hashes_of(words, NGRAM) for words in parts if len(words) >= NGRAM]
        return np.unique(np.concatenate([_NONE, *hashes]))

    def _numbered(self, words: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        numbers = (self._numbers.setdefault(word, len(self._numbers) + 1) for word in words)
        return np.fromiter(numbers, np.int32)


class Apart:
    """Takes items that are near-duplicates of none that was taken before."""

    def __init__(self, keys: Keys, items: Iterable[Item] = ()) -> None:
        """Take some to begin with."""
        self._keys, self._taken = keys, set[int]()
        for item in items:
            self.takes(item)

    def takes(self, item: Item) -> bool:
        """Whether the item is apart from all before it; it then counts as taken."""
        keys = self._keys.of(item).tolist()
        apart = self._taken.isdisjoint(keys)
        if apart:
            self._taken.update(keys)
        return apart


def across(items: Sequence[Item], members: Sequence[bool], keys: Keys) -> dict[int, int]:
    """Each item that has near-duplicates on the other side → the first of them.

    Groups don't matter: a text that is a member of one benchmark may be a non-member of another.
    """
    found: dict[int, int] = {}
    for owners in _owners([keys.of(item) for item in items]):
        sides = [[o for o in owners if members[o]], [o for o in owners if not members[o]]]
        if all(sides):
            for own, other in (sides, sides[::-1]):
                for item in own:
                    found[item] = min(found.get(item, other[0]), other[0])
    return dict(sorted(found.items()))


def words_of(text: str) -> list[str]:
    """Its runs of letters, digits and letters' marks, normalised."""
    return _normalised(text).translate(_WORDS).split()


def joined(text: str) -> str:
    """Its words and operators, written in one but for a space between the digits of two numbers."""
    parts = _SIGN.split(_normalised(text).translate(_MINUS))  # every second one is a sign
    kept = "".join(p if n % 2 else p.translate(_OPERATORS) for n, p in enumerate(parts))
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(kept.split()))


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


class _Kept(dict[int, int | None]):
    """For `str.translate`: what words consist of stays, what can't be seen goes, all else splits.

    With `operators`, these stay too: Unicode's mathematical symbols (Sm) and those of code.
    Filled as characters come by.
    """

    def __init__(self, *, operators: bool = False) -> None:
        self._operators = operators

    def __missing__(self, code: int) -> int | None:
        kind, name = unicodedata.category(chr(code)), unicodedata.name(chr(code), "")
        if kind == "Cf" or "VARIATION SELECTOR" in name:  # a soft hyphen, an emoji's colours
            self[code] = None
        else:
            word = kind[0] in "LN" or kind in ("Mn", "Mc")
            operator = self._operators and (kind == "Sm" or chr(code) in "*/%#^")
            self[code] = code if word or operator else ord(" ")
        return self[code]


_WORDS, _OPERATORS = _Kept(), _Kept(operators=True)
_MINUS = {0x2212: "-", 0x2044: "/"}  # the sign of minus and the bar of a fraction
_SIGN = re.compile(r"((?<!\w)-(?=\.?\d)|(?<![\w.])\.(?=\d)|!(?==))")  # -3, -.5, .5 and !=
_NONE = np.empty(0, np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _common(each: Sequence[Hashes]) -> Hashes:
    """What more than half of the texts have, and more than two."""
    hashes, counts = np.unique(np.concatenate([_NONE, *each]), return_counts=True)
    common: Hashes = hashes[counts > max(2, len(each) / 2)]
    return common


def _owners(keys: Sequence[Hashes]) -> Iterator[tuple[int, ...]]:
    """The distinct sets of items that have a key in common, each in ascending order."""
    owners = np.repeat(np.arange(len(keys)), [len(k) for k in keys])
    joined = np.concatenate([_NONE, *keys])
    order = np.argsort(joined, kind="stable")
    _, first, counts = np.unique(joined[order], return_index=True, return_counts=True)
    several = zip(first[counts > 1], counts[counts > 1], strict=True)
    yield from {tuple(owners[order[start : start + n]].tolist()) for start, n in several}


def text_notes(examples: Sequence[Text]) -> list[str]:
    """A sentence each on exact duplicates and on near-duplicates across the labels."""
    return [note for note in (repeated(examples), overlap(examples)) if note]


def part_notes(examples: Texts, named: Callable[[str], str]) -> list[str]:
    """The same of each part of a benchmark, and how many texts have no label.

    Args:
        examples: the texts.
        named: what a part is called, by its texts' `benchmark`.
    """
    column = examples.column("benchmark")
    notes = []
    for name in column.unique().to_pylist():
        own = examples.take(np.flatnonzero(pc.equal(column, name).to_numpy()))
        notes += [f"{named(name)}: {note}" for note in text_notes(own)]
    unknown = examples.column("label").null_count
    return notes + [f"{unknown} texts have no label: they are in no metric."] * bool(unknown)


def repeated(examples: Sequence[Text]) -> str:
    """A sentence on texts that are there more than once, or nothing."""
    firsts: dict[str, Text] = {}
    again = [(e, first) for e in examples if (first := firsts.setdefault(e.sha256, e)) is not e]
    if not again:
        return ""
    one, first = again[0]
    return (
        f"{len(again)} of {len(examples)} texts are exact duplicates of another one, such as "
        f"{one.example_id} of {first.example_id}: each counts, so intervals are too narrow."
    )


def overlap(examples: Sequence[Text]) -> str:
    """A sentence on the labelled texts that are near-duplicates across the labels, or nothing.

    Each benchmark has a template of its own. Texts of different benchmarks are compared too, since
    one model saw them all.
    """
    known = [e for e in examples if e.label is not None]
    members = [bool(e.label) for e in known]
    items = [Item([e.text], [e.text], e.benchmark) for e in known]
    near = across(items, members, Keys(items))
    if not near:
        return ""
    inside = sum(members[i] for i in near)
    apart = sum(known[i].benchmark != known[other].benchmark for i, other in near.items())
    between = f", {apart} of them of a text of another benchmark" if apart else ""
    first, other = next(iter(near.items()))
    return (
        f"{inside} members and {len(near) - inside} non-members are near-duplicates of one another "
        "(13 words in a row in both, or no difference but case, punctuation and white space)"
        f"{between}, such as {known[first].example_id} and {known[other].example_id}: no score can "
        "tell these apart. Leave them out, or give both one label."
    )
