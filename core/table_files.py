"""Parquet files, each written whole or not at all."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.files import temporary

if TYPE_CHECKING:
    import pandas as pd

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


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the start of a formula."""


def write_csv(path: Path, table: pd.DataFrame, *, more: bool = False) -> None:
    """Write the table without its index, or `more` rows below those of a table like it.

    A text that starts like a formula gets a single quote before it (OWASP, "CSV injection");
    numbers stay numbers.
    """
    safe = table.rename(columns=_text)
    for place in range(safe.shape[1]):
        if safe.dtypes.iloc[place].kind not in "biufcmM":
            safe.isetitem(place, safe.iloc[:, place].map(_text))
    how = {"mode": "a", "header": False} if more else {}
    safe.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC, **how)


def _text(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
