"""How often each member is inserted: one class a design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from contamination.core.config import PART, Range, Ranged, between, limited

MOST = 1_000_000_000  # copies of a member
COPIES = between(0, MOST)
RUNGS = Range(
    lambda rungs: len(rungs) > 0 and all(map(COPIES.holds, rungs)),
    f"give at least one number of copies, each from 0 to {MOST:,}.",
)
RATE = Range(lambda rate: 0 < rate <= MOST, f"give a mean above 0 and at most {MOST:,}.")
Counts = np.ndarray[Any, np.dtype[np.int64]]


class Occurrences(Protocol):
    """How many copies of each member are inserted."""

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Occurrences of each member, shape (n,).

        Args:
            tokens: one copy's tokens with its separators, by member, shape (n,).
            budget_tokens: the benchmark's equal share of the corpus's tokens.
            rng: the benchmark's own.
        """
        ...


@dataclass(frozen=True)
class Fixed(Ranged, node="occurrences"):
    """Every member the same number of times."""

    count: int = limited(1, COPIES)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """One number for all members, shape (n,)."""
        return np.full(len(tokens), self.count, dtype=np.int64)


@dataclass(frozen=True)
class Ladder(Ranged, node="occurrences"):
    """Equal shares of the members on each rung, drawn at random."""

    rungs: tuple[int, ...] | list[int] = limited((1, 2, 4, 8), RUNGS)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """A rung for each, shape (n,); the rungs' shares differ by one member at most."""
        rungs = np.asarray(self.rungs, dtype=np.int64)
        return rng.permutation(rungs[np.arange(len(tokens)) % len(rungs)])


@dataclass(frozen=True)
class Poisson(Ranged, node="occurrences"):
    """A Poisson number a member (Shi et al. 2024, section 6.1); draws of 0 stay 0."""

    rate: float = limited(4.0, RATE)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Independent draws, shape (n,)."""
        return rng.poisson(self.rate, len(tokens)).astype(np.int64)


@dataclass(frozen=True)
class Share(Ranged, node="occurrences"):
    """As many copies as fill a share of the corpus's tokens, as even over members as can be."""

    share: float = limited(0.05, PART)

    def draw(self, tokens: Counts, budget_tokens: int, rng: np.random.Generator) -> Counts:
        """Whole rounds over all members, then a random part of one more, shape (n,)."""
        wanted = self.share * budget_tokens
        rounds, rest = divmod(wanted, max(1, int(tokens.sum())))
        order = rng.permutation(len(tokens))
        counts = np.full(len(tokens), int(rounds), dtype=np.int64)
        counts[order[np.cumsum(tokens[order]) <= rest]] += 1
        return counts
