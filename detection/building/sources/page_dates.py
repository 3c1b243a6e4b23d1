"""When pages of a wiki were created: from a dump of all revisions (stub), or from a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

from core.errors import DataError
from core.progress import progress
from detection.building.dates import moment
from detection.building.sources.opening import damage, elements, opened
from injection.sources.files import find_shards
from injection.sources.reading import Reading, read
from injection.sources.tally import Tally

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
