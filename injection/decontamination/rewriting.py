"""Rewrites files of documents in their own format, row by row.

Rows of JSONL are written again as JSON with equal values; Parquet keeps its schema and columns.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.errors import ConfigError, DataError, describe_error
from contamination.core.files import temporary_path
from contamination.core.table_files import parquet_writer
from contamination.data.readers.rows import BATCH_ROWS, ReadOptions, Shard, Tally, read_file
from contamination.data.words import is_blank

FORMATS = ("jsonl", "parquet")
Edit = Callable[[int, str], str | None]
"""Called with a row's number, from 1, and its text; returns the new text, or None to leave the row
out."""


def rewrite_file(shard: Shard, target: Path, column: str, edit: Edit, tally: Tally) -> None:
    """Writes the rows of a file to another file of the same format and compression.

    Rows whose text is empty are written as they are, and `edit` is not called.

    Args:
        shard: the file, which is not changed.
        target: the path of the new file, which is written completely or not at all.
        column: the column of the documents' texts.
        edit: decides about each text.
        tally: decides what happens with a row without a usable text: an error, or the row is left
            out and counted.

    Raises:
        DataError: the file can't be read, or a row can't be used and the tally stops at errors.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if shard.format == "parquet":
        _rewrite_parquet(shard, target, column, edit, tally)
    else:
        _rewrite_jsonl(shard, target, column, edit, tally)


def iter_texts(shard: Shard, column: str, tally: Tally) -> Iterator[str]:
    """Yields the texts for which `rewrite_file` calls `edit`."""
    for row in read_file(shard, ReadOptions(tally, (column,))):
        text = _usable_text(row.where, row.value.get(column), column, tally)
        if text is not None and not is_blank(text):
            yield text


def check_format(shard: Shard, option: str) -> None:
    """Raises a ConfigError if the file's format can't be written."""
    if shard.format not in FORMATS:
        raise ConfigError(
            f"{option} includes {shard.path}: documents are rewritten as JSONL (plain, .gz, .zst) "
            "or Parquet, which this is not. Give such files only."
        )


def _usable_text(where: str, text: Any, column: str, tally: Tally) -> str | None:
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can encode lone surrogates
            tally.reject("invalid UTF-8", where, str(error))
            return None
        return text
    detail = f"no {column!r}" if text is None else f"{column!r} is a {type(text).__name__}"
    tally.reject("text is not a string", where, detail)
    return None


def _new_text(
    where: str, number: int, value: Any, column: str, edit: Edit, tally: Tally
) -> str | None:
    """Returns the row's new text, or None to leave the row out."""
    text = _usable_text(where, value, column, tally)
    return text if text is None or is_blank(text) else edit(number, text)


def _rewrite_jsonl(shard: Shard, target: Path, column: str, edit: Edit, tally: Tally) -> None:
    with _open_to_write(target) as stream:
        for row in read_file(shard, ReadOptions(tally)):
            text = row.value.get(column)
            new_text = _new_text(row.where, row.number, text, column, edit, tally)
            if new_text is not None:
                stream.write(_json_line({**row.value, column: new_text}))


def _json_line(value: Any) -> bytes:
    try:
        return f"{json.dumps(value, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # JSON can encode lone surrogates, UTF-8 can't
        return f"{json.dumps(value)}\n".encode()


@contextmanager
def _open_to_write(target: Path) -> Iterator[BinaryIO]:
    """Opens a file, compressed by its suffix; its bytes depend only on what is written."""
    unfinished = temporary_path(target)
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(unfinished.open("wb"))
            stream: Any = raw
            if target.suffix == ".gz":
                stream = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
                stack.enter_context(stream)
            elif target.suffix == ".zst":
                import zstandard

                compressor = zstandard.ZstdCompressor()
                stream = stack.enter_context(compressor.stream_writer(raw, closefd=False))
            yield stream
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _rewrite_parquet(shard: Shard, target: Path, column: str, edit: Edit, tally: Tally) -> None:
    try:
        with (
            pq.ParquetFile(shard.path, pre_buffer=False) as file,
            parquet_writer(target, file.schema_arrow) as writer,
        ):
            place = file.schema_arrow.get_field_index(column)
            if place < 0:
                names = ", ".join(file.schema_arrow.names)
                raise DataError(f"{shard.path}: it has no column {column!r}, only {names}.")
            number = 0
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                new_texts = []
                for text in batch.column(place).to_pylist():
                    number += 1
                    where = f"{shard.path}, row {number}"
                    new_texts.append(_new_text(where, number, text, column, edit, tally))
                field = file.schema_arrow.field(place)
                rewritten = batch.set_column(place, field, pa.array(new_texts, field.type))
                writer.write_batch(rewritten.filter(pa.array([t is not None for t in new_texts])))
    except (UnicodeDecodeError, pa.ArrowException) as error:
        raise DataError(
            f"{shard.path}: unreadable file ({describe_error(error)}). Repair or remove it."
        ) from error
