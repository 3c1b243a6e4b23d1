"""Parquet files, each written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.files import temporary

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP)  # of a file system without hard links


@contextmanager
def writing(path: Path, schema: pa.Schema, *, keep: bool = False) -> Iterator[pq.ParquetWriter]:
    """Write a whole file or nothing: two processes may write the same one.

    With `keep` a file that is there by then stays as it is.
    """
    unfinished = temporary(path)
    try:
        with pq.ParquetWriter(
            unfinished, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer:
            yield writer
        _link(unfinished, path) if keep else unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _link(file: Path, path: Path) -> None:
    """Give the file this name as well, unless another has it."""
    try:
        os.link(file, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if not path.exists():
            file.replace(path)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a whole table, or nothing."""
    with writing(path, table.schema) as writer:
        writer.write_table(table)
