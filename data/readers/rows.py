"""Rows of JSONL, CSV, Parquet and text files, in memory that does not depend on the files' size."""

from __future__ import annotations

import csv
import gzip
import json
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
from contamination.core.user_files import open_to_read

ON_ERROR = ("stop", "skip")
EMPTY = "empty document"


class Tally:
    """Decides on each piece of bad input, and counts what was left out.

    Attributes:
        skipped: reason → number.
    """

    def __init__(self, on_error: str, option: str) -> None:
        """Stop or skip, as `on_error` says; `option` is its name in the config."""
        require(on_error in ON_ERROR, option, on_error, f"choose from {', '.join(ON_ERROR)}.")
        self.skipped: Counter[str] = Counter()
        self._stop, self._option = on_error == "stop", option

    def bad(self, reason: str, where: str, detail: str) -> None:
        """Count one unusable row or shard.

        Raises:
            DataError: `on_error` is stop.
        """
        if self._stop:
            raise DataError(
                f"{where}: {reason} ({detail}). Mend it, or set {self._option}=skip to leave such "
                "input out and count it."
            )
        self.skipped[reason] += 1

    def empty(self) -> None:
        """Count a document without text: never an error, large corpora all have some."""
        self.skipped[EMPTY] += 1


def skips(skipped: Mapping[str, int]) -> str:
    """What was left out, in words; empty where nothing was."""
    return "skipped " + ", ".join(f"{n} × {why}" for why, n in skipped.items()) if skipped else ""


BLOCK_BYTES = 1 << 16  # of compressed input, which comes out several times as large
BATCH_ROWS = 256
LINE_BYTES = 1 << 30  # of the longest line that is read: a row is held in memory several times
CSV_FIELD_CHARACTERS = 1 << 30  # the library's own limit of 131,072 is less than a long document
ZSTD_BYTES = 512  # of compressed input, which come out as 16 MiB at most: 128 KiB for each 4
ZSTD_WINDOW_BYTES = 1 << 31  # what `zstd --long=31` writes
STANDARD_INPUT = Path("standard input")  # stands for what this process is given


@dataclass(frozen=True)
class Shard:
    """One file (or one split on the hub).

    Attributes:
        path: where it is.
        name: its path below the corpus's root: part of document ids, the same on all machines.
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
        """The row's place in words."""
        return f"{self.shard.path}, row {self.number}"


@dataclass(frozen=True)
class Reading:
    """How to read: the tally of bad rows, the columns needed (None: all), `str`'s error handler.

    `bare` is the column of a JSON line that is a string or a list (None: it is a bad row). A line
    has at most `line_bytes` (None: LINE_BYTES), and `limit` is the field that says so, if one does.
    """

    tally: Tally
    columns: tuple[str, ...] | None = None
    encoding_errors: str = "strict"
    bare: str | None = None
    line_bytes: int | None = None
    limit: str = ""

    @property
    def most_bytes(self) -> int:
        """Of a line."""
        return LINE_BYTES if self.line_bytes is None else self.line_bytes

    def decode(self, raw: bytes, where: str) -> str | None:
        """The bytes as text, or None where they are not UTF-8, which the tally counts."""
        try:
            return raw.removeprefix(b"\xef\xbb\xbf").decode(errors=self.encoding_errors)
        except UnicodeDecodeError as error:
            self.tally.bad("invalid UTF-8", where, str(error))
            return None

    def line(self, raw: bytes | None, where: str) -> str | None:
        """The text of a line's bytes; None of `raw` says that it is longer than `most_bytes`."""
        if raw is None:
            most = f"{self.limit}={self.most_bytes}" if self.limit else f"{self.most_bytes:,}"
            self.tally.bad("line too long", where, f"more than {most} bytes")
            return None
        return self.decode(raw, where)


def read(shard: Shard, reading: Reading) -> Iterator[Row]:
    """The rows of one shard; what can't be read goes to the tally."""
    try:
        yield from READERS[shard.format](shard, reading)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        reading.tally.bad("unreadable shard", f"{shard.path}", reason)


def _json_rows(shard: Shard, reading: Reading) -> Iterator[Row]:
    for number, raw in enumerate(_lines(shard.path, reading.most_bytes), 1):
        row = Row(shard, number, {})
        line = reading.line(raw, row.where)
        if line is None or not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reading.tally.bad("line is not JSON", row.where, str(error))
            continue
        if reading.bare is not None and isinstance(value, str | list):
            value = {reading.bare: value}
        if isinstance(value, dict):
            yield row._replace(value=value)
        else:
            detail = f"a {type(value).__name__}; each line must be an object"
            reading.tally.bad("line is not an object", row.where, detail)


def _csv_rows(shard: Shard, reading: Reading) -> Iterator[Row]:
    csv.field_size_limit(CSV_FIELD_CHARACTERS)
    raws = enumerate(_lines(shard.path, reading.most_bytes), 1)
    decoded = (reading.line(raw, f"{shard.path}, line {n}") for n, raw in raws)
    lines = (f"{line}\n" for line in decoded if line is not None)
    table = _csv_table(lines, "\t" if shard.format == "tsv" else ",")
    try:
        names = [name for name in table.fieldnames or () if name in (reading.columns or [name])]
        if twice := [name for name in names if name and names.count(name) > 1]:
            raise OSError(f"the column {twice[0]!r} is there twice")
        for number, value in enumerate(table, 1):
            row = Row(shard, number, value)
            if None in value or None in value.values():
                detail = f"the header has {len(table.fieldnames or ())} columns, the row does not"
                reading.tally.bad("malformed CSV row", row.where, detail)
            else:
                yield row
    except csv.Error as error:  # after a stray quote the rest can't be told apart into rows
        raise OSError(f"line {table.line_num}: {error}") from error


def _csv_table(lines: Iterator[str], mark: str) -> csv.DictReader[str]:
    """The rows; where each mark of the header has a blank after it ("text, label"), none counts."""
    head = next(lines, "")
    _, *others = head.split(mark)
    spaced = bool(others) and all(name.startswith(" ") for name in others)
    every = chain([head], lines)
    return csv.DictReader(every, delimiter=mark, strict=True, skipinitialspace=spaced)


def _parquet_rows(shard: Shard, reading: Reading) -> Iterator[Row]:
    number = 0
    with pq.ParquetFile(shard.path, pre_buffer=False) as file:
        names = file.schema_arrow.names
        wanted = [n for n in names if n in reading.columns] if reading.columns else names
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted or names):
            for value in _batch_values(batch):
                number += 1
                row = Row(shard, number, value or {})
                if value is None:
                    reading.tally.bad("invalid UTF-8", row.where, "a string column")
                else:
                    yield row


def _batch_values(batch: Any) -> Iterator[Mapping[str, Any] | None]:
    """A batch's rows; None for one whose strings are not UTF-8 (Parquet does not check)."""
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


def _text_rows(shard: Shard, reading: Reading) -> Iterator[Row]:
    """One document a file, as the first of the columns that are asked for."""
    row = Row(shard, 1, {})
    text = reading.decode(b"".join(_blocks(shard.path)), row.where)
    if text is not None:
        yield row._replace(value={(reading.columns or ("text",))[0]: text})


READERS: Mapping[str, Callable[[Shard, Reading], Iterator[Row]]] = {
    "jsonl": _json_rows,
    "csv": _csv_rows,
    "tsv": _csv_rows,
    "parquet": _parquet_rows,
    "text": _text_rows,
}


def _lines(path: Path, most_bytes: int | None = None) -> Iterator[bytes | None]:
    """A file's lines, None for one longer than `most_bytes`, in time linear in the file's size."""
    most = LINE_BYTES if most_bytes is None else most_bytes
    begun: list[bytes] = []
    size = 0
    for block in _blocks(path):
        *ends, rest = block.split(b"\n")
        for end in ends:
            yield b"".join([*begun, end]) if size + len(end) <= most else None
            begun, size = [], 0
        size += len(rest)
        if size <= most:
            begun.append(rest)
        else:  # the rest of it is not kept
            begun.clear()
    if size:
        yield b"".join(begun) if size <= most else None


def _blocks(path: Path) -> Iterator[bytes]:
    """A file's bytes, decompressed as its suffix says."""
    if path.suffix == ".gz":
        with open_to_read(path) as raw, gzip.open(raw) as packed:
            yield from iter(lambda: packed.read(BLOCK_BYTES), b"")
        return
    with _given() if path == STANDARD_INPUT else open_to_read(path) as stream:
        blocks = iter(lambda: stream.read(BLOCK_BYTES), b"")
        yield from _unzstd(blocks) if path.suffix == ".zst" else blocks


def _given() -> BinaryIO:
    """This process's standard input; closed, its number may be another file's."""
    if sys.stdin is None:
        raise OSError("it is closed")
    return open(0, "rb", closefd=False)


def _unzstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompressed frames; unlike the package's stream reader, it notices a truncated file."""
    import zstandard

    factory = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    frame = factory.decompressobj()
    fresh = True
    for block in (b[n : n + ZSTD_BYTES] for b in blocks for n in range(0, len(b), ZSTD_BYTES)):
        while block:
            if frame.eof:
                frame, fresh = factory.decompressobj(), True
            try:
                yield frame.decompress(block)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            block, fresh = frame.unused_data, False
    if not (frame.eof or fresh):
        raise EOFError("the last zstd frame is cut off")


T = TypeVar("T")


def grouped(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """The items in lists whose sizes add up to `least` or more; the last may have less."""
    group, total = list[T](), 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= least:
            yield group
            group, total = [], 0
    if group:
        yield group
