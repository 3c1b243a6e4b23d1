"""Reads raw rows of texts to score from a file, a data set, the hub or standard input."""

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
from contamination.data.readers.rows import (
    STANDARD_INPUT,
    ReadOptions,
    Row,
    Shard,
    Tally,
    read_file,
)

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SIMILAR_COLUMN_NAMES = {
    "label": re.compile(r"[\w .-]*(label|member)[\w .-]*"),
    "benchmark": re.compile(r"[\w .-]*benchmark[\w .-]*"),
}
"""Field → pattern of column names that may be meant for it."""
STREAM_FORMATS = ("jsonl", "csv", "tsv")  # allowed for standard input and pipes
log = logging.getLogger(__name__)


def raw_rows(examples: ExamplesConfig, tally: Tally, bare: str | None = None) -> Iterator[Row]:
    """Yields the rows of `examples.path`.

    Args:
        examples: the configuration.
        tally: decides what happens with rows that can't be read.
        bare: the column for a JSON line that is a string or a list; None: such a line is an error.

    Raises:
        ConfigError: the format is not supported.
        DataError: the path does not exist, or the folder or data set can't be read.
    """
    path, source = examples.path, Path(examples.path).expanduser()
    if path == "-" or source.is_fifo():
        kind = "jsonl" if examples.format == "auto" else examples.format
        remedy = f"choose from {', '.join(STREAM_FORMATS)}, or give a file."
        require(kind in STREAM_FORMATS, "examples.format", kind, remedy)
        stream = STANDARD_INPUT if path == "-" else source
        yield from read_file(Shard(stream, str(stream), kind), ReadOptions(tally, bare=bare))
    elif source.is_file():
        yield from _read_examples_file(examples, ReadOptions(tally, bare=bare))
    elif source.is_dir():
        yield from _numbered_rows(source, _read_saved_data_set(source, examples.split))
    elif HUB_ID.fullmatch(path) and not Path(path.split("/")[0]).exists():
        rows = hub.stream_split(path, examples.subset, examples.split, None, read=with_class_names)
        yield from _numbered_rows(Path(path), rows)
    else:
        raise DataError(
            f"examples.path is {path!r}: there is no such file or folder. Give a corpus folder, a "
            "JSONL, CSV, TSV or Parquet file with a `text` in each row, a folder that "
            "datasets' save_to_disk wrote, a hub id such as OWNER/NAME, or - for standard input."
        )


def with_class_names(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of a `datasets` data set, with class names in place of class numbers."""
    names = _class_names_by_column(rows.features)
    return (_with_class_names(row, names) for row in rows)


def rows_with_name_warnings(rows: Iterable[Row], source: str) -> Iterator[Row]:
    """Yields the rows; warn about columns of the first row whose names are similar to a field."""
    rows = iter(rows)
    for first in islice(rows, 1):
        columns = {fold_name(name): name for name in first.value}
        for field in SIMILAR_COLUMN_NAMES.keys() - columns.keys():
            for name in filter(SIMILAR_COLUMN_NAMES[field].fullmatch, columns):
                log.warning(
                    "%s: its column %r is not read. If it is the %s, call it `%s`.",
                    *(source, columns[name], field, field),
                )
        yield first
    yield from rows


@lru_cache
def fold_name(name: object) -> str:
    """Returns a column's name in lower case, without surrounding white space."""
    return str(name).strip().lower()


def is_missing(value: Any) -> bool:
    """Returns whether a value is missing: None, NaN or pandas' NA."""
    return value is None or value is pd.NA or (isinstance(value, Real) and value != value)


def value_as_text(value: Any) -> str:
    """Returns a value as text; 1.0 becomes "1": columns with gaps store integers as floats."""
    if is_missing(value):
        return ""
    is_whole = isinstance(value, Real) and not isinstance(value, bool) and value == value // 1
    return str(int(value) if is_whole else value)


def _read_examples_file(examples: ExamplesConfig, reading: ReadOptions) -> Iterator[Row]:
    for shard in find_shards(examples.path, examples.format, "examples.path"):
        remedy = "plain text has no rows: give a JSONL, CSV, TSV or Parquet file."
        require(shard.format != "text", "examples.path", examples.path, remedy)
        names: Mapping[str, list[str]] | None = None
        for row in read_file(shard, reading):
            if names is None:  # the first row could be read
                names = _parquet_class_names(shard)
            yield row._replace(value=_with_class_names(row.value, names)) if names else row


def _parquet_class_names(shard: Shard) -> Mapping[str, list[str]]:
    """Returns the class names by column of a Parquet file that `datasets` wrote."""
    if shard.format != "parquet":
        return {}
    schema = pq.read_schema(shard.path)
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    import datasets

    return _class_names_by_column(datasets.Features.from_arrow_schema(schema))


def _read_saved_data_set(folder: Path, split: str) -> Iterator[Mapping[str, Any]]:
    """Returns the rows of a data set that `save_to_disk` wrote, or of one of its splits."""
    import datasets

    try:
        dataset = datasets.load_from_disk(str(folder))
    except (FileNotFoundError, OSError, ValueError) as error:
        raise DataError(
            f"examples.path is {str(folder)!r}: the folder is neither a finished corpus nor a data "
            f"set that save_to_disk wrote ({str(error).splitlines()[0]}). Give one of these, or a "
            "file."
        ) from error
    if isinstance(dataset, datasets.DatasetDict):
        if split not in dataset:
            raise DataError(f"examples.split is {split!r}: the data set has {', '.join(dataset)}.")
        dataset = dataset[split]
    return with_class_names(dataset.with_format(None))


def _numbered_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    shard = Shard(path, path.name, "rows")
    return (Row(shard, number, row) for number, row in enumerate(rows, 1))


def _class_names_by_column(features: Mapping[str, Any] | None) -> Mapping[str, list[str]]:
    """Returns the class names of each `ClassLabel` column, in the order of their numbers."""
    return {n: f.names for n, f in (features or {}).items() if hasattr(f, "int2str")}


def _with_class_names(row: Mapping[str, Any], names: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """Replaces a row's class numbers by names; -1 means no class, as in `datasets`."""
    numbers = {column: row[column] for column in names}
    classes = {c: None if n is None or n < 0 else names[c][n] for c, n in numbers.items()}
    return {**row, **classes}
