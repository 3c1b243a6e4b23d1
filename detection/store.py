"""A pass on disk: an artefact of its own, shared by every method, variant and cell that reads it.

::

    runs/passes/<model>-<view>-<hash>/
    ├── config.yaml      model, view, dtype, what was done with long texts
    ├── stats.parquet    one row a text of the view: text_sha256, copy, truncated, and one list of
    │                    T-1 float32 (top_id: int32) a field of TokenStats
    └── manifest.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.artifacts import temporary
from detection.passes import TokenStats

KIND = "passes"
FILE = "stats.parquet"
STATS = tuple(f.name for f in fields(TokenStats))
COLUMNS = pa.schema(
    [
        ("text_sha256", pa.string()),
        ("copy", pa.int32()),
        ("truncated", pa.bool_()),
        *((name, pa.list_(pa.int32() if name == "top_id" else pa.float32())) for name in STATS),
    ]
)


@dataclass(frozen=True, eq=False)
class Row:
    """One text that a pass scored: copy number `copy` of the view of the text `text_sha256`.

    `windowed` is not stored: a text read in windows has more statistics than the model's context.
    """

    text_sha256: str
    copy: int
    truncated: bool
    stats: TokenStats
    windowed: bool = False


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows in their order; the same rows give the same bytes."""
    plain = [pa.array([getattr(r, name) for r in rows], COLUMNS.field(name).type)
             for name in ("text_sha256", "copy", "truncated")]  # fmt: skip
    columns = [*plain, *(_lists(name, rows) for name in STATS)]
    table = pa.Table.from_arrays(columns, schema=COLUMNS)
    write_parquet(path, table)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a whole file or nothing: two cells may write the pass that they share."""
    part = temporary(path)
    pq.write_table(table, part, compression="zstd", use_dictionary=False)
    part.replace(path)


def read_copies(path: Path) -> Mapping[str, tuple[TokenStats, ...]]:
    """The statistics of each text's copies, by the text's SHA-256."""
    table = pq.read_table(path)
    split = {name: _arrays(pa.concat_arrays(table[name].chunks)) for name in STATS}
    found: dict[str, list[TokenStats]] = {}
    for row, sha256 in enumerate(table["text_sha256"].to_pylist()):
        stats = TokenStats(**{name: split[name][row] for name in STATS})
        found.setdefault(sha256, []).append(stats)
    return {sha256: tuple(copies) for sha256, copies in found.items()}


def _lists(name: str, rows: Sequence[Row]) -> pa.Array:
    parts = [getattr(row.stats, name) for row in rows]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, np.concatenate(parts), type=COLUMNS.field(name).type)


def _arrays(column: pa.Array) -> list[np.ndarray]:
    """The lists of a column as views of one array."""
    offsets = column.offsets.to_numpy()
    return np.split(column.values.to_numpy(), offsets[1:-1])
