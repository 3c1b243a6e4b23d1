"""When pages of a wiki were created: from a dump of all revisions (stub), or from a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

from contamination.core.errors import DataError
from contamination.core.progress import progress
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import Reading, Tally, read
from contamination.detection.building.dates import moment
from contamination.detection.building.sources.archives import damage, elements, opened

FIELDS = ("page_id", "created")
ARTICLE = "0"
"""The namespace of articles."""


class PageDates:
    """Dates by page id, in an array that is mapped: 16 bytes a page, whatever reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _table(self) -> Any:
        """Ids in ascending order and Unix seconds, shape (2, pages)."""
        return np.load(self._path, mmap_mode="r")

    def of(self, page: int) -> datetime | None:
        """When the page was created; None: it is not there."""
        ids, seconds = self._table
        place = int(np.searchsorted(ids, page))
        known = place < len(ids) and ids[place] == page
        return datetime.fromtimestamp(int(seconds[place]), UTC) if known else None


def read_dates(given: Path, into: Path, most: int) -> dict[str, Any]:
    """Write the array; returns how many pages it has. A revision or a row has `most` bytes.

    Raises:
        DataError: it can't be read, or has no page.
    """
    ids, seconds = array("q"), array("q")
    tally = Tally("stop", "source.on_error")
    for page, created in (_of_dump if ".xml" in given.suffixes else _of_table)(given, most, tally):
        ids.append(page)
        seconds.append(created)
    if not ids:
        raise DataError(f"source.dates is {str(given)!r}: it has no page with a date.")
    table = np.array([ids, seconds], np.int64)
    table = table[:, np.lexsort(table[::-1])]  # by id, of several dates the first
    keep = np.flatnonzero(np.diff(table[0], prepend=-1))
    np.save(into, table[:, keep])
    return {"pages": len(keep)}


def _of_dump(path: Path, most: int, tally: Tally) -> Iterator[tuple[int, int]]:
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True}
    bar = progress(desc="reading dates", total=path.stat().st_size, **shown)
    last = "its beginning"
    with (
        bar,
        damage(tally, lambda: f"{path}, after {last}"),
        opened(path, ".xml", bar.update) as stream,
    ):
        for page, first in _firsts(stream, most, tally, path):
            last = f"page {page}"
            try:
                yield int(page), int(moment(first, UTC).timestamp())
            except ValueError as error:
                tally.bad("no date", f"{path}, {last}", str(error))


def _firsts(stream: BinaryIO, most: int, tally: Tally, path: Path) -> Iterator[tuple[str, str]]:
    """Of each article its id and its earliest date, as written: ISO 8601, which sorts.

    Not by mwxml, which makes an object of each revision: that takes four times as long. The first
    in the file is not always the earliest (see `revisions`).
    """
    events = elements(stream, most, ("revision", "page"))
    root = next(events)[1]
    if _name(root) != "mediawiki":
        tally.bad("no MediaWiki dump", str(path), f"its root is <{_name(root)}>, not <mediawiki>")
        return
    found: dict[str, str] = {}
    for event, element in events:
        if event == "start":
            continue
        name, text = _name(element), element.text or ""
        if name == "timestamp":
            found[name] = min(text, found.get(name, text))
        elif name in ("id", "ns"):
            found.setdefault(name, text)  # a page's own id stands before those of its revisions
        elif name == "revision":
            element.clear()
        elif name == "page":
            if found.get("ns", ARTICLE) == ARTICLE and "timestamp" in found:
                yield found.get("id", ""), found["timestamp"]
            found = {}
            root.clear()


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _of_table(path: Path, most: int, tally: Tally) -> Iterator[tuple[int, int]]:
    (shard,) = find_shards(str(path), "auto", "source.dates")
    for row in read(shard, Reading(tally, line_bytes=most, limit="source.max_text_bytes")):
        if missing := [name for name in FIELDS if name not in row.value]:
            has = ", ".join(map(str, row.value)) or "none"
            tally.bad("missing field", row.where, f"no {missing[0]!r}; its fields are {has}")
        try:
            page, created = (row.value[name] for name in FIELDS)
            yield int(page), int(moment(created, None).timestamp())
        except (TypeError, ValueError) as error:
            tally.bad("no date", row.where, str(error))


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
