"""Which examples are compared: a benchmark's members of one dose against its non-members."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

ANY = "any"
"""The dose that stands for all members, however often they were inserted."""

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Group:
    """Row positions in the examples table: members with `occurrences` copies, all non-members."""

    benchmark: str
    occurrences: str
    members: Rows
    nonmembers: Rows


def groups(examples: pd.DataFrame) -> list[Group]:
    """Every benchmark × dose that has examples on both sides; the others are logged.

    A member that was never inserted (a drawn frequency of 0) is on neither side.
    """
    benchmark = examples["benchmark"].to_numpy()
    member = examples["member"].to_numpy(bool)
    count = np.where(member, examples["occurrences"].to_numpy(), 0)
    subsets = {str(dose): count == dose for dose in sorted(set(count[count > 0].tolist()))}
    found = []
    for name in sorted(set(benchmark)):
        nonmembers = np.flatnonzero((benchmark == name) & ~member)
        for dose, subset in {**subsets, ANY: count > 0}.items():
            members = np.flatnonzero((benchmark == name) & subset)
            if len(members) and len(nonmembers):
                found.append(Group(name, dose, members, nonmembers))
            else:
                _say_left_out(name, dose, len(members), len(nonmembers))
    return found


def dose_order(occurrences: str) -> float:
    """Sort key of the column `occurrences`: by number, `any` last."""
    return float("inf") if occurrences == ANY else float(occurrences)


def _say_left_out(benchmark: str, dose: str, members: int, nonmembers: int) -> None:
    log.warning(
        "%s, occurrences %s: %d members and %d non-members, so it is left out of the results.",
        benchmark,
        dose,
        members,
        nonmembers,
    )
