"""Determines the position of each inserted copy, before any token is written.

The packed corpus is the clean stream with segments (separator, example, separator) inserted between
its tokens. A segment at clean position c, with s tokens inserted before it, starts at packed
position c + s. `place_within_window` places copies before tokens, words or sentences;
`place_between_documents` places them at the starts of documents.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from contamination.core.errors import ConfigError
from contamination.injection.token_stream import Flags, Places, Tokenizer, TokenStream

SEARCH_TOKENS = 256  # range in which the next word or sentence is searched
MAX_BOUNDARIES_TRIED = 8  # then a copy is placed at the start of a sequence


@dataclass(frozen=True)
class Segment:
    """One copy to insert: its example, its text, and its number of tokens with separators."""

    example: int
    copy: int
    text: int
    """The index of the inserted text among the distinct texts."""
    tokens: int
    position: float
    """The position in the window as a share of its clean tokens or document starts, in [0, 1)."""


@dataclass(frozen=True)
class PlacedSegment:
    """A segment with its positions in the clean and in the packed stream."""

    segment: Segment
    clean: int
    packed: int


def boundary_finder(
    stream: TokenStream, boundary: str, tokenizer: Tokenizer
) -> Callable[[int], int]:
    """Returns a function that moves a clean position forward to the next token, word or sentence.

    If no sentence starts within SEARCH_TOKENS, the next word is used; if there is none either, the
    position does not change.
    """

    def next_word(position: int) -> int:
        ids = stream.read(position, position + SEARCH_TOKENS)
        return _move_to_first_flag(tokenizer.is_word_start[ids], position)

    def next_sentence(position: int) -> int:
        ids = stream.read(max(0, position - 1), position + SEARCH_TOKENS)
        opens = tokenizer.is_sentence_end[ids[:-1]] & tokenizer.is_word_start[ids[1:]]
        return _move_to_first_flag(opens, max(1, position)) if opens.any() else next_word(position)

    return {"token": lambda position: position, "word": next_word, "sentence": next_sentence}[
        boundary
    ]


def _move_to_first_flag(flags: Flags, position: int) -> int:
    hits = np.flatnonzero(flags)
    return position + (int(hits[0]) if len(hits) else 0)


def place_within_window(
    segments: list[Segment],
    window: tuple[int, int],
    sequence_tokens: int,
    boundary: Callable[[int], int],
    *,
    split: bool,
) -> list[PlacedSegment]:
    """Returns all segments with positions in the window, in order and without overlap.

    A segment's `position` is the share of the window's clean tokens before it, and each segment
    moves the tokens after it. So all layouts are equally likely, and every segment is in the window
    of the *packed* corpus, which corresponds to training time.

    Args:
        segments: the segments to insert, in any order.
        window: the first token and the end (exclusive) of the window in the packed corpus.
        sequence_tokens: the length of a packed sequence.
        boundary: moves a clean position forward to the next position for a segment.
        split: whether a segment may be split between two sequences.

    Raises:
        ConfigError: a segment is longer than a sequence, or not all segments fit.
    """
    if not split and any(s.tokens > sequence_tokens for s in segments):
        raise _no_room_error(window, sequence_tokens)
    start, stop = window
    room = stop - start - sum(segment.tokens for segment in segments)
    order = sorted(segments, key=lambda s: (s.position, s.example, s.copy))
    placed, inserted, clean = [], 0, 0
    for segment in order:
        clean = boundary(max(clean, start + 1 + int(segment.position * room)))
        if not split:
            clean = _first_unsplit_position(
                clean, inserted, segment.tokens, sequence_tokens, boundary
            )
        placed.append(PlacedSegment(segment, clean, clean + inserted))
        inserted += segment.tokens
    return _pull_back_into_window(placed, window, sequence_tokens, split=split)


def _straddles_two_sequences(packed: int, tokens: int, sequence_tokens: int) -> bool:
    return packed // sequence_tokens != (packed + tokens - 1) // sequence_tokens


def _first_unsplit_position(
    clean: int, inserted: int, tokens: int, sequence_tokens: int, boundary: Callable[[int], int]
) -> int:
    """Returns the first position from `clean` on at which the segment fits into one sequence.

    The next boundaries are tried first; if none of them fits, the start of a sequence is used.
    """
    position = clean
    for _ in range(MAX_BOUNDARIES_TRIED):
        if not _straddles_two_sequences(position + inserted, tokens, sequence_tokens):
            return position
        position = boundary(_round_up_to_sequence(position + inserted, sequence_tokens) - inserted)
    return _round_up_to_sequence(clean + inserted, sequence_tokens) - inserted


def _round_up_to_sequence(packed: int, sequence_tokens: int) -> int:
    return -(-packed // sequence_tokens) * sequence_tokens


def _pull_back_into_window(
    placed: list[PlacedSegment], window: tuple[int, int], sequence_tokens: int, *, split: bool
) -> list[PlacedSegment]:
    """Moves back segments that extend beyond the end of the window, beginning with the last."""
    first, limit = window
    for index in range(len(placed) - 1, -1, -1):
        item = placed[index]
        tokens, end = item.segment.tokens, item.packed + item.segment.tokens
        if end <= limit:
            break  # all earlier segments end before it
        start = limit - tokens
        if not split and _straddles_two_sequences(start, tokens, sequence_tokens):
            start = limit // sequence_tokens * sequence_tokens - tokens
        clean = item.clean + start - item.packed
        if start < first:
            raise _no_room_error(window, sequence_tokens)
        placed[index] = PlacedSegment(item.segment, clean, start)
        limit = start
    return placed


def _no_room_error(window: tuple[int, int], sequence_tokens: int) -> ConfigError:
    return ConfigError(
        f"The copies can't be placed unsplit into tokens {window[0]:,} to {window[1]:,} of the "
        f"corpus in sequences of {sequence_tokens}: raise injection.budget_tokens or "
        "injection.sequence_tokens, widen injection.window or injection.last_tokens, or set "
        "injection.split_copies=true."
    )


def check_copy_distance(placed: list[PlacedSegment], min_tokens: int) -> None:
    """Raises a ConfigError if two copies of an example start closer than `min_tokens` tokens."""
    last_start_by_example: dict[int, int] = {}
    for item in placed:
        last_start = last_start_by_example.get(item.segment.example)
        if last_start is not None and item.packed - last_start < min_tokens:
            raise ConfigError(
                f"injection.copy_distance_tokens is {min_tokens}, but the copies of an example "
                "can't all be so far apart: lower it or the occurrences, or raise "
                "injection.budget_tokens."
            )
        last_start_by_example[item.segment.example] = item.packed


def place_as_documents(
    segments: Sequence[Segment], document_starts: Places, window: tuple[int, int]
) -> list[PlacedSegment]:
    """Places segments that are documents of their own before other documents within the window.

    Several may stand before the same document.

    Args:
        segments: the segments, in any order; `position` is a share of the window's starts.
        document_starts: the positions of documents in the clean stream, ascending, shape (n,).
        window: the first token and the end (exclusive) of the window in the packed corpus.

    Returns:
        The placed segments, in their order in the corpus.

    Raises:
        ConfigError: no document starts in the window.
    """
    first, stop = window
    last = stop - sum(segment.tokens for segment in segments)
    starts = np.unique(
        document_starts[(document_starts >= max(1, first)) & (document_starts <= last)]
    )
    if segments and not len(starts):
        raise ConfigError(
            "injection.boundary is 'own_document', but no document of the corpus starts in tokens "
            f"{first:,} to {stop:,} with room for the copies: raise injection.budget_tokens, or "
            "widen injection.window or injection.last_tokens."
        )
    placed, inserted = [], 0
    for segment in sorted(segments, key=lambda s: (s.position, s.example, s.copy)):
        clean = int(starts[int(segment.position * len(starts))])
        placed.append(PlacedSegment(segment, clean, clean + inserted))
        inserted += segment.tokens
    return placed


MAX_PASSES = 100  # over the window, before there are considered to be too many copies


@dataclass(frozen=True)
class PlacementRules:
    """The rules for a copy's position, in tokens of the packed corpus."""

    window: tuple[int, int]
    """The first token and the end (exclusive) of the window for copies."""
    sequence_tokens: int
    """The length of a packed sequence."""
    split: bool = False
    """Whether a copy may be split between two sequences."""
    distance: int = 0
    """The minimum number of tokens between the starts of two copies of an example."""


def place_between_documents(
    segments: Sequence[Segment], document_starts: Places, rules: PlacementRules
) -> list[PlacedSegment]:
    """Places every segment at the start of a different document within the window.

    Args:
        segments: the segments, in any order; `position` is a share of the window's starts.
        document_starts: the positions of documents in the clean stream, ascending, shape (n,).
        rules: the rules for a copy's position.

    Returns:
        The placed segments, in their order in the corpus.

    Raises:
        ConfigError: the window has too few document starts at which a segment fits.
    """
    first, stop = rules.window
    last = stop - sum(segment.tokens for segment in segments)  # with all segments before it
    is_inside = (document_starts >= max(1, first)) & (document_starts <= last)
    starts = np.unique(document_starts[is_inside])
    carried_over: set[Segment] = set()  # they found no place, so they start again at the first one
    if len(segments) <= len(starts):
        for _ in range(MAX_PASSES):
            placed, unplaced = _place_in_one_pass(segments, carried_over, starts, rules)
            if not unplaced:
                return placed
            if not unplaced - carried_over:
                break
            carried_over |= unplaced
    raise _too_few_starts_error(segments, len(starts), rules)


def _place_in_one_pass(
    segments: Sequence[Segment],
    carried_over: Collection[Segment],
    starts: Places,
    rules: PlacementRules,
) -> tuple[list[PlacedSegment], set[Segment]]:
    """Goes over the starts once; returns the segments that were placed, and those that were not.

    Of the waiting segments, the longest that fits is placed first, since it fits at the fewest
    positions.
    """
    start_number_by_segment = {
        s: -1 if s in carried_over else int(s.position * len(starts)) for s in segments
    }
    upcoming = sorted(
        segments, key=lambda s: (-start_number_by_segment[s], -s.position, s.example, s.copy)
    )
    waiting: list[tuple[int, int, Segment]] = []  # by length, then the latest first
    placed: list[PlacedSegment] = []
    last_position_by_example: dict[int, int] = {}  # example → the position of its last copy
    start_number, inserted = 0, 0
    while start_number < len(starts) and (waiting or upcoming):
        if not waiting:
            start_number = max(start_number, start_number_by_segment[upcoming[-1]])
        while upcoming and start_number_by_segment[upcoming[-1]] <= start_number:
            insort(
                waiting, (upcoming[-1].tokens, len(upcoming), upcoming.pop()), key=lambda w: w[:2]
            )
        packed = int(starts[start_number]) + inserted
        chosen = _longest_that_fits(waiting, packed, last_position_by_example, rules)
        if chosen is not None:
            segment = waiting.pop(chosen)[-1]
            placed.append(PlacedSegment(segment, packed - inserted, packed))
            last_position_by_example[segment.example] = packed
            inserted += segment.tokens
        start_number += 1
    return placed, {*upcoming, *(segment for *_, segment in waiting)}


def _longest_that_fits(
    waiting: Sequence[tuple[int, int, Segment]],
    packed: int,
    last_position_by_example: dict[int, int],
    rules: PlacementRules,
) -> int | None:
    """Returns the index of the longest waiting segment that may go to `packed`, or None."""
    width = rules.sequence_tokens
    room = width - packed % width
    n_fitting = len(waiting) if rules.split else bisect_right(waiting, room, key=lambda w: w[0])
    for index in range(n_fitting - 1, -1, -1):
        example = waiting[index][-1].example
        if (
            packed - last_position_by_example.get(example, packed - rules.distance)
            >= rules.distance
        ):
            return index
    return None


def _too_few_starts_error(
    segments: Sequence[Segment], n_starts: int, rules: PlacementRules
) -> ConfigError:
    first, stop = rules.window
    in_sequences = "" if rules.split else f" whole in sequences of {rules.sequence_tokens}"
    or_distance = " or injection.copy_distance_tokens" if rules.distance else ""
    return ConfigError(
        f"injection.boundary is 'document', so each of the {len(segments):,} copies needs its "
        f"own document start where it fits{in_sequences}. Too few of the {n_starts:,} "
        f"starts in tokens {first:,} to {stop:,} of the corpus are suitable: raise "
        "injection.budget_tokens or injection.sequence_tokens, widen injection.window or "
        f"injection.last_tokens, lower the occurrences{or_distance}, set "
        "injection.split_copies=true, or choose injection.boundary=sentence."
    )
