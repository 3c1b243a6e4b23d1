"""Finds near-duplicates between members and non-members, and describes them.

Two texts are near-duplicates if they share 13 words in a row (Brown et al. 2020, appendix C), or
differ only in case, punctuation, emoji and white space. A model that has seen one of them has
almost seen the other, so such a pair lowers the score of every method.

13-grams that more than half of a group's texts share belong to the group's template and are not
compared. Whole texts that are equal are always near-duplicates.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from contamination.data.ngrams import Hashes, hash_windows
from contamination.data.texts import Text, Texts

NGRAM_WORDS = 13


@dataclass(frozen=True)
class ComparedItem:
    """The texts of one example that are compared.

    Attributes:
        parts: texts whose n-grams are compared.
        wholes: texts that are compared as a whole.
        group: the example's benchmark, whose template its text may contain.
    """

    parts: Sequence[str]
    wholes: Sequence[str]
    group: str = ""


class NearDuplicateHasher:
    """Computes hashes such that near-duplicates share at least one; group templates are left out.

    With 64 bits and 10 million keys, two different keys have the same hash in 1 of 370,000 runs.
    """

    def __init__(self, items: Iterable[ComparedItem] = ()) -> None:
        """Determines the templates from the items."""
        self._numbers: dict[str, int] = {}
        grams: dict[str, list[Hashes]] = {}
        for item in items:
            grams.setdefault(item.group, []).append(self._gram_hashes(item))
        self._template = {group: _hashes_shared_by_most(hashes) for group, hashes in grams.items()}

    @property
    def has_templates(self) -> bool:
        """Whether any group has a template, whose n-grams `of` leaves out."""
        return any(len(hashes) for hashes in self._template.values())

    def of(self, item: ComparedItem) -> Hashes:
        """Returns the distinct hashes of an item's n-grams and whole texts."""
        grams = np.setdiff1d(self._gram_hashes(item), self._template.get(item.group, _NO_HASHES))
        texts = {normalised_without_spaces(text) for text in item.wholes} - {""}
        return np.union1d(grams, np.array([_hash_text(text) for text in texts], np.uint64))

    def _gram_hashes(self, item: ComparedItem) -> Hashes:
        parts = [self._word_numbers(normalised_words(part)) for part in item.parts]
        hashes = [hash_windows(words, NGRAM_WORDS) for words in parts if len(words) >= NGRAM_WORDS]
        return np.unique(np.concatenate([_NO_HASHES, *hashes]))

    def _word_numbers(self, words: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        numbers = (self._numbers.setdefault(word, len(self._numbers) + 1) for word in words)
        return np.fromiter(numbers, np.int32)


class NearDuplicateFilter:
    """Accepts items that are not near-duplicates of earlier accepted items."""

    def __init__(self, keys: NearDuplicateHasher, items: Iterable[ComparedItem] = ()) -> None:
        """Accepts these items first."""
        self._keys, self._accepted_keys = keys, set[int]()
        for item in items:
            self.accept(item)

    def accept(self, item: ComparedItem) -> bool:
        """Accepts the item unless it is a near-duplicate; returns whether it was accepted."""
        keys = self._keys.of(item).tolist()
        is_new = self._accepted_keys.isdisjoint(keys)
        if is_new:
            self._accepted_keys.update(keys)
        return is_new


def duplicates_on_other_side(
    items: Sequence[ComparedItem], is_member: Sequence[bool], keys: NearDuplicateHasher
) -> dict[int, int]:
    """Returns the first near-duplicate with the other label of each item that has one, by index.

    Groups are ignored: a member of one benchmark may be a non-member of another.
    """
    duplicates: dict[int, int] = {}
    for owners in _iter_items_sharing_a_key([keys.of(item_index) for item_index in items]):
        member_items = [o for o in owners if is_member[o]]
        nonmember_items = [o for o in owners if not is_member[o]]
        if member_items and nonmember_items:
            for item_index in owners:
                first = (nonmember_items if is_member[item_index] else member_items)[0]
                duplicates[item_index] = min(duplicates.get(item_index, first), first)
    return dict(sorted(duplicates.items()))


def normalised_words(text: str) -> list[str]:
    """Returns a text's words: runs of letters, digits and combining marks, normalised.

    All other characters are separators, so "well-known" is two words, like "well known". Operators
    are not words; otherwise lines of "=====" would be near-duplicates.
    """
    return _normalise(text).translate(_WORDS).split()


def normalised_without_spaces(text: str) -> str:
    """Returns a text's words and operators without spaces, except between two numbers.

    "well known", "well-known" and "wellknown" are equal, but "1 23" is not "12 3", and operators
    and signs are kept ("x < -3" is not "x > 3").
    """
    parts = _SIGN.split(_normalise(text).translate(_MINUS))  # every second part is a sign
    spaced = "".join(p if n % 2 else p.translate(_OPERATORS) for n, p in enumerate(parts))
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(spaced.split()))


def _normalise(text: str) -> str:
    """Returns the text in Unicode's compatibility normalisation (NFKC), case-folded."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


class _CharacterTable(dict[int, int | None]):
    """A table for `str.translate` that is filled on first use of each character.

    Word characters are kept, invisible characters are removed, and all others become a space. With
    `operators`, Unicode's mathematical symbols (Sm) and the operators of code are also kept.
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


_WORDS, _OPERATORS = _CharacterTable(), _CharacterTable(operators=True)
_MINUS = {0x2212: "-", 0x2044: "/"}  # minus sign and fraction slash
_SIGN = re.compile(r"((?<!\w)-(?=\.?\d)|(?<![\w.])\.(?=\d)|!(?==))")  # -3, -.5, .5 and !=
_NO_HASHES = np.empty(0, np.uint64)


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _hashes_shared_by_most(hashes_by_text: Sequence[Hashes]) -> Hashes:
    """Returns the hashes that more than half of the texts, and at least three, have."""
    hashes, counts = np.unique(np.concatenate([_NO_HASHES, *hashes_by_text]), return_counts=True)
    common: Hashes = hashes[counts > max(2, len(hashes_by_text) / 2)]
    return common


def _iter_items_sharing_a_key(keys: Sequence[Hashes]) -> Iterator[tuple[int, ...]]:
    """Yields the distinct sets of items that share a key, each in ascending order."""
    owners = np.repeat(np.arange(len(keys)), [len(k) for k in keys])
    all_keys = np.concatenate([_NO_HASHES, *keys])
    order = np.argsort(all_keys, kind="stable")
    _, first, counts = np.unique(all_keys[order], return_index=True, return_counts=True)
    shared_keys = zip(first[counts > 1], counts[counts > 1], strict=True)
    yield from {tuple(owners[order[start : start + n]].tolist()) for start, n in shared_keys}


def duplicate_notes(examples: Sequence[Text]) -> list[str]:
    """Returns sentences about exact duplicates, and about near-duplicates with different labels."""
    return [
        note for note in (describe_duplicates(examples), describe_near_duplicates(examples)) if note
    ]


def duplicate_notes_by_part(examples: Texts, display_name_of: Callable[[str], str]) -> list[str]:
    """Returns the notes about each part of a benchmark, and about texts without a label.

    Args:
        examples: the texts.
        display_name_of: returns the display name of a part, by its texts' `benchmark`.
    """
    column = examples.column("benchmark")
    notes = []
    for name in column.unique().to_pylist():
        part = examples.take(np.flatnonzero(pc.equal(column, name).to_numpy()))
        notes += [f"{display_name_of(name)}: {note}" for note in duplicate_notes(part)]
    unlabelled = examples.column("label").null_count
    return notes + [f"{unlabelled} texts have no label: metrics leave them out."] * bool(unlabelled)


def describe_duplicates(examples: Sequence[Text]) -> str:
    """Returns a sentence about texts that occur more than once, or an empty string."""
    firsts: dict[str, Text] = {}
    duplicate_pairs = [
        (e, first) for e in examples if (first := firsts.setdefault(e.sha256, e)) is not e
    ]
    if not duplicate_pairs:
        return ""
    duplicate, first = duplicate_pairs[0]
    return (
        f"{len(duplicate_pairs)} of {len(examples)} texts are exact duplicates of another one, "
        f"such as {duplicate.example_id} of {first.example_id}: each counts, so intervals are too "
        "narrow."
    )


def describe_near_duplicates(examples: Sequence[Text]) -> str:
    """Returns a sentence about near-duplicates with different labels, or an empty string.

    Each benchmark has its own template. Texts of different benchmarks are also compared, since a
    model may have seen both.
    """
    labelled = [e for e in examples if e.label is not None]
    members = [bool(e.label) for e in labelled]
    items = [ComparedItem([e.text], [e.text], e.benchmark) for e in labelled]
    duplicate_by_index = duplicates_on_other_side(items, members, NearDuplicateHasher(items))
    if not duplicate_by_index:
        return ""
    n_members = sum(members[i] for i in duplicate_by_index)
    pairs = [(labelled[i].benchmark, labelled[j].benchmark) for i, j in duplicate_by_index.items()]
    n_across = sum(first != second for first, second in pairs)
    between = f", {n_across} of them of a text of another benchmark" if n_across else ""
    first, second = next(iter(duplicate_by_index.items()))
    return (
        f"{n_members} members and {len(duplicate_by_index) - n_members} non-members are "
        "near-duplicates of one another (13 words in a row in both, or no difference but case, "
        f"punctuation and white space){between}, such as {labelled[first].example_id} and "
        f"{labelled[second].example_id}: no score can tell these apart. Remove them, or give "
        "both the same label."
    )
