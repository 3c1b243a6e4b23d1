"""The dates of documents, and the cut-off dates of members and non-members."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from numbers import Real
from typing import Any

from contamination.core.errors import ConfigError, require

SECONDS = re.compile(r"-?\d{9,11}(\.\d+)?")
YEAR = 365 * 24 * 3600
"""Seconds. A smaller number is not a time in 1970 but a year, or a day such as 20150301."""
MEMBER, NONMEMBER = "member", "non-member"
BETWEEN, UNKNOWN, EDITED = "between the cut-offs", "of unknown date", "edited since"


@dataclass(frozen=True)
class DatedDocument:
    """A document as it is in its source, with unprocessed text."""

    id: str
    title: str
    created: datetime | None
    """None if unknown."""
    changed: datetime | None
    """The time of the last edit of its text; None if unknown."""
    raw: str


@dataclass(frozen=True)
class CutOffs:
    """The date before which members were created, and the date from which non-members were."""

    members_before: datetime
    nonmembers_from: datetime

    @classmethod
    def from_dates(cls, members_before: str, nonmembers_from: str) -> CutOffs:
        """Returns the cut-offs from two ISO dates, in UTC unless they name a time zone.

        Raises:
            ConfigError: a value is no date, or the dates cross.
        """
        try:
            members_end = parse_time(members_before, UTC)
            nonmembers_start = parse_time(nonmembers_from, UTC)
        except ValueError as error:
            raise ConfigError(
                f"build.members_before is {members_before!r} and build.nonmembers_from is "
                f"{nonmembers_from!r}: {error}. Give dates such as 2017-01-01."
            ) from error
        remedy = f"it must not be after build.nonmembers_from={nonmembers_from}: they cross."
        require(members_end <= nonmembers_start, "build.members_before", members_before, remedy)
        return cls(members_end, nonmembers_start)

    def side_or_reason(self, document: DatedDocument, unchanged_members: bool) -> str:
        """Returns MEMBER or NONMEMBER, or else the reason why the document is neither.

        A text that was last edited before the first date was also created before it.

        Args:
            document: the document, with the dates that are known.
            unchanged_members: whether a member's text must be unchanged since the first date.
                Otherwise a page of 2010 with a text of 2024 is a member.
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


def parse_time(value: Any, zone: tzinfo | None) -> datetime:
    """Returns a time in UTC from ISO 8601 (2023-01-31, 2023-01-31T12:00:00Z) or Unix seconds.

    Args:
        value: the source's value.
        zone: the time zone of values that name none; None if such values are errors.

    Raises:
        ValueError: the value is no date, names no time zone, or is out of datetime's range.
    """
    try:
        return _parse_time(value, zone)
    except OverflowError as error:
        raise ValueError(f"the date {value!r:.60} is out of range ({error})") from error


def _parse_time(value: Any, zone: tzinfo | None) -> datetime:
    if not isinstance(value, bool | datetime) and SECONDS.fullmatch(str(value).strip()):
        value = float(value)  # in a CSV file they are strings
    if isinstance(value, Real) and not isinstance(value, bool):
        if 0 <= float(value) < YEAR:
            raise ValueError(
                f"{value} is in 1970 as Unix seconds: write a year or a day as 2015-03-01"
            )
        return datetime.fromtimestamp(float(value), UTC)
    date = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    if date.tzinfo is None:
        if zone is None:
            raise ValueError(f"the date {str(value)!r} names no time zone")
        date = date.replace(tzinfo=zone)
    return date.astimezone(UTC)
