"""Which examples are compared: a benchmark's members of equal occurrences, its non-members."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

log = logging.getLogger(__name__)

ANY = "any"
"""Stands for all members, however often they were inserted."""

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Group:
    """Row positions in the examples table: members with `occurrences` copies, all non-members."""

    benchmark: str
    occurrences: str
    members: Rows
    nonmembers: Rows

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of members and of non-members."""
        return len(self.members), len(self.nonmembers)

    @property
    def measurable(self) -> bool:
        """Whether there are examples on both sides."""
        return all(self.sizes)


def groups(examples: pd.DataFrame) -> list[Group]:
    """Every benchmark × occurrences that has examples on both sides; the others are logged.

    A member that was never inserted (0 occurrences) is on neither side.
    """
    found = list(_every(examples))
    for group in found:
        if not group.measurable:
            log.warning(
                "%s, occurrences %s: %d members and %d non-members, so it is left out of the "
                "results.",
                *(group.benchmark, group.occurrences, *group.sizes),
            )
    return [group for group in found if group.measurable]


def lacking(examples: pd.DataFrame) -> list[Group]:
    """The groups of the benchmarks that lack members or non-members altogether."""
    found = list(_every(examples))
    short = {g.benchmark for g in found if g.occurrences == ANY and not g.measurable}
    return [group for group in found if group.benchmark in short]


def _every(examples: pd.DataFrame) -> Iterator[Group]:
    """Every benchmark × occurrences."""
    benchmark = examples["benchmark"].to_numpy()
    member = examples["member"].to_numpy(bool)
    count = np.where(member, examples["occurrences"].to_numpy(), 0)
    subsets = {str(n): count == n for n in sorted(set(count[count > 0].tolist()))}
    for name in sorted(set(benchmark)):
        nonmembers = np.flatnonzero((benchmark == name) & ~member)
        for occurrences, subset in {**subsets, ANY: count > 0}.items():
            members = np.flatnonzero((benchmark == name) & subset)
            yield Group(name, occurrences, members, nonmembers)


def occurrences_order(occurrences: str) -> float:
    """Sort key of the column `occurrences`: by number, `any` last."""
    return float("inf") if occurrences == ANY else float(occurrences)
