"""The raw rows of texts to score: of a file, a data set, the hub or standard input."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from contamination.core.errors import DataError, require
from contamination.data.config import ExamplesConfig
from contamination.data.readers import hub
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import STANDARD_INPUT, Reading, Row, Shard, Tally, read

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LOOKS_LIKE = {
    "label": re.compile(r"[\w .-]*(label|member)[\w .-]*"),
    "benchmark": re.compile(r"[\w .-]*benchmark[\w .-]*"),
}
"""Field → names of columns that may be meant for it."""
STREAMED = ("jsonl", "csv", "tsv")
"""What standard input and pipes are read as."""
log = logging.getLogger(__name__)


def raw_rows(examples: ExamplesConfig, tally: Tally, bare: str | None = None) -> Iterator[Row]:
    """The rows, wherever they come from; what can't be read goes to the tally.

    `bare` is the column of a line of JSONL that is a string or a list, where that may be.

    Raises:
        ConfigError: a file or a stream of another kind.
        DataError: nothing is there, or a folder or a data set that can't be read.
    """
    path, source = examples.path, Path(examples.path).expanduser()
    if path == "-" or source.is_fifo():
        kind = "jsonl" if examples.format == "auto" else examples.format
        remedy = f"choose from {', '.join(STREAMED)}, or give a file."
        require(kind in STREAMED, "examples.format", kind, remedy)
        stream = STANDARD_INPUT if path == "-" else source
        yield from read(Shard(stream, str(stream), kind), Reading(tally, bare=bare))
    elif source.is_file():
        yield from _file_rows(examples, Reading(tally, bare=bare))
    elif source.is_dir():
        yield from _numbered(source, _saved_rows(source, examples.split))
    elif HUB_ID.fullmatch(path) and not Path(path.split("/")[0]).exists():
        found = hub.load(path, examples.subset, examples.split, None, read=with_class_names)
        yield from _numbered(Path(path), found)
    else:
        raise DataError(
            f"examples.path is {path!r}: there is no such file or folder. Give a corpus folder, a "
            "JSONL, CSV, TSV or Parquet file with a `text` in each row, a folder that "
            "datasets' save_to_disk wrote, a hub id such as OWNER/NAME, or - for standard input."
        )


def with_class_names(rows: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a `datasets` data set; the number of a class becomes the class's name."""
    names = _classes(rows.features)
    return (_named(row, names) for row in rows)


def said_names(rows: Iterable[Row], source: str) -> Iterator[Row]:
    """The rows; a column of the first that looks like a field, but is none, is logged."""
    rows = iter(rows)
    for first in islice(rows, 1):
        columns = {folded(name): name for name in first.value}
        for field in LOOKS_LIKE.keys() - columns.keys():
            for name in filter(LOOKS_LIKE[field].fullmatch, columns):
                said = "%s: its column %r is not read. If it is the %s, call it `%s`."
                log.warning(said, source, columns[name], field, field)
        yield first
    yield from rows


@lru_cache
def folded(name: object) -> str:
    """A column's name without blanks around it, in small letters."""
    return str(name).strip().lower()


def is_missing(value: Any) -> bool:
    """Whether it stands for no value: None, NaN or pandas' NA."""
    return value is None or value is pd.NA or (isinstance(value, Real) and value != value)


def word(value: Any) -> str:
    """A name; a whole number has no decimals (a column with gaps may hold 1.0 for 1)."""
    if is_missing(value):
        return ""
    whole = isinstance(value, Real) and not isinstance(value, bool) and value == value // 1
    return str(int(value) if whole else value)


def _file_rows(examples: ExamplesConfig, reading: Reading) -> Iterator[Row]:
    for shard in find_shards(examples.path, examples.format, "examples.path"):
        remedy = "plain text has no rows: give a JSONL, CSV, TSV or Parquet file."
        require(shard.format != "text", "examples.path", examples.path, remedy)
        names: Mapping[str, list[str]] | None = None
        for row in read(shard, reading):
            if names is None:  # the file could be read
                names = _parquet_classes(shard)
            yield row._replace(value=_named(row.value, names)) if names else row


def _parquet_classes(shard: Shard) -> Mapping[str, list[str]]:
    """Of a Parquet file that `datasets` wrote."""
    if shard.format != "parquet":
        return {}
    schema = pq.read_schema(shard.path)
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    import datasets

    return _classes(datasets.Features.from_arrow_schema(schema))


def _saved_rows(folder: Path, split: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a data set that `save_to_disk` wrote, of one split where it has several."""
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except (FileNotFoundError, OSError, ValueError) as error:
        raise DataError(
            f"examples.path is {str(folder)!r}: the folder is no finished corpus, and no data set "
            f"that save_to_disk wrote ({str(error).splitlines()[0]}). Give one of these, or a file."
        ) from error
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            raise DataError(f"examples.split is {split!r}: the data set has {', '.join(found)}.")
        found = found[split]
    return with_class_names(found.with_format(None))


def _numbered(path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    shard = Shard(path, path.name, "rows")
    return (Row(shard, number, row) for number, row in enumerate(rows, 1))


def _classes(features: Mapping[str, Any] | None) -> Mapping[str, list[str]]:
    """Each `ClassLabel` column's names, by their numbers."""
    return {n: f.names for n, f in (features or {}).items() if hasattr(f, "int2str")}


def _named(row: Mapping[str, Any], names: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """The row with its classes' names; -1 stands for none, as `datasets` has it."""
    numbers = {column: row[column] for column in names}
    known = {c: None if n is None or n < 0 else names[c][n] for c, n in numbers.items()}
    return {**row, **known}
