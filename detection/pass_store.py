"""A pass on disk: an artefact of its own, shared by every method, variant and cell that reads it.

::

    runs/passes/<model>-<view>-<hash>/
    ├── config.yaml          model, view, dtype, treatment of long texts
    ├── stats-00000.parquet  one row per version of a text: text_sha256, copy, truncated, and one
    ├── …                    list of T-1 values per number of TokenStats; or a Continuation, or
    │                        the numbers of TextStats
    └── manifest.json

Texts are sorted by SHA-256. A part is written once its texts are done, and read a few texts (a row
group) at a time, so that memory does not grow with the number of texts. Each page has a checksum,
which every reader verifies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.errors import ArtifactError
from contamination.core.table_files import parquet_writer
from contamination.detection.passes import (
    NUMBERS,
    TEXT_NUMBERS,
    Continuation,
    Copies,
    TextStats,
    TokenStats,
)

KIND = "passes"
PARTS = "stats-*.parquet"
GROUP_TOKENS = 2**14
"""Scored tokens per row group; a longer text is not divided."""
KEY_COLUMNS = [("text_sha256", pa.string()), ("copy", pa.int32()), ("truncated", pa.bool_())]
LIST_COLUMNS = {name: pa.list_(pa.from_numpy_dtype(dtype)) for name, dtype in NUMBERS.items()}
TEXT_COLUMNS = {name: pa.float64() for name in TEXT_NUMBERS}
COLUMNS = {
    **LIST_COLUMNS,
    **TEXT_COLUMNS,
    "ids": pa.list_(pa.int32()),
    "text": pa.string(),
    "scored": pa.int32(),
}
BAD_CONTENT = (ValueError, LookupError, TypeError, AttributeError)
DAMAGED = (*BAD_CONTENT, OSError, NotImplementedError, MemoryError)
"""The errors that pyarrow and the use of its results raise for a damaged Parquet file."""
StatsByText = Mapping[str, Copies]
"""The statistics of a pass by the text's SHA-256."""


@dataclass(frozen=True, eq=False)
class PassRow:
    """One version of a text as scored by a pass: version `copy` of the text `text_sha256`.

    `windowed` is not stored. A text that was read in windows can be recognised by its length.
    """

    text_sha256: str
    copy: int
    truncated: bool
    stats: TokenStats
    windowed: bool = False


def part_file_name(number: int) -> str:
    """Returns the file name of a part."""
    return PARTS.replace("*", f"{number:05d}")


def write_rows(path: Path, rows: Sequence[PassRow]) -> None:
    """Writes the rows in their order, unless the file exists by the time it is complete.

    Equal rows give equal bytes.
    """
    schema = _arrow_schema([name for name in COLUMNS if name in vars(rows[0].stats)])
    with parquet_writer(path, schema, keep=True) as writer:
        for group in _row_groups(rows):
            writer.write_table(_arrow_table(group, schema))


def _arrow_schema(numbers: Iterable[str]) -> pa.Schema:
    return pa.schema(
        [*KEY_COLUMNS, *((name, COLUMNS[name]) for name in numbers if name in COLUMNS)]
    )


def is_intact(path: Path, texts: Sequence[str]) -> bool:
    """Returns whether the part exists, is undamaged and has these texts (SHA-256) in this order."""
    if not path.is_file():
        return False
    try:
        stored_part = _Part(path)
        stored_texts = [
            sha256
            for group in range(len(stored_part.firsts))
            for sha256 in stored_part.read_row_group(group)
        ]
    except ArtifactError:
        return False
    return stored_texts == list(texts)


class StoredPass(StatsByText):
    """The statistics of a pass, read from its folder when a text is looked up.

    The last row group is cached, so that texts looked up in order are each read once.

    Raises:
        ArtifactError: a part is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._parts = [_Part(path) for path in sorted(folder.glob(PARTS))]
        self._row_groups = [(p, group) for p in self._parts for group in range(len(p.firsts))]
        self._firsts = [first for p in self._parts for first in p.firsts]
        self._last_read: tuple[int, StatsByText] = -1, {}

    def __getitem__(self, sha256: str) -> Copies:
        return self._read_row_group(max(0, bisect_right(self._firsts, sha256) - 1))[sha256]

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self._row_groups)):
            yield from self._read_row_group(number)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def count_truncated(self) -> int:
        """Returns the number of rows whose text was truncated."""
        return sum(part.count_truncated() for part in self._parts)

    def _read_row_group(self, number: int) -> StatsByText:
        if self._last_read[0] != number:
            part, group = self._row_groups[number]
            self._last_read = number, part.read_row_group(group)
        return self._last_read[1]


class _Part:
    """A part of a pass. Its file is open only while it is read, as there may be thousands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open_parquet() as file:
            if not file.schema_arrow.equals(_arrow_schema(file.schema_arrow.names)):
                raise OSError("it has other columns")
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            self.firsts: list[str] = [group.column(0).statistics.min for group in groups]
            if not all(isinstance(first, str) for first in self.firsts):
                raise ValueError("a row group has no statistics of its texts")

    def read_row_group(self, group: int) -> dict[str, Copies]:
        with self._open_parquet() as file:
            table = file.read_row_group(group, use_threads=False)
            columns = {n: _read_values(table[n]) for n in COLUMNS if n in table.column_names}
            kind = _kind_of_stats(columns)
            copies: dict[str, list[TokenStats]] = {}
            for row, sha256 in enumerate(table["text_sha256"].to_pylist()):
                stats = kind(**{name: column[row] for name, column in columns.items()})
                copies.setdefault(sha256, []).append(stats)
            if next(iter(copies)) != self.firsts[group]:
                raise ValueError("a row group does not begin with the text in its statistics")
        return {sha256: tuple(text_copies) for sha256, text_copies in copies.items()}

    def count_truncated(self) -> int:
        with self._open_parquet() as file:
            return sum(file.read(["truncated"])["truncated"].to_pylist())

    @contextmanager
    def _open_parquet(self) -> Iterator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
                yield file
        except DAMAGED as error:
            raise ArtifactError(
                f"{self._path} is damaged ({str(error).splitlines()[0]}), so nothing is scored "
                f"with it. Delete the folder {self._path.parent} and run the same command again."
            ) from error


def _kind_of_stats(columns: Container[str]) -> type[TokenStats]:
    if "ids" in columns:
        return Continuation
    return TextStats if any(name in columns for name in TEXT_NUMBERS) else TokenStats


def _row_groups(rows: Sequence[PassRow]) -> Iterator[Sequence[PassRow]]:
    """Divides the rows into groups of about GROUP_TOKENS; the rows of one text stay together."""
    start = tokens = 0
    for row_index, row in enumerate(rows):
        if tokens >= GROUP_TOKENS and row.text_sha256 != rows[row_index - 1].text_sha256:
            yield rows[start:row_index]
            start, tokens = row_index, 0
        tokens += len(row.stats)
    if start < len(rows):
        yield rows[start:]


def _arrow_table(rows: Sequence[PassRow], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([getattr(row, name) for row in rows], kind) for name, kind in KEY_COLUMNS]
    ends = np.cumsum([0, *(len(row.stats) for row in rows)]).astype(np.int32)
    for name in schema.names[len(KEY_COLUMNS) :]:
        values = [getattr(row.stats, name) for row in rows]
        if not pa.types.is_list(COLUMNS[name]):
            columns.append(pa.array(values, COLUMNS[name]))
            continue
        columns.append(pa.ListArray.from_arrays(ends, np.concatenate(values), type=COLUMNS[name]))
    return pa.Table.from_arrays(columns, schema=schema)


def _read_values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Returns a column's values; lists are views of one array."""
    if not pa.types.is_list(column.type):
        values: list[Any] = column.to_pylist()
        return values
    lists = pa.concat_arrays(column.chunks)
    return np.split(lists.values.to_numpy(), lists.offsets.to_numpy()[1:-1])
