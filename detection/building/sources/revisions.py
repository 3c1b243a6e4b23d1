"""What the revisions of a page say of it, in whatever order they stand.

A dump has a page's revisions by their numbers. One that was imported from another wiki has a later
number than its date, so the first in the file need not be the first there was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Version = tuple[datetime, str]
"""A text, and when it became that."""


@dataclass
class Revisions:
    """A page's revisions so far: two texts are held, however many there are."""

    before: datetime
    """`build.members_before`."""
    first: datetime | None = None
    """The earliest date of them; None: none has one."""
    number: int = 0
    """How many there are."""
    _is_new: bool = False
    _old: Version | None = None
    _last: Version | None = None

    def add(self, at: datetime | None, text: str | None, parent: int | None) -> None:
        """Take one in; its text may be hidden (None), or blank (an empty string)."""
        self.number += 1
        self._is_new = self._is_new or parent is None
        if at is None:
            return
        self.first = at if self.first is None else min(at, self.first)
        if text is not None:
            self._last = _later(self._last, (at, text))
            if at < self.before:
                self._old = _later(self._old, (at, text))

    @property
    def created(self) -> datetime | None:
        """The page's first date; None where only a later revision is there."""
        return self.first if self._is_new or self.number > 1 else None

    @property
    def version(self) -> Version | None:
        """Of a page that was there before the date the last text before it, else the last one.

        An empty text: the page was blank then. None: its texts are hidden.
        """
        was_there = self.first is not None and self.first < self.before
        return self._old if was_there else self._last


def _later(one: Version | None, other: Version) -> Version:
    return other if one is None or other[0] >= one[0] else one
