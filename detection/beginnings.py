"""Texts that others begin with: a causal model says the same of their tokens in the longer text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np

from detection.texts import Texts

CHARACTERS = 64
"""So many first characters of two texts are compared before they are held beside each other."""


def longest(sequences: Sequence[Any]) -> list[int]:
    """For each sequence the place of one that begins with it and that no other begins with.

    In sorted order those that begin with a sequence follow it at once.
    """
    order = sorted(range(len(sequences)), key=lambda place: sequences[place])
    found = list(range(len(sequences)))
    for own, after in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        short = sequences[own]
        if sequences[after][: len(short)] == short:
            found[own] = found[after]
    return found


def families(parts: Iterable[Texts]) -> dict[str, Texts]:
    """Texts of several parts of which one begins with each of the others, by the SHA-256 of each.

    Only texts that share their first CHARACTERS are held, and none that stands alone.
    """
    found: dict[str, Texts] = {}
    for some in _alike(parts):
        ends = longest([text.text for text in some])
        for _, places in groupby(sorted(range(len(ends)), key=ends.__getitem__), ends.__getitem__):
            family = some.take(np.array([*places]))
            if len(family) > 1:
                found |= dict.fromkeys(family.column("sha256").to_pylist(), family)
    return found


def _alike(parts: Iterable[Texts]) -> Iterable[Texts]:
    """Groups of texts whose first CHARACTERS are the same, or rarely only their checksums."""
    some = list(parts)
    keys = [np.array([crc32(t.text[:CHARACTERS].encode()) for t in own], np.uint32) for own in some]
    values, counts = np.unique(np.concatenate(keys), return_counts=True)
    for key in values[counts > 1]:
        own = (part.take(at == key) for part, at in zip(some, keys, strict=True))
        yield Texts.of(text for part in own for text in part)
