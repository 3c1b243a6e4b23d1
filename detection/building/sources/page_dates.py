"""The creation dates of a wiki's pages, from a dump of all revisions (stub) or from a table."""

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
from contamination.core.progress import progress_bar
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import ReadOptions, Tally, read_file
from contamination.detection.building.dates import parse_time
from contamination.detection.building.sources import xml_streams

FIELDS = ("page_id", "created")
ARTICLE = "0"
"""The namespace of articles."""


class PageDates:
    """Dates by page id in a memory-mapped array: 16 bytes per page, shared by all processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _table(self) -> Any:
        """Ids in ascending order and Unix seconds, shape (2, pages)."""
        return np.load(self._path, mmap_mode="r")

    def date_of(self, page: int) -> datetime | None:
        """Returns the creation date of a page; None if the array does not include the page."""
        ids, seconds = self._table
        index = int(np.searchsorted(ids, page))
        if index == len(ids) or ids[index] != page:
            return None
        return datetime.fromtimestamp(int(seconds[index]), UTC)


def write_date_array(path: Path, array_file: Path, max_bytes: int) -> dict[str, Any]:
    """Writes the array of a dump's or a table's dates; returns the number of pages.

    Args:
        path: the dump or the table.
        array_file: the file to write.
        max_bytes: the largest number of bytes of a revision or a row.

    Raises:
        DataError: the input can't be read, or has no page.
    """
    ids, seconds = array("q"), array("q")
    tally = Tally("stop", "source.on_error")
    read_rows = _iter_dump_dates if ".xml" in path.suffixes else _iter_table_dates
    for page, created in read_rows(path, max_bytes, tally):
        ids.append(page)
        seconds.append(created)
    if not ids:
        raise DataError(f"source.dates is {str(path)!r}: it has no page with a date.")
    table = np.array([ids, seconds], np.int64)
    table = table[:, np.lexsort(table[::-1])]  # by id, and then by date
    first_rows = np.flatnonzero(np.diff(table[0], prepend=-1))
    np.save(array_file, table[:, first_rows])
    return {"pages": len(first_rows)}


def _iter_dump_dates(path: Path, max_bytes: int, tally: Tally) -> Iterator[tuple[int, int]]:
    size = path.stat().st_size
    bar = progress_bar(desc="reading dates", total=size, unit="B", unit_scale=True)
    position = "its beginning"
    with (
        bar,
        xml_streams.report_damage(tally, lambda: f"{path}, after {position}"),
        xml_streams.open_decompressed(path, ".xml", bar.update) as stream,
    ):
        for page, first_date in _iter_first_dates(stream, max_bytes, tally, path):
            position = f"page {page}"
            try:
                yield _parse_id(page), int(parse_time(first_date, UTC).timestamp())
            except ValueError as error:
                tally.reject("no date", f"{path}, {position}", str(error))


def _iter_first_dates(
    stream: BinaryIO, max_bytes: int, tally: Tally, path: Path
) -> Iterator[tuple[str, str]]:
    """Yields each article's id and its earliest date in ISO 8601, which sorts as a string.

    mwxml would take four times as long, since it creates an object per revision. The first
    revision in the file is not always the earliest.
    """
    events = xml_streams.iter_elements(stream, max_bytes, ("revision", "page"))
    root = next(events)[1]
    if (tag := _local_name(root)) != "mediawiki":
        tally.reject("no MediaWiki dump", str(path), f"its root is <{tag}>, not <mediawiki>")
        return
    page: dict[str, str] = {}
    for event, element in events:
        if event == "start":
            continue
        name, text = _local_name(element), element.text or ""
        if name == "timestamp":
            page[name] = min(text, page.get(name, text))
        elif name in ("id", "ns"):
            page.setdefault(name, text)  # a page's own id comes before those of its revisions
        elif name == "revision":
            element.clear()
        elif name == "page":
            if page.get("ns", ARTICLE) == ARTICLE and "timestamp" in page:
                yield page.get("id", ""), page["timestamp"]
            page = {}
            root.clear()


def _local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _iter_table_dates(path: Path, max_bytes: int, tally: Tally) -> Iterator[tuple[int, int]]:
    (shard,) = find_shards(str(path), "auto", "source.dates")
    for row in read_file(
        shard, ReadOptions(tally, line_bytes=max_bytes, limit="source.max_text_bytes")
    ):
        if missing := [name for name in FIELDS if name not in row.value]:
            fields = ", ".join(map(str, row.value)) or "none"
            tally.reject("missing field", row.where, f"no {missing[0]!r}; its fields are {fields}")
        try:
            page, created = (row.value[name] for name in FIELDS)
            yield _parse_id(page), int(parse_time(created, None).timestamp())
        except (TypeError, ValueError) as error:
            tally.reject("no date", row.where, str(error))


def _parse_id(page: Any) -> int:
    """Returns a page's id; raises a ValueError if it does not fit into 64 bits."""
    try:
        number = int(page)
    except OverflowError as error:
        raise ValueError(f"the page id is {page!r}: give a whole number") from error
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the page id {page!r:.60} does not fit into 64 bits")
    return number


Version = tuple[datetime, str]
"""A text, and the date since which the page has it."""


@dataclass
class Revisions:
    """A page's revisions so far, of which at most two texts are in memory."""

    before: datetime
    """`build.members_before`."""
    first: datetime | None = None
    """The earliest date; None if no revision has one."""
    count: int = 0
    """The number of revisions."""
    _is_new: bool = False
    _old: Version | None = None
    _last: Version | None = None

    def add(self, date: datetime | None, text: str | None, parent: int | None) -> None:
        """Adds a revision; its text may be hidden (None) or blank (an empty string)."""
        self.count += 1
        self._is_new = self._is_new or parent is None
        if date is None:
            return
        self.first = date if self.first is None else min(date, self.first)
        if text is not None:
            self._last = _later_version(self._last, (date, text))
            if date < self.before:
                self._old = _later_version(self._old, (date, text))

    @property
    def created(self) -> datetime | None:
        """The page's creation date; None if the dump has only a later revision."""
        return self.first if self._is_new or self.count > 1 else None

    @property
    def version_to_use(self) -> Version | None:
        """The last version before the date if the page existed then, else the last version.

        The text is empty if the page was blank. None if the texts are hidden.
        """
        existed = self.first is not None and self.first < self.before
        return self._old if existed else self._last


def _later_version(current: Version | None, new: Version) -> Version:
    return new if current is None or new[0] >= current[0] else current
