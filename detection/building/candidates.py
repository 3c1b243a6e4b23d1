"""Candidates of a benchmark: in each group the documents whose ids have the smallest hashes.

The hash decides and not the order of the documents, so that files can be read in any order and by
any number of processes, with a fixed number of documents per group in memory.
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
from contamination.core.progress import progress_bar
from contamination.core.seeds import derive_seed
from contamination.data.readers.rows import Tally
from contamination.detection.building.dates import MEMBER, NONMEMBER, CutOffs, DatedDocument
from contamination.detection.building.sources import Source

KeyedDocument = tuple[int, DatedDocument]


@dataclass
class SmallestKeys:
    """The documents with the smallest keys, up to a fixed number per group."""

    max_per_group: int
    _heaps: dict[str, list[tuple[int, int, DatedDocument]]] = field(default_factory=dict)
    _order: Iterator[int] = field(default_factory=count)

    def add(self, group: str, key: int, document: DatedDocument) -> None:
        """Adds the document if its key is among the smallest so far."""
        heap = self._heaps.setdefault(group, [])
        if len(heap) < self.max_per_group:
            heapq.heappush(heap, (-key, next(self._order), document))
        elif -heap[0][0] > key:
            heapq.heapreplace(heap, (-key, next(self._order), document))

    def __iter__(self) -> Iterator[tuple[str, int, DatedDocument]]:
        """Yields group, key and document, in ascending order."""
        for group in sorted(self._heaps):
            for key, _, document in sorted(self._heaps[group], reverse=True):
                yield group, -key, document


@dataclass(frozen=True)
class CandidateScan:
    """Reads the source's files, each a piece of the task (see `core.task_runner.Task`)."""

    source: Source
    cut_offs: CutOffs
    seed: int
    max_per_group: int
    """The largest number of documents per group and file."""
    by_month: bool
    """Whether non-members are grouped by the month of their creation."""
    folder: Path
    processes: int

    def __len__(self) -> int:
        """Returns the number of files."""
        return len(self.source.files)

    def done(self, piece: int) -> Path:
        """Returns the file that marks a source file as read."""
        return self.folder / f"{piece:05d}.json"

    def files(self, piece: int) -> list[Path]:
        """Returns the file with a source file's candidates."""
        return [self.folder / f"{piece:05d}.jsonl.zst"]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Reads a file; returns its counts by label, by month, and of skipped rows."""
        source_file = self.source.files[piece]
        tally = Tally(self.source.on_error, "source.on_error")
        smallest = SmallestKeys(self.max_per_group)
        counts_by_side, counts_by_month = Counter[str](), Counter[str]()
        bar = progress_bar(
            desc=f"reading {source_file.name}", total=source_file.path.stat().st_size, unit="B",
            unit_scale=True, position=piece % self.processes,
        )  # fmt: skip
        with bar:
            for document in self.source.documents(source_file, tally, self.cut_offs, bar.update):
                side = self.cut_offs.side_or_reason(document, self.source.unchanged_members)
                counts_by_side[side] += 1
                if side in (MEMBER, NONMEMBER):
                    month = (document.created or document.changed or datetime.min).isoformat()[:7]
                    counts_by_month[f"{side} {month}"] += 1
                    group = f"{side} {month}" if self.by_month and side == NONMEMBER else side
                    smallest.add(group, derive_seed(self.seed, "order", document.id), document)
        with zstandard.open(self.files(piece)[0], "wt", encoding="utf-8", newline="\n") as stream:
            for group, key, document in smallest:
                row = {"group": group, "key": key, **vars(document)}
                stream.write(json.dumps(row, default=datetime.isoformat) + "\n")
        return {"sides": counts_by_side, "months": counts_by_month, "skipped": tally.skipped}

    def merge_candidates(self) -> dict[str, list[KeyedDocument]]:
        """Returns each group's documents with the smallest keys over all files, in order.

        Raises:
            DataError: two documents have the same id.
        """
        rows_by_file = (_read_candidates(self.files(piece)[0]) for piece in range(len(self)))
        rows = heapq.merge(*rows_by_file, key=itemgetter(0, 1))
        documents_by_group = {}
        for group, group_rows in groupby(rows, key=itemgetter(0)):
            smallest = islice(group_rows, self.max_per_group)
            documents_by_group[group] = [(key, document) for _, key, document in smallest]
        ids = Counter(document.id for keyed in documents_by_group.values() for _, document in keyed)
        if twice := [name for name, times in ids.items() if times > 1]:
            raise DataError(
                f"source.paths: two documents have the id {twice[0]!r}. Give each its own id, "
                "and each file once."
            )
        return documents_by_group


def _read_candidates(path: Path) -> Iterator[tuple[str, int, DatedDocument]]:
    with zstandard.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            row = json.loads(line)
            group, key = row.pop("group"), row.pop("key")
            for name in ("created", "changed"):
                row[name] = row[name] and datetime.fromisoformat(row[name])
            yield group, key, DatedDocument(**row)


def sum_counts(file_results: list[dict[str, Any]], count_name: str) -> Mapping[str, int]:
    """Returns the sum over all files of one of their counts."""
    total = Counter[str]()
    for result in file_results:
        total.update(result[count_name])
    return dict(sorted(total.items()))
