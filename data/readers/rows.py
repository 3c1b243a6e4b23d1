"""Reads rows of JSONL, CSV, Parquet and text files in constant memory."""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.errors import DataError, require
from contamination.core.stored_files import (
    LARGEST_NUMBER,
    NumberTooLargeError,
    finite_float,
    finite_int,
)
from contamination.core.user_files import open_to_read
from contamination.data.config import ON_ERROR

EMPTY_DOCUMENT = "empty document"


class Tally:
    """Decides what happens with input that can't be used: an error, or a count of skipped input.

    Attributes:
        skipped: what was left out: reason → count.
    """

    def __init__(self, on_error: str, option: str) -> None:
        """Creates a tally.

        Args:
            on_error: `stop` (raise an error) or `skip` (count).
            option: the config field of `on_error`, for error messages.
        """
        require(on_error in ON_ERROR, option, on_error, f"choose from {', '.join(ON_ERROR)}.")
        self.skipped: Counter[str] = Counter()
        self._stop, self._option = on_error == "stop", option

    def reject(self, reason: str, where: str, detail: str) -> None:
        """Count one unusable row or shard.

        Raises:
            DataError: `on_error` is stop.
        """
        if self._stop:
            raise DataError(
                f"{where}: {reason} ({detail}). Fix it, or set {self._option}=skip to leave such "
                "input out and count it."
            )
        self.skipped[reason] += 1

    def count_empty(self) -> None:
        """Count a document without text, which is never an error, since large corpora have some."""
        self.skipped[EMPTY_DOCUMENT] += 1


def describe_skipped(skipped: Mapping[str, int]) -> str:
    """Returns a description of what was left out, or "" if nothing was."""
    counts = ", ".join(f"{n} × {reason}" for reason, n in skipped.items())
    return f"skipped {counts}" if skipped else ""


BLOCK_BYTES = 1 << 16  # read at once
BATCH_ROWS = 256
MAX_LINE_BYTES = 1 << 30  # of one line, since memory holds several copies of a row
CSV_FIELD_CHARACTERS = 1 << 30  # Python's default limit of 131,072 is too low for long documents
ZSTD_BYTES = (
    512  # decompressed at once: at most 16 MiB of output, since 4 bytes give at most 128 KiB
)
ZSTD_WINDOW_BYTES = 1 << 31  # what `zstd --long=31` writes
STANDARD_INPUT = Path("standard input")  # represents the process's standard input


@dataclass(frozen=True)
class Shard:
    """One file (or one split on the hub).

    Attributes:
        path: the path of the file.
        name: the path relative to the corpus's root, which is part of document ids.
        format: jsonl, csv, tsv, parquet or text.
    """

    path: Path
    name: str
    format: str

    @property
    def folder(self) -> str | None:
        """The first folder below the root, or None at the root itself."""
        return self.name.split("/")[0] if "/" in self.name else None


class Row(NamedTuple):
    """One raw row; rows are numbered from 1."""

    shard: Shard
    number: int
    value: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The file and the row's number, for messages."""
        return f"{self.shard.path}, row {self.number}"


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files.

    Attributes:
        tally: decides what happens with rows that can't be used.
        columns: the required columns; None: all.
        encoding_errors: Python's error handler for invalid UTF-8.
        bare: the column for a JSON line that is a string or a list; None: such a line is an error.
        line_bytes: the maximum size of a line; None: MAX_LINE_BYTES.
        limit: the configuration field that sets `line_bytes`, for messages.
    """

    tally: Tally
    columns: tuple[str, ...] | None = None
    encoding_errors: str = "strict"
    bare: str | None = None
    line_bytes: int | None = None
    limit: str = ""

    @property
    def max_line_bytes(self) -> int:
        """The maximum size of a line in bytes."""
        return MAX_LINE_BYTES if self.line_bytes is None else self.line_bytes

    def decode(self, raw: bytes, where: str) -> str | None:
        """Returns the decoded text, or None if it is not UTF-8, which the tally counts."""
        try:
            return raw.removeprefix(b"\xef\xbb\xbf").decode(errors=self.encoding_errors)
        except UnicodeDecodeError as error:
            self.tally.reject("invalid UTF-8", where, str(error))
            return None

    def decode_line(self, raw: bytes | None, where: str) -> str | None:
        """Returns the decoded line, or None; `raw` is None if the line was too long."""
        if raw is None:
            limit = self.max_line_bytes
            size = f"{self.limit}={limit}" if self.limit else f"{limit:,}"
            self.tally.reject("line too long", where, f"more than {size} bytes")
            return None
        return self.decode(raw, where)


def read_file(shard: Shard, reading: ReadOptions) -> Iterator[Row]:
    """Yields the rows of one file; the tally decides what happens if something can't be read."""
    try:
        yield from READER_BY_FORMAT[shard.format](shard, reading)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        reading.tally.reject("unreadable shard", f"{shard.path}", reason)


def _read_json_rows(shard: Shard, reading: ReadOptions) -> Iterator[Row]:
    for number, raw in enumerate(_iter_lines(shard.path, reading.max_line_bytes), 1):
        row = Row(shard, number, {})
        line = reading.decode_line(raw, row.where)
        if line is None or not line.strip():
            continue
        try:
            value = json.loads(line, parse_float=finite_float, parse_int=finite_int)
        except NumberTooLargeError as error:
            detail = _describe_overflow(line) or str(error)
            reading.tally.reject("number too large", row.where, detail)
            continue
        except (ValueError, RecursionError) as error:
            reading.tally.reject("line is not JSON", row.where, str(error))
            continue
        if reading.bare is not None and isinstance(value, str | list):
            value = {reading.bare: value}
        if isinstance(value, dict):
            yield row._replace(value=value)
        else:
            detail = f"a {type(value).__name__}; each line must be an object"
            reading.tally.reject("line is not an object", row.where, detail)


class _WrittenNumber(float):
    """A number that is written with digits; "Infinity" and "NaN" are plain ones."""


def _describe_overflow(line: str) -> str | None:
    """Returns which field of a JSON line is beyond the largest float; None if that is not clear."""
    try:
        value = json.loads(line, parse_float=_WrittenNumber, parse_int=_WrittenNumber)
    except (ValueError, RecursionError):  # what follows the number is not JSON
        return None
    paths: list[tuple[str, Any]] = [("", value)]
    while paths:
        path, value = paths.pop()
        if isinstance(value, _WrittenNumber) and math.isinf(value):
            name = repr(path) if path else "it"
            return f"{name} is beyond {LARGEST_NUMBER}; give a smaller number, or a string"
        start = f"{path}." if path else ""
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            paths += [(f"{start}{key}", inner) for key, inner in reversed([*value.items()])]
    return None  # two fields have one name, and the second is no such number


def _read_csv_rows(shard: Shard, reading: ReadOptions) -> Iterator[Row]:
    csv.field_size_limit(CSV_FIELD_CHARACTERS)
    numbered_lines = enumerate(_iter_lines(shard.path, reading.max_line_bytes), 1)
    decoded = (reading.decode_line(raw, f"{shard.path}, line {n}") for n, raw in numbered_lines)
    lines = (f"{line}\n" for line in decoded if line is not None)
    table = _open_csv_table(lines, "\t" if shard.format == "tsv" else ",")
    try:
        names = [name for name in table.fieldnames or () if name in (reading.columns or [name])]
        if duplicate_names := [name for name in names if name and names.count(name) > 1]:
            raise OSError(f"the column {duplicate_names[0]!r} occurs twice")
        for number, value in enumerate(table, 1):
            row = Row(shard, number, value)
            if None in value or None in value.values():
                detail = f"the header has {len(table.fieldnames or ())} columns, the row does not"
                reading.tally.reject("malformed CSV row", row.where, detail)
            else:
                yield row
    except csv.Error as error:  # after a stray quote, rows can't be separated
        raise OSError(f"line {table.reader.line_num}: {error}") from error


def _open_csv_table(lines: Iterator[str], delimiter: str) -> csv.DictReader[str]:
    """Opens a table; spaces after delimiters are ignored if the header has them ("text, label")."""
    head = next(lines, "")
    _, *later_names = head.split(delimiter)
    has_spaces = bool(later_names) and all(name.startswith(" ") for name in later_names)
    all_lines = chain([head], lines)
    return csv.DictReader(all_lines, delimiter=delimiter, strict=True, skipinitialspace=has_spaces)


def _read_parquet_rows(shard: Shard, reading: ReadOptions) -> Iterator[Row]:
    number = 0
    with pq.ParquetFile(shard.path, pre_buffer=False) as file:
        names = file.schema_arrow.names
        columns = [n for n in names if n in reading.columns] if reading.columns else names
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns or names):
            for value in _iter_batch_rows(batch):
                number += 1
                row = Row(shard, number, value or {})
                if value is None:
                    reading.tally.reject("invalid UTF-8", row.where, "a string column")
                else:
                    yield row


def _iter_batch_rows(batch: Any) -> Iterator[Mapping[str, Any] | None]:
    """Yields a batch's rows, or None for a row with invalid UTF-8, which Parquet does not check."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass
    for index in range(batch.num_rows):
        try:
            value = batch.slice(index, 1).to_pylist()[0]
        except UnicodeDecodeError:
            value = None
        yield value


def _read_text_as_row(shard: Shard, reading: ReadOptions) -> Iterator[Row]:
    """Yields the file as one row, whose only column is the first of the required columns."""
    row = Row(shard, 1, {})
    text = reading.decode(b"".join(_iter_decompressed_blocks(shard.path)), row.where)
    if text is not None:
        yield row._replace(value={(reading.columns or ("text",))[0]: text})


READER_BY_FORMAT: Mapping[str, Callable[[Shard, ReadOptions], Iterator[Row]]] = {
    "jsonl": _read_json_rows,
    "csv": _read_csv_rows,
    "tsv": _read_csv_rows,
    "parquet": _read_parquet_rows,
    "text": _read_text_as_row,
}


def _iter_lines(path: Path, max_bytes: int | None = None) -> Iterator[bytes | None]:
    """Yields a file's lines, or None for lines longer than `max_bytes`, in linear time."""
    limit = MAX_LINE_BYTES if max_bytes is None else max_bytes
    line_parts: list[bytes] = []
    size = 0
    for block in _iter_decompressed_blocks(path):
        *ends, remainder = block.split(b"\n")
        for end in ends:
            yield b"".join([*line_parts, end]) if size + len(end) <= limit else None
            line_parts, size = [], 0
        size += len(remainder)
        if size <= limit:
            line_parts.append(remainder)
        else:  # the line is too long
            line_parts.clear()
    if size:
        yield b"".join(line_parts) if size <= limit else None


def _iter_decompressed_blocks(path: Path) -> Iterator[bytes]:
    """Yields a file's bytes, decompressed according to its suffix."""
    if path.suffix == ".gz":
        with open_to_read(path) as raw, gzip.open(raw) as packed:
            yield from iter(lambda: packed.read(BLOCK_BYTES), b"")
        return
    with _open_standard_input() if path == STANDARD_INPUT else open_to_read(path) as stream:
        blocks = iter(lambda: stream.read(BLOCK_BYTES), b"")
        yield from _decompress_zstd(blocks) if path.suffix == ".zst" else blocks


def _open_standard_input() -> BinaryIO:
    if sys.stdin is None:  # descriptor 0 may then be another file
        raise OSError("it is closed")
    return open(0, "rb", closefd=False)


def _decompress_zstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompresses frames; unlike zstandard's stream reader, this detects a truncated file."""
    import zstandard

    factory = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    frame = factory.decompressobj()
    at_frame_start = True
    for block in (b[n : n + ZSTD_BYTES] for b in blocks for n in range(0, len(b), ZSTD_BYTES)):
        while block:
            if frame.eof:
                frame, at_frame_start = factory.decompressobj(), True
            try:
                yield frame.decompress(block)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            block, at_frame_start = frame.unused_data, False
    if not (frame.eof or at_frame_start):
        raise EOFError("the last zstd frame is cut off")


T = TypeVar("T")


def group_by_size(items: Iterable[T], size: Callable[[T], int], min_size: int) -> Iterator[list[T]]:
    """Yields lists of items with a total size of at least `min_size`, except for the last list."""
    group_items, total = list[T](), 0
    for item in items:
        group_items.append(item)
        total += size(item)
        if total >= min_size:
            yield group_items
            group_items, total = [], 0
    if group_items:
        yield group_items
