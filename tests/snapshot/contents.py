"""What the files of a run folder say, without what may change when nothing has.

A file is one of these:

- a *table* (Parquet, CSV, JSON, JSONL): its columns, each cell as exact text. A number has the
  digits that read back as the same number. JSON is one row, a column for each leaf;
- a *page* (Markdown, HTML, LaTeX, text): the numbers on it, since its wording may change. Scripts,
  styles and drawings are left out, data in scripts are not;
- a *chart* (SVG, PNG) and *data* (all else: weights, tokenizers, sequences, exports): its SHA-256.

Left out, because they differ between two records of the same code:

- times, rates and costs: the columns and leaves in `TIMES`; on pages a time of day, and what stands
  before a unit of time ("82 s", "4 min");
- hashes in the names of artefacts; the digest of an artefact is written as the artefact's name.
  They depend on recorded class paths, which a redesign may change;
- the record's own folder and a server's address;
- `launches/` (states, times, a copy of the code), `served/` (answers as they came), `wandb/` (a
  mirror) and locks; of a manifest all but its counts; `latest.json`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TIMES = re.compile(
    r"(^|\.)(tokens_per_second|mfu|seconds|wall_seconds|gpu_hours|peak_memory\w*|created_at)$"
)
"""The last part of the name of a column or a leaf that holds a time, a rate or a cost."""
PAGE_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d\S*|\b\d\d:\d\d(:\d\d)?\b"
    r"|(?<![\d.,])[\d.,]+ (s|min|h|seconds?|minutes?|hours?|GPU hours?|days?)\b"
)
RAW = ("hf", "exports", "tokenizer", "sequences", "checkpoints")
"""Folders within an artefact whose files other programs read: compared by their bytes."""
HASH = re.compile(r"-[0-9a-f]{12}(?![0-9a-f])")
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])")
NOT_IN_LISTS = re.compile(r"[\"{]|true|false")
CHARTS, PAGES = (".png", ".svg"), (".md", ".html", ".tex", ".txt", "")

Clean = Callable[[str], str]
"""What takes from a text what may change when nothing has."""


@dataclass(frozen=True)
class Table:
    """The cells of a table by column: exact text, or None where a cell is missing."""

    columns: Mapping[str, Sequence[str | None]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return max(map(len, self.columns.values()), default=0)

    def numbers(self) -> int:
        """How many numbers its cells have, those in lists included."""
        return sum(number_count(cell) for cells in self.columns.values() for cell in cells)

    def dumped(self) -> bytes:
        """The table as JSON, the same bytes for the same cells whatever the columns' order."""
        return json.dumps(self.columns, sort_keys=True, ensure_ascii=False).encode()


def kind_of(name: str) -> str:
    """Whether a file is a table, a page, a chart or data, by its path in the artefact."""
    path = Path(name)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if path.parts[0] in RAW and len(path.parts) > 1:
        return "data"
    if suffix in (".parquet", ".csv", ".json", ".jsonl"):
        return "table"
    return "chart" if suffix in CHARTS else "page" if suffix in PAGES else "data"


def read_table(file: Path, clean: Clean = str) -> Table:
    """The table of a Parquet, CSV, JSON or JSONL file, with times left out."""
    suffix = Path(file.name.removesuffix(".gz")).suffix
    if suffix == ".parquet":
        columns = _read_parquet(file)
    elif suffix == ".csv":
        columns = _read_csv(file)
    else:
        rows = [json.loads(line) for line in _lines(file)] if suffix == ".jsonl" else [
            json.loads(file.read_text())
        ]  # fmt: skip
        columns = table_of(rows)
    return Table({
        clean(name): [cell if cell is None else clean(cell) for cell in cells]
        for name, cells in columns.items() if not TIMES.search(name)
    })  # fmt: skip


def table_of(rows: Iterable[Any]) -> dict[str, list[str | None]]:
    """The leaves of objects as columns, `a.b.0`, a row for each object."""
    flat = [dict(leaves(row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, str | None]]:
    """The leaves of a JSON value: a name with dots, and the exact text."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{name}.{place}" if name else str(place))
    else:
        yield name, exact(value)


def exact(value: Any) -> str | None:
    """A value as text from which it can be read back; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=str)
    return str(value)


def _read_parquet(file: Path) -> dict[str, list[str | None]]:
    table = pq.read_table(file)
    return {
        name: _cells(column.combine_chunks())
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _cells(column: Any) -> list[str | None]:
    """The cells of an Arrow column; numbers have as many digits as their type needs."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        values = _cells(column.flatten())
        lengths = pa.compute.fill_null(pa.compute.list_value_length(column), 0)
        ends = np.cumsum(lengths.to_numpy())
        starts = [0, *ends[:-1]]
        return [
            f"[{', '.join('null' if value is None else value for value in values[start:end])}]"
            for start, end in zip(starts, ends, strict=True)
        ]
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return list(column.cast(pa.string()).to_pylist())
    return [exact(value) for value in column.to_pylist()]


def _read_csv(file: Path) -> dict[str, list[str | None]]:
    head, *rows = list(csv.reader(_lines(file))) or [[]]
    return {name: [row[place] for row in rows] for place, name in enumerate(head)}


def _lines(file: Path) -> list[str]:
    opened = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return opened.decode().splitlines()


def numbers_of(cell: str | None) -> list[float] | None:
    """The numbers of a cell, one or those of a list; None where it is text or missing."""
    if cell is None:
        return None
    try:
        if not cell.startswith("["):
            return [float(cell)]
        listed = json.loads(cell.replace("nan", "NaN").replace("inf", "Infinity"))
        return [float("nan" if value is None else value) for value in listed]
    except (ValueError, TypeError):
        return None


def number_count(cell: str | None) -> int:
    """How many numbers a cell has, those of a list included."""
    if cell is not None and cell.startswith("[") and not NOT_IN_LISTS.search(cell):
        return cell.count(",") + (cell != "[]")
    return len(numbers_of(cell) or ())


def page_numbers(file: Path, clean: Clean = str) -> Counter[str]:
    """The numbers on a page, and how often each stands there."""
    text = file.read_text(errors="replace")
    if file.suffix == ".html":
        text = _visible(text)
    numbers = NUMBER.findall(PAGE_TIMES.sub(" ", clean(text)))
    return Counter(number.replace(",", "").replace("−", "-") for number in numbers)


def _visible(page: str) -> str:
    """The text of a page, and the data in its scripts."""
    data = re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
    for element in ("script", "style", "svg"):
        page = re.sub(rf"<{element}\b.*?</{element}>", " ", page, flags=re.DOTALL)
    return " ".join([html.unescape(re.sub(r"<[^>]*>", " ", page)), *data])


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()
