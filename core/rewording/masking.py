"""Blanks in a text, and the windows of tokens in which a masked language model fills them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.rewording.base import portion
from core.seeds import derive

# What stands between white space, without the punctuation around it: (don't), -> don't
WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")


Around = tuple[list[int], list[int]]  # what the model expects before and after a text


@dataclass(frozen=True)
class Blank:
    """A word to replace: its characters text[start:end], and the seed of its draw."""

    start: int
    end: int
    word: str
    seed: int


@dataclass(frozen=True)
class Window:
    """Tokens that the model sees at once."""

    ids: list[int]  # token ids, the model's first and last special tokens included
    blanks: list[tuple[int, int]]  # of each blank to fill here: its number, its place in `ids`


def blanks(text: str, share: float, seed: int) -> list[Blank]:
    """⌊share·words⌋ random words of the text, at least 1 where there is one, in its order."""
    words = list(WORD.finditer(text))
    if not words:
        return []
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(words), size=portion(share, len(words)), replace=False)
    spans = [words[i].span() for i in sorted(chosen.tolist())]
    return [Blank(a, b, text[a:b], derive(seed, a)) for a, b in spans]


def fill(text: str, holes: Sequence[Blank], words: Sequence[str]) -> str:
    """The text with `words` in its blanks."""
    parts, done = [], 0
    for hole, word in zip(holes, words, strict=True):
        parts += [text[done : hole.start], word]
        done = hole.end
    return "".join([*parts, text[done:]])


def masked(
    ids: Sequence[int], offsets: Sequence[tuple[int, int]], holes: Sequence[Blank], mask: int
) -> tuple[list[int], list[int]]:
    """The tokens with one mask for each blank, however many tokens its word has, and their places.

    The tokens `ids` are without special ones, and `offsets` their characters in the text; these and
    the blanks are in order.
    """
    starts, ends = [a for a, _ in offsets], [b for _, b in offsets]
    out: list[int] = []
    places: list[int] = []
    done = 0
    for hole in holes:
        first = max(done, bisect_right(ends, hole.start))
        out += ids[done:first]
        places.append(len(out))
        out.append(mask)
        done = max(first, bisect_left(starts, hole.end))
    return out + list(ids[done:]), places


def windows(
    ids: Sequence[int], places: Sequence[int], first_blank: int, width: int, around: Around
) -> Iterator[Window]:
    """Windows of at most `width` tokens, special ones included, that fill each blank once.

    A text that doesn't fit is cut into strides of half a window, seen with a quarter of a window
    on either side, so that every blank has its context.
    """
    prefix, suffix = around
    body = width - len(prefix) - len(suffix)
    stride = body // 2 if len(ids) > body else max(1, len(ids))
    margin = (body - body // 2) // 2
    for start in range(0, len(ids), stride):
        low, high = max(0, start - margin), min(len(ids), start + stride + margin)
        inside = range(bisect_left(places, start), bisect_left(places, start + stride))
        if inside:
            shift = len(prefix) - low
            found = [(first_blank + i, places[i] + shift) for i in inside]
            yield Window([*prefix, *ids[low:high], *suffix], found)
