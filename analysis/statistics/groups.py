"""Which examples are compared: a benchmark's members of equal occurrences, its non-members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.core.statistics.estimates import ALL_BENCHMARKS

ANY = "any"
"""Stands for all members, however often they were inserted."""

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ComparedGroup:
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
    def is_measurable(self) -> bool:
        """Whether there are examples on both sides."""
        return all(self.sizes)


def measurable_groups(examples: pd.DataFrame) -> list[ComparedGroup]:
    """Every benchmark × occurrences that has examples on both sides.

    A member that was never inserted (0 occurrences) is on neither side.
    """
    return [group for group in _iter_groups(examples) if group.is_measurable]


def describe_unmeasurable_groups(examples: pd.DataFrame) -> str:
    """The rest in words, such as "boolq (occurrences 2, 10), imdb (occurrences 7)"."""
    occurrences_by_benchmark: dict[str, list[str]] = defaultdict(list)
    for group in _iter_groups(examples):
        if not group.is_measurable:
            occurrences_by_benchmark[group.benchmark].append(group.occurrences)
    return ", ".join(
        f"{name} (occurrences {', '.join(occurrences)})"
        for name, occurrences in occurrences_by_benchmark.items()
    )


def groups_of_lacking_benchmarks(examples: pd.DataFrame) -> list[ComparedGroup]:
    """The groups of the benchmarks that lack members or non-members altogether."""
    all_groups = list(_iter_groups(examples))
    short = {g.benchmark for g in all_groups if g.occurrences == ANY and not g.is_measurable}
    return [group for group in all_groups if group.benchmark in short]


def _iter_groups(examples: pd.DataFrame) -> Iterator[ComparedGroup]:
    """Every benchmark × occurrences."""
    benchmark = examples["benchmark"].to_numpy()
    member = examples["member"].to_numpy(bool)
    count = np.where(member, examples["occurrences"].to_numpy(), 0)
    subsets = {str(n): count == n for n in sorted(set(count[count > 0].tolist()))}
    for name in sorted(set(benchmark)):
        nonmembers = np.flatnonzero((benchmark == name) & ~member)
        for occurrences, subset in {**subsets, ANY: count > 0}.items():
            members = np.flatnonzero((benchmark == name) & subset)
            yield ComparedGroup(name, occurrences, members, nonmembers)


def occurrences_sort_key(occurrences: str) -> float:
    """Sorts key of the column `occurrences`: by number, `any` last."""
    return float("inf") if occurrences == ANY else float(occurrences)


def sorted_benchmarks(rows: pd.DataFrame) -> list[str]:
    """Returns the benchmarks of a table's rows by name; `ALL`, their mean, is last."""
    return sorted(rows["benchmark"].unique(), key=lambda name: (name == ALL_BENCHMARKS, name))
