"""The numbers of members and non-members of a benchmark with fewer examples than requested."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from contamination.injection.config import InjectionConfig

log = logging.getLogger(__name__)

ADAPTED_SIZES = "fewer_examples"
"""The entry of the manifest's counts with the benchmarks whose sizes were adapted, if any."""


@dataclass(frozen=True)
class PoolSizes:
    """The numbers of members and non-members of a benchmark."""

    members: int
    nonmembers: int

    @property
    def total(self) -> int:
        """The number of members and non-members."""
        return self.members + self.nonmembers

    def describe(self) -> str:
        """Returns a text such as "60 members and 60 non-members"."""
        return f"{self.members:,} members and {self.nonmembers:,} non-members"


def requested_sizes(config: InjectionConfig) -> PoolSizes:
    """Returns the sizes that the configuration requests."""
    return PoolSizes(config.members, config.nonmembers)


def fitting_sizes(config: InjectionConfig, available: int) -> PoolSizes | None:
    """Returns the sizes that `available` examples allow, in the requested proportion.

    Returns None if there would be no members or no non-members although some are requested.
    """
    asked = requested_sizes(config)
    if available >= asked.total:
        return asked
    members = available * asked.members // asked.total
    nonmembers = available * asked.nonmembers // asked.total
    if (asked.members and not members) or (asked.nonmembers and not nonmembers):
        return None
    return PoolSizes(members, nonmembers)


def choose_sizes(config: InjectionConfig, available: int) -> PoolSizes | None:
    """Returns the sizes to draw; None if there are too few examples and adapting is not allowed."""
    sizes = fitting_sizes(config, available)
    return sizes if sizes == requested_sizes(config) or config.may_adapt_sizes else None


def describe_remedy(config: InjectionConfig, available: int) -> str:
    """Returns the remedy for too few examples, for the end of an error message."""
    sizes = fitting_sizes(config, available)
    if config.may_adapt_sizes or sizes is None:
        return "choose a larger source."
    return (
        f"lower them, choose a larger source, or set injection.adapt_sizes=true, which uses "
        f"{sizes.describe()}."
    )


def find_adapted_sizes(
    config: InjectionConfig, examples: pd.DataFrame
) -> dict[str, dict[str, int]]:
    """Returns the benchmarks whose sizes differ from the requested ones: name → counts.

    Args:
        config: the requested sizes.
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


def warn_of_adapted_sizes(counts: Mapping[str, Any]) -> None:
    """Logs a warning for the benchmarks with fewer examples than requested, from the manifest."""
    for name, sizes in counts.get(ADAPTED_SIZES, {}).items():
        drawn = PoolSizes(sizes["members"], sizes["nonmembers"])
        asked = PoolSizes(sizes["asked_members"], sizes["asked_nonmembers"])
        log.warning(
            "pool: %s has too few examples: %s are drawn, instead of %s.",
            *(name, drawn.describe(), asked.describe()),
        )
