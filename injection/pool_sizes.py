"""How many members and non-members a benchmark gives, if it has fewer examples than asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from contamination.injection.config import InjectionConfig

log = logging.getLogger(__name__)

FEWER = "fewer_examples"
"""The manifest's count of benchmarks whose numbers were adapted; missing where none was."""


@dataclass(frozen=True)
class PoolSizes:
    """Members and non-members of one benchmark."""

    members: int
    nonmembers: int

    @property
    def total(self) -> int:
        """The number of both."""
        return self.members + self.nonmembers

    def describe(self) -> str:
        """Returns for example "60 members and 60 non-members"."""
        return f"{self.members:,} members and {self.nonmembers:,} non-members"


def asked_sizes(config: InjectionConfig) -> PoolSizes:
    """Returns the sizes that the configuration asks for."""
    return PoolSizes(config.members, config.nonmembers)


def fitting_sizes(config: InjectionConfig, available: int) -> PoolSizes | None:
    """Returns the sizes that `available` examples allow, in the proportion that is asked for.

    None: one of the two that are asked for would have no example.
    """
    asked = asked_sizes(config)
    if available >= asked.total:
        return asked
    members = available * asked.members // asked.total
    nonmembers = available * asked.nonmembers // asked.total
    if (asked.members and not members) or (asked.nonmembers and not nonmembers):
        return None
    return PoolSizes(members, nonmembers)


def choose_sizes(config: InjectionConfig, available: int) -> PoolSizes | None:
    """Returns the sizes to draw; None if there are too few examples and they may not be adapted."""
    sizes = fitting_sizes(config, available)
    return sizes if sizes == asked_sizes(config) or config.may_adapt_sizes else None


def describe_remedy(config: InjectionConfig, available: int) -> str:
    """Returns what to do about too few examples, to end an error with."""
    sizes = fitting_sizes(config, available)
    if config.may_adapt_sizes or sizes is None:
        return "choose a larger source."
    return (
        f"lower them, choose a larger source, or set injection.adapt_sizes=true, which takes "
        f"{sizes.describe()}."
    )


def find_adapted(config: InjectionConfig, examples: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Returns the benchmarks that have other sizes than asked for: name → counts.

    Args:
        config: what was asked for.
        examples: the drawn pool, with the columns benchmark and member.
    """
    adapted = {}
    for name, members in examples.groupby("benchmark")["member"]:
        n_members = int(members.astype(bool).sum())
        if len(members) < config.members + config.nonmembers:
            adapted[str(name)] = {
                "members": n_members,
                "nonmembers": len(members) - n_members,
                "asked_members": config.members,
                "asked_nonmembers": config.nonmembers,
            }
    return adapted


def warn_of_adapted(counts: Mapping[str, Any]) -> None:
    """Log the benchmarks with fewer examples than asked for, which a manifest counts."""
    for name, sizes in counts.get(FEWER, {}).items():
        drawn = PoolSizes(sizes["members"], sizes["nonmembers"])
        asked = PoolSizes(sizes["asked_members"], sizes["asked_nonmembers"])
        log.warning(
            "pool: %s has too few examples: %s are drawn, instead of %s.",
            *(name, drawn.describe(), asked.describe()),
        )
