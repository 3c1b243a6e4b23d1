"""Parquet and CSV files. Parquet files are written completely or not at all."""

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

from contamination.core.files import temporary_path

if TYPE_CHECKING:
    import pandas as pd

NO_HARD_LINKS = (
    errno.EPERM,
    errno.ENOSYS,
    errno.ENOTSUP,
)  # errors of file systems without hard links


@contextmanager
def parquet_writer(
    path: Path, schema: pa.Schema, *, keep: bool = False
) -> Iterator[pq.ParquetWriter]:
    """Writes a Parquet file completely or not at all; several processes may write the same file.

    Args:
        path: the path of the file.
        schema: the schema of the table.
        keep: whether to keep a file that exists once the new one is complete.
    """
    unfinished = temporary_path(path)
    try:
        with pq.ParquetWriter(
            unfinished, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer:
            yield writer
        _link_unless_exists(unfinished, path) if keep else unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _link_unless_exists(file: Path, path: Path) -> None:
    try:
        os.link(file, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        if not path.exists():
            file.replace(path)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Writes a table to a Parquet file, completely or not at all."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table)


def write_data_files(folder: Path, name: str, table: pd.DataFrame) -> tuple[str, str]:
    """Writes a table as `<name>.parquet` and `<name>.csv`; returns the files' names."""
    parquet_name, csv_name = f"{name}.parquet", f"{name}.csv"
    write_parquet(folder / parquet_name, pa.Table.from_pandas(table, preserve_index=False))
    write_csv(folder / csv_name, table)
    return parquet_name, csv_name


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Characters with which formulas begin in spreadsheets."""


def write_csv(path: Path, table: pd.DataFrame, *, append: bool = False) -> None:
    """Writes a table to a CSV file, without its index.

    A string that begins like a formula is prefixed with a single quote (OWASP, "CSV injection").
    Numbers are not changed.

    Args:
        path: the path of the file.
        table: the rows.
        append: whether to append the rows to the existing file.
    """
    safe = table.rename(columns=_quote_formula)
    for column in range(safe.shape[1]):
        if safe.dtypes.iloc[column].kind not in "biufcmM":
            safe.isetitem(column, safe.iloc[:, column].map(_quote_formula))
    options = {"mode": "a", "header": False} if append else {}
    safe.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC, **options)


def _quote_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
