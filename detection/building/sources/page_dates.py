"""When pages of a wiki were created: from a dump of all revisions (stub), or from a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import DataError, said
from core.progress import progress
from detection.building.dates import moment
from detection.building.sources.dump import ARTICLES, malformed, pages
from detection.building.sources.opening import damage, opened
from injection.sources.files import find_shards
from injection.sources.reading import Reading, read
from injection.sources.tally import Tally

FIELDS = ("page_id", "created")


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


def read_dates(given: Path, into: Path) -> dict[str, Any]:
    """Write the array; returns how many pages it has.

    Raises:
        DataError: it can't be read, or has no page.
    """
    ids, seconds = array("q"), array("q")
    tally = Tally("stop", "source.on_error")
    for page, created in (_of_dump if ".xml" in given.suffixes else _of_table)(given, tally):
        ids.append(page)
        seconds.append(created)
    if not ids:
        raise DataError(f"source.dates is {str(given)!r}: it has no page with a date.")
    table = np.array([ids, seconds], np.int64)
    table = table[:, np.lexsort(table[::-1])]  # by id, of several dates the first
    keep = np.flatnonzero(np.diff(table[0], prepend=-1))
    np.save(into, table[:, keep])
    return {"pages": len(keep)}


def _of_dump(path: Path, tally: Tally) -> Iterator[tuple[int, int]]:
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True}
    bar = progress(desc="reading dates", total=path.stat().st_size, **shown)
    last = "its beginning"
    with (
        bar,
        damage(tally, lambda: f"{path}, after {last}"),
        opened(path, ".xml", bar.update) as stream,
    ):
        for page in pages(stream, tally, path):
            if page.namespace == ARTICLES:
                last = f"page {page.id}"
                first = _first(page, tally, f"{path}, {last}")
                if first is not None:
                    yield page.id, first


def _first(page: Any, tally: Tally, where: str) -> int | None:
    """The earliest date of a page's revisions; an imported one has a later number than its date."""
    try:
        return min((int(r.timestamp.unix()) for r in page if r.timestamp is not None), default=None)
    except malformed() as error:
        tally.bad("no MediaWiki dump", where, said(error))
        return None


def _of_table(path: Path, tally: Tally) -> Iterator[tuple[int, int]]:
    (shard,) = find_shards(str(path), "auto", "source.dates")
    for row in read(shard, Reading(tally)):
        if missing := [name for name in FIELDS if name not in row.value]:
            has = ", ".join(map(str, row.value)) or "none"
            tally.bad("missing field", row.where, f"no {missing[0]!r}; its fields are {has}")
        try:
            page, created = (row.value[name] for name in FIELDS)
            yield int(page), int(moment(created, None).timestamp())
        except (TypeError, ValueError) as error:
            tally.bad("no date", row.where, str(error))
