"""The documents that may be taken: of each group those whose ids have the smallest hashes.

A hash decides, not the order in which documents come by. So files are read in any order, by any
number of processes, and memory holds a fixed number of documents a group.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import zstandard

from contamination.core.errors import DataError
from contamination.core.progress import progress
from contamination.core.seeds import derive
from contamination.data.readers.rows import Tally
from contamination.detection.building.dates import MEMBER, NONMEMBER, CutOffs, Dated
from contamination.detection.building.sources import Source

Keyed = tuple[int, Dated]


@dataclass
class Smallest:
    """The documents of the smallest keys, a fixed number of each group."""

    number: int
    _heaps: dict[str, list[tuple[int, int, Dated]]] = field(default_factory=dict)
    _order: Iterator[int] = field(default_factory=count)

    def add(self, group: str, key: int, document: Dated) -> None:
        """Take the document if it is among them so far."""
        heap = self._heaps.setdefault(group, [])
        if len(heap) < self.number:
            heapq.heappush(heap, (-key, next(self._order), document))
        elif -heap[0][0] > key:
            heapq.heapreplace(heap, (-key, next(self._order), document))

    def __iter__(self) -> Iterator[tuple[str, int, Dated]]:
        """Group, key and document, in ascending order."""
        for group in sorted(self._heaps):
            for key, _, document in sorted(self._heaps[group], reverse=True):
                yield group, -key, document


@dataclass(frozen=True)
class Scan:
    """Reads the source's files, each one a piece of the task (see `core.tasks.Task`)."""

    source: Source
    cut_offs: CutOffs
    seed: int
    number: int
    """Documents of a group that are kept of each file."""
    by_month: bool
    """Whether non-members are grouped by the month of their creation."""
    folder: Path
    processes: int

    def __len__(self) -> int:
        """How many files."""
        return len(self.source.files)

    def done(self, piece: int) -> Path:
        """What says that a file is read."""
        return self.folder / f"{piece:05d}.json"

    def files(self, piece: int) -> list[Path]:
        """Its documents that may be taken."""
        return [self.folder / f"{piece:05d}.jsonl.zst"]

    def make(self, piece: int) -> dict[str, Any]:
        """Read a file; returns what it has, by side and month, and what was left out."""
        file = self.source.files[piece]
        tally = Tally(self.source.on_error, "source.on_error")
        smallest = Smallest(self.number)
        sides, months = Counter[str](), Counter[str]()
        bar = progress(
            desc=f"reading {file.name}", total=file.path.stat().st_size, unit="B", unit_scale=True,
            position=piece % self.processes,
        )  # fmt: skip
        with bar:
            for document in self.source.documents(file, tally, self.cut_offs, bar.update):
                side = self.cut_offs.side(document, self.source.unchanged_members)
                sides[side] += 1
                if side in (MEMBER, NONMEMBER):
                    month = (document.created or document.changed or datetime.min).isoformat()[:7]
                    months[f"{side} {month}"] += 1
                    group = f"{side} {month}" if self.by_month and side == NONMEMBER else side
                    smallest.add(group, derive(self.seed, "order", document.id), document)
        with zstandard.open(self.files(piece)[0], "wt", encoding="utf-8", newline="\n") as stream:
            for group, key, document in smallest:
                row = {"group": group, "key": key, **vars(document)}
                stream.write(json.dumps(row, default=datetime.isoformat) + "\n")
        return {"sides": sides, "months": months, "skipped": tally.skipped}

    def merged(self) -> dict[str, list[Keyed]]:
        """Of each group the documents of the smallest keys over all files, in their order.

        Raises:
            DataError: two have one id.
        """
        parts = (_rows(self.files(piece)[0]) for piece in range(len(self)))
        rows = heapq.merge(*parts, key=itemgetter(0, 1))
        found = {}
        for group, own in groupby(rows, key=itemgetter(0)):
            found[group] = [(key, document) for _, key, document in islice(own, self.number)]
        ids = Counter(document.id for each in found.values() for _, document in each)
        if twice := [name for name, times in ids.items() if times > 1]:
            raise DataError(
                f"source.paths: two documents have the id {twice[0]!r}. Give each its own id, "
                "and each file once."
            )
        return found


def _rows(path: Path) -> Iterator[tuple[str, int, Dated]]:
    with zstandard.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            row = json.loads(line)
            group, key = row.pop("group"), row.pop("key")
            row |= {name: _date(row[name]) for name in ("created", "changed")}
            yield group, key, Dated(**row)


def _date(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def totals(results: list[dict[str, Any]], name: str) -> Mapping[str, int]:
    """A count of all files together."""
    found = Counter[str]()
    for result in results:
        found.update(result[name])
    return dict(sorted(found.items()))
