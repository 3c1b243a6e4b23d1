"""Experimental designs: how often each member is inserted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from contamination.core.config import (
    PROPER_FRACTION,
    Range,
    Ranged,
    at_least,
    between,
    ranged_field,
)

MAX_COPIES = 1_000_000_000  # of one member
COPIES_RANGE = between(0, MAX_COPIES)
RUNGS_RANGE = Range(
    lambda rungs: len(rungs) > 0 and all(map(COPIES_RANGE.allows, rungs)),
    f"give at least one number of copies, each from 0 to {MAX_COPIES:,}.",
)
RATE_RANGE = Range(
    lambda rate: 0 < rate <= MAX_COPIES, f"give a mean above 0 and at most {MAX_COPIES:,}."
)
Counts = np.ndarray[Any, np.dtype[np.int64]]


class Occurrences(Protocol):
    """Decides how many copies of each member are inserted."""

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns the occurrences of each member, shape (n,).

        Args:
            tokens: the tokens of one copy of each member, with separators, shape (n,).
            budget_tokens: the benchmark's equal share of the corpus's tokens.
            rng: the benchmark's random generator.
        """
        ...


@dataclass(frozen=True)
class Fixed(Ranged, node="occurrences"):
    """Inserts every member the same number of times."""

    count: int = ranged_field(1, COPIES_RANGE)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns the same number for all members, shape (n,)."""
        return np.full(len(tokens), self.count, dtype=np.int64)


@dataclass(frozen=True)
class Ladder(Ranged, node="occurrences"):
    """Assigns equal shares of the members to each rung, at random."""

    rungs: tuple[int, ...] | list[int] = ranged_field((1, 2, 4, 8), RUNGS_RANGE)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns each member's rung, shape (n,); the shares differ by at most one member."""
        rungs = np.asarray(self.rungs, dtype=np.int64)
        return rng.permutation(rungs[np.arange(len(tokens)) % len(rungs)])


@dataclass(frozen=True)
class Poisson(Ranged, node="occurrences"):
    """Draws from a Poisson distribution, including zeros (Shi et al. 2024, section 6.1)."""

    rate: float = ranged_field(4.0, RATE_RANGE)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns independent draws, shape (n,)."""
        return rng.poisson(self.rate, len(tokens)).astype(np.int64)


@dataclass(frozen=True)
class Share(Ranged, node="occurrences"):
    """Fills a share of the corpus's tokens with copies, distributed evenly over the members."""

    share: float = ranged_field(0.05, PROPER_FRACTION)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns full rounds over all members plus a random part of one more, shape (n,)."""
        copy_tokens = self.share * budget_tokens
        rounds, remaining_tokens = divmod(copy_tokens, max(1, int(tokens.sum())))
        order = rng.permutation(len(tokens))
        counts = np.full(len(tokens), int(rounds), dtype=np.int64)
        counts[order[np.cumsum(tokens[order]) <= remaining_tokens]] += 1
        return counts


@dataclass(frozen=True)
class Ordered(Ranged, node="occurrences"):
    """Inserts members in a random canonical order, in shards of consecutive examples.

    A shard is never split between sequences (see `injection.ordering`).
    """

    count: int = ranged_field(1, COPIES_RANGE)
    """The number of copies of each shard."""
    shard_examples: int | None = ranged_field(None, at_least(2))
    """The number of examples of each shard (the last may have fewer); null: as many as fit into a
    sequence."""

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Returns the same number for all members, shape (n,)."""
        return np.full(len(tokens), self.count, dtype=np.int64)


ORDERED_TARGET = f"{Ordered.__module__}.{Ordered.__qualname__}"
"""How a stored config names the class; it is compared, not imported."""
