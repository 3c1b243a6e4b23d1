"""Where each inserted copy goes: the layout of the packed corpus, decided before a token is moved.

The packed corpus is the clean stream in its own order with segments (separator, example,
separator) between its tokens. A segment at clean position c, with s tokens inserted before it,
starts at packed position c + s. Copies between documents are laid out in `injection.between`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.errors import ConfigError
from injection.tokens import Flags, Tokenizer, TokenStream

SEARCH_TOKENS = 256  # how far the next word or sentence is looked for
TRIES = 8  # boundaries that are tried before a copy is put at a sequence's start


@dataclass(frozen=True)
class Segment:
    """One copy to insert: of which example, as which text, its tokens with separators."""

    example: int
    copy: int
    text: int
    """Which of the distinct inserted texts."""
    tokens: int
    position: float
    """Where in the window, as a share of its clean tokens, or document starts, in [0, 1)."""


@dataclass(frozen=True)
class Placed:
    """A segment and its place: in the clean stream, and in the packed one."""

    segment: Segment
    clean: int
    packed: int


def boundary_finder(stream: TokenStream, kind: str, tokenizer: Tokenizer) -> Callable[[int], int]:
    """A function that moves a clean position on to the next token, word or sentence.

    Never backward. Where no sentence starts within SEARCH_TOKENS the next word will do, and where
    no word does the position stays.
    """

    def word(position: int) -> int:
        ids = stream.read(position, position + SEARCH_TOKENS)
        return _first(tokenizer.starts_word[ids], position)

    def sentence(position: int) -> int:
        ids = stream.read(max(0, position - 1), position + SEARCH_TOKENS)
        opens = tokenizer.ends_sentence[ids[:-1]] & tokenizer.starts_word[ids[1:]]
        return _first(opens, max(1, position)) if opens.any() else word(position)

    return {"token": lambda position: position, "word": word, "sentence": sentence}[kind]


def _first(flags: Flags, position: int) -> int:
    hits = np.flatnonzero(flags)
    return position + (int(hits[0]) if len(hits) else 0)


def lay_out(
    segments: list[Segment],
    window: tuple[int, int],
    sequence_tokens: int,
    boundary: Callable[[int], int],
    *,
    split: bool,
) -> list[Placed]:
    """Place every segment once, in order, without overlap, within the window.

    A segment's `position` counts the clean tokens of the window before it, and each segment moves
    what is behind it on: so all places that hold the segments are equally likely, and every
    segment stands in the window of the *packed* corpus, which is training time.

    Args:
        segments: what to insert, in any order.
        window: first and last token (exclusive) of the packed corpus that segments may take.
        sequence_tokens: length of a packed sequence.
        boundary: moves a clean position forward to where a segment may be opened.
        split: whether a segment may straddle two sequences.

    Raises:
        ConfigError: a segment is longer than a sequence, or they can't all be placed whole.
    """
    if not split and any(s.tokens > sequence_tokens for s in segments):
        raise _no_room(window, sequence_tokens)
    start, stop = window
    room = stop - start - sum(segment.tokens for segment in segments)
    order = sorted(segments, key=lambda s: (s.position, s.example, s.copy))
    placed, inserted, clean = [], 0, 0
    for segment in order:
        clean = boundary(max(clean, start + 1 + int(segment.position * room)))
        if not split:
            clean = _unsplit(clean, inserted, segment.tokens, sequence_tokens, boundary)
        placed.append(Placed(segment, clean, clean + inserted))
        inserted += segment.tokens
    return _pull_back(placed, window, sequence_tokens, split=split)


def _straddles(packed: int, tokens: int, sequence_tokens: int) -> bool:
    return packed // sequence_tokens != (packed + tokens - 1) // sequence_tokens


def _unsplit(
    clean: int, inserted: int, tokens: int, sequence_tokens: int, boundary: Callable[[int], int]
) -> int:
    """The first place from `clean` on where the segment is whole.

    Looked for at boundaries first; where none of the next ones will do, at a sequence's start.
    """
    place = clean
    for _ in range(TRIES):
        if not _straddles(place + inserted, tokens, sequence_tokens):
            return place
        place = boundary(_next_sequence(place + inserted, sequence_tokens) - inserted)
    return _next_sequence(clean + inserted, sequence_tokens) - inserted


def _next_sequence(packed: int, sequence_tokens: int) -> int:
    return -(-packed // sequence_tokens) * sequence_tokens


def _pull_back(
    placed: list[Placed], window: tuple[int, int], sequence_tokens: int, *, split: bool
) -> list[Placed]:
    """Move segments that ran past the end of the window back, the last one first."""
    first, limit = window
    for index in range(len(placed) - 1, -1, -1):
        item = placed[index]
        tokens, end = item.segment.tokens, item.packed + item.segment.tokens
        if end <= limit:
            break  # all before it end earlier still
        start = limit - tokens
        if not split and _straddles(start, tokens, sequence_tokens):
            start = limit // sequence_tokens * sequence_tokens - tokens
        clean = item.clean + start - item.packed
        if start < first:
            raise _no_room(window, sequence_tokens)
        placed[index] = Placed(item.segment, clean, start)
        limit = start
    return placed


def _no_room(window: tuple[int, int], sequence_tokens: int) -> ConfigError:
    return ConfigError(
        f"The insertions can't be placed whole into tokens {window[0]:,} to {window[1]:,} of the "
        f"corpus in sequences of {sequence_tokens}: raise injection.budget_tokens or "
        "injection.sequence_tokens, widen injection.window or injection.last_tokens, or set "
        "injection.split_copies=true."
    )


def check_distance(placed: list[Placed], least: int) -> None:
    """Raise a ConfigError where two copies of an example start closer than `least` tokens."""
    last: dict[int, int] = {}
    for item in placed:
        before = last.get(item.segment.example)
        if before is not None and item.packed - before < least:
            raise ConfigError(
                f"injection.copy_distance_tokens is {least}, but the copies of an example can't "
                "all be so far apart: lower it or the occurrences, or raise "
                "injection.budget_tokens."
            )
        last[item.segment.example] = item.packed
