"""When a document was written, and on which side of the cut-offs it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from numbers import Real
from typing import Any

from contamination.core.errors import ConfigError, require

SECONDS = re.compile(r"-?\d{9,11}(\.\d+)?")
YEAR = 365 * 24 * 3600
"""Seconds. Numbers below are no time of 1970 but a year, a day such as 20150301, or none."""
MEMBER, NONMEMBER = "member", "non-member"
BETWEEN, UNKNOWN, EDITED = "between the cut-offs", "of unknown date", "edited since"


@dataclass(frozen=True)
class Dated:
    """One document as it stands in its source, before anything is made of its text."""

    id: str
    title: str
    created: datetime | None
    """None: not known."""
    changed: datetime | None
    """When its text became what it is; None: not known."""
    raw: str


@dataclass(frozen=True)
class CutOffs:
    """Members were created before the first date, non-members from the second on."""

    members_before: datetime
    nonmembers_from: datetime

    @classmethod
    def of(cls, members_before: str, nonmembers_from: str) -> CutOffs:
        """Of two ISO dates; where they name no zone, of UTC.

        Raises:
            ConfigError: one is no date, or they cross.
        """
        given = {"members_before": members_before, "nonmembers_from": nonmembers_from}
        try:
            first, second = (moment(value, UTC) for value in given.values())
        except ValueError as error:
            raise ConfigError(
                f"build.members_before is {members_before!r} and build.nonmembers_from is "
                f"{nonmembers_from!r}: {error}. Give dates such as 2017-01-01."
            ) from error
        remedy = f"it must not be after build.nonmembers_from={nonmembers_from}: they cross."
        require(first <= second, "build.members_before", members_before, remedy)
        return cls(first, second)

    def side(self, document: Dated, unchanged_members: bool) -> str:
        """MEMBER or NONMEMBER; else why it is neither.

        A text that already was what it is before the first date was created before it as well.

        Args:
            document: the document, with the dates that are known.
            unchanged_members: whether a member's text must have become what it is before the first
                date. Else a page of 2010 whose text is of 2024 is a member.
        """
        created, changed = document.created or document.changed, document.changed
        if created is not None and created < self.members_before:
            if not unchanged_members:
                return MEMBER
            if changed is None:
                return UNKNOWN
            return MEMBER if changed < self.members_before else EDITED
        if document.created is None:
            return UNKNOWN
        return NONMEMBER if document.created >= self.nonmembers_from else BETWEEN


def moment(value: Any, zone: tzinfo | None) -> datetime:
    """A date in UTC: of ISO 8601 (2023-01-31, 2023-01-31T12:00:00Z) or of Unix seconds.

    Args:
        value: what a source has.
        zone: of dates that name none; None: there must be none of these.

    Raises:
        ValueError: it is no date, or names no zone.
    """
    if not isinstance(value, bool | datetime) and SECONDS.fullmatch(str(value).strip()):
        value = float(value)  # a table without types, such as a CSV file, has them as words
    if isinstance(value, Real) and not isinstance(value, bool):
        if 0 <= float(value) < YEAR:
            raise ValueError(
                f"{value} is in 1970 as Unix seconds: a year or a day goes as 2015-03-01"
            )
        return datetime.fromtimestamp(float(value), UTC)
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    if found.tzinfo is None:
        if zone is None:
            raise ValueError(f"the date {str(value)!r} names no time zone")
        found = found.replace(tzinfo=zone)
    return found.astimezone(UTC)
