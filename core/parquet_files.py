"""Parquet files, each written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.files import temporary


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a whole file or nothing: two processes may write the same one."""
    unfinished = temporary(path)
    try:
        with pq.ParquetWriter(
            unfinished, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer:
            yield writer
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a whole table, or nothing."""
    with writing(path, table.schema) as writer:
        writer.write_table(table)
