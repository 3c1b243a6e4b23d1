"""What of a finished folder may be published, and how its files are changed for that.

Absolute paths of this machine are shortened to `…/NAME`. Texts are left out unless they are asked
for: their columns in tables, and pages that quote them. A file with a secret is an error.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from contamination.analysis.example_pages import FOLDER as EXAMPLE_PAGES
from contamination.audits.run import KIND as AUDIT
from contamination.audits.run import MARKDOWN, PAGE
from contamination.core.artifacts import CONFIG, read_config
from contamination.core.hashing import file_digest
from contamination.core.integrity import errors_naming_file
from contamination.detection.building.datasheet import KIND as BENCHMARK
from contamination.launch.redaction import Redaction

TEXT_COLUMNS = frozenset(
    ("text", "prompt", "output", "question", "answer", "completion", "choices", "snippet")
)
"""Columns whose values are texts, or parts of texts: they are uploaded unchanged or not at all."""
BENCHMARK_COLUMNS = frozenset(
    ("id", "label", "benchmark", "length", "setting", "created", "changed", "cluster", "overlap")
)
"""What a line of a benchmark keeps without texts: a user's own columns may be parts of the text."""
TEXT, TEXT_HASH = "text", "text_sha256"
DOCUMENTS = (".md", ".html", ".svg", ".tex", ".json", ".yaml", ".txt")
TABLES = (".parquet", ".csv", ".jsonl")
PICTURES = (".png", ".pdf")
NO_TEXTS = "it quotes texts; texts=true uploads it"
TEXTS_REMOVED, PATHS_SHORTENED = "texts removed", "absolute paths shortened"


@dataclass(frozen=True)
class PublishedFile:
    """A file as it is uploaded.

    Attributes:
        name: its path in the folder.
        content: its bytes, or the file itself if nothing was changed.
        remark: how it differs from the folder's file; "": not at all.
    """

    name: str
    content: bytes | Path
    remark: str = ""

    @cached_property
    def sha256(self) -> str:
        """The hash of the content."""
        if isinstance(self.content, Path):
            return file_digest(self.content)
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)


def find_left_out(folder: Path, kind: str, names: Iterable[str], texts: bool) -> dict[str, str]:
    """Returns name → reason for the files that are not uploaded."""
    names = [*names]
    left_out = {
        name: "its type of file can't be checked for paths and texts"
        for name in names
        if Path(name).suffix not in (*DOCUMENTS, *TABLES, *PICTURES)
    }
    quoting = [name for name in names if name.startswith(f"{EXAMPLE_PAGES}/")]
    if kind == AUDIT and any(_has_texts(folder / name) for name in names):
        quoting += [MARKDOWN, PAGE]
    return left_out if texts else left_out | {name: NO_TEXTS for name in quoting if name in names}


def _has_texts(file: Path) -> bool:
    if file.suffix != ".parquet":
        return False
    with errors_naming_file(file):
        return any(name in TEXT_COLUMNS for name in pq.read_schema(file).names)


def _is_text(column: str, kind: str) -> bool:
    if kind == BENCHMARK:
        return column not in BENCHMARK_COLUMNS
    return column in TEXT_COLUMNS


def publish_file(
    folder: Path, kind: str, name: str, texts: bool, redaction: Redaction
) -> PublishedFile:
    """Returns a file as it is uploaded.

    Raises:
        DataError: it contains a secret.
        ArtifactError: it can't be read.
    """
    file = folder / name
    with errors_naming_file(file):
        if file.suffix in PICTURES:
            return PublishedFile(name, file)
        if file.suffix in DOCUMENTS:
            text = file.read_text(encoding="utf-8")
            redaction.check_no_secret(name, text)
            shortened = redaction.hide_paths(text)
            if name == CONFIG:  # a long value of YAML may go over several lines
                values = redaction.hide_paths_in(read_config(folder))
                shortened = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            changed = shortened != text
            content = shortened.encode()
            return PublishedFile(name, content if changed else file, PATHS_SHORTENED * changed)
        table = _Table(name, kind, texts, redaction)
        content = {".parquet": table.parquet, ".csv": table.csv, ".jsonl": table.json_lines}[
            file.suffix
        ](file)
        return PublishedFile(name, content if table.remarks else file, ", ".join(table.remarks))


class _Table:
    """Publishes one table; `remarks` tells what was changed."""

    def __init__(self, name: str, kind: str, texts: bool, redaction: Redaction) -> None:
        self.name, self.kind, self.texts, self.redaction = name, kind, texts, redaction
        self.remarks: list[str] = []

    def parquet(self, file: Path) -> bytes:
        """Returns a Parquet file without texts and absolute paths."""
        table = pq.read_table(file)
        for name in table.column_names:
            column = table.column(name)
            if self._drops(name):
                table = table.drop_columns(name)
            elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                values = column.to_pylist()
                hidden = self._publish_values(name, values)
                if hidden != values:
                    place = table.column_names.index(name)
                    table = table.set_column(place, name, pa.array(hidden, column.type))
        stream = BytesIO()
        pq.write_table(table.replace_schema_metadata(), stream, compression="zstd")
        return stream.getvalue()

    def csv(self, file: Path) -> bytes:
        """Returns a CSV file without texts and absolute paths."""
        with file.open(newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream)
        kept = [i for i, name in enumerate(header) if not self._drops(name)]
        columns = [self._publish_values(header[i], [row[i] for row in rows]) for i in kept]
        out = StringIO()
        lines = [[header[i] for i in kept], *zip(*columns, strict=True)]
        csv.writer(out, lineterminator="\n").writerows(lines)
        return out.getvalue().encode()

    def json_lines(self, file: Path) -> bytes:
        """Returns a JSON Lines file; a text that is removed leaves its SHA-256."""
        lines = []
        with file.open(encoding="utf-8") as stream:
            for line in stream:
                row: dict[str, Any] = json.loads(line)
                text = row.get(TEXT)
                row = {
                    name: self._publish_values(name, [value])[0] if type(value) is str else value
                    for name, value in row.items()
                    if not self._drops(name)
                }
                if isinstance(text, str) and TEXT not in row:
                    row[TEXT_HASH] = hashlib.sha256(text.encode()).hexdigest()
                lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        return "".join(lines).encode()

    def _drops(self, column: str) -> bool:
        drops = not self.texts and _is_text(column, self.kind)
        self._note(drops, TEXTS_REMOVED)
        return drops

    def _publish_values(self, column: str, values: list[Any]) -> list[Any]:
        """Returns a column's values; texts that were asked for are not changed."""
        joined = "\n".join(value for value in values if value)
        self.redaction.check_no_secret(self.name, joined)
        if column in TEXT_COLUMNS or self.redaction.hide_paths(joined) == joined:
            return values
        self._note(True, PATHS_SHORTENED)
        return [value and self.redaction.hide_paths(value) for value in values]

    def _note(self, is_changed: bool, remark: str) -> None:
        if is_changed and remark not in self.remarks:
            self.remarks.append(remark)
