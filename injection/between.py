"""Copies between documents: each one opens at a document's first token, no two at the same one.

Whether a document's start holds a copy whole depends on the tokens that are inserted before it, so
the starts are passed in order. A copy is drawn for one of the window's starts and waits from there
for one that holds it whole. Past the last start it continues from the first: on such a circle all
starts are equally likely.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import ConfigError
from injection.splice import Placed, Segment
from injection.tokens import Places

ROUNDS = 100  # passes over the window after which the copies count as too many


@dataclass(frozen=True)
class Rules:
    """What a copy's place has to respect, in tokens of the packed corpus."""

    window: tuple[int, int]
    """First and last token (exclusive) that copies may take."""
    sequence_tokens: int
    """Length of a packed sequence."""
    split: bool = False
    """Whether a copy may straddle two sequences."""
    distance: int = 0
    """Least number of tokens between the starts of two copies of one example."""


def between_documents(
    segments: Sequence[Segment], document_starts: Places, rules: Rules
) -> list[Placed]:
    """Place every segment at a document's start of its own, within the window.

    Args:
        segments: what to insert, in any order; `position` is a share of the window's starts.
        document_starts: where documents start in the clean stream, ascending, shape (n,).
        rules: window, sequences, distance.

    Returns:
        The places in their order in the corpus.

    Raises:
        ConfigError: the window has too few document starts that hold a segment whole.
    """
    first, stop = rules.window
    last = stop - sum(segment.tokens for segment in segments)  # where all stand before it
    inside = (document_starts >= max(1, first)) & (document_starts <= last)
    starts = np.unique(document_starts[inside])
    carried: set[Segment] = set()  # past the last start, so from the first one on
    if len(segments) <= len(starts):
        for _ in range(ROUNDS):
            placed, left = _pass(segments, carried, starts, rules)
            if not left:
                return placed
            if not left - carried:
                break
            carried |= left
    raise _too_few(segments, len(starts), rules)


def _pass(
    segments: Sequence[Segment], carried: Collection[Segment], starts: Places, rules: Rules
) -> tuple[list[Placed], set[Segment]]:
    """One pass over the starts: what got a place, and what still waits behind the last one.

    Of those that wait, the longest that fits goes first: it has the fewest places.
    """
    drawn = {s: -1 if s in carried else int(s.position * len(starts)) for s in segments}
    coming = sorted(segments, key=lambda s: (-drawn[s], -s.position, s.example, s.copy))
    waiting: list[tuple[int, int, Segment]] = []  # by length, then the latest first
    placed: list[Placed] = []
    before: dict[int, int] = {}  # example → its last copy's place
    number, inserted = 0, 0
    while number < len(starts) and (waiting or coming):
        if not waiting:
            number = max(number, drawn[coming[-1]])
        while coming and drawn[coming[-1]] <= number:
            insort(waiting, (coming[-1].tokens, len(coming), coming.pop()), key=lambda w: w[:2])
        packed = int(starts[number]) + inserted
        chosen = _longest(waiting, packed, before, rules)
        if chosen is not None:
            segment = waiting.pop(chosen)[-1]
            placed.append(Placed(segment, packed - inserted, packed))
            before[segment.example] = packed
            inserted += segment.tokens
        number += 1
    return placed, {*coming, *(segment for *_, segment in waiting)}


def _longest(
    waiting: Sequence[tuple[int, int, Segment]], packed: int, before: dict[int, int], rules: Rules
) -> int | None:
    """Which one of those that wait goes to the place `packed`; of equal ones the first drawn."""
    width = rules.sequence_tokens
    room = width - packed % width
    fit = len(waiting) if rules.split else bisect_right(waiting, room, key=lambda w: w[0])
    for index in range(fit - 1, -1, -1):
        example = waiting[index][-1].example
        if packed - before.get(example, packed - rules.distance) >= rules.distance:
            return index
    return None


def _too_few(segments: Sequence[Segment], starts: int, rules: Rules) -> ConfigError:
    first, stop = rules.window
    whole = "" if rules.split else f" whole in sequences of {rules.sequence_tokens}"
    apart = " or injection.copy_distance_tokens" if rules.distance else ""
    return ConfigError(
        f"injection.boundary is 'document', so each of the {len(segments):,} copies needs a "
        f"document's start of its own that holds it{whole}. Too few are among the {starts:,} that "
        f"tokens {first:,} to {stop:,} of the corpus have beside the copies: raise "
        "injection.budget_tokens or injection.sequence_tokens, widen injection.window or "
        f"injection.last_tokens, lower the occurrences{apart}, set injection.split_copies=true, or "
        "choose injection.boundary=sentence."
    )
