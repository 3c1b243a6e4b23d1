"""Local files as a corpus or as a benchmark: JSONL (plain, .gz, .zst), CSV, Parquet, text."""

from __future__ import annotations

import glob
import json
import operator
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from contamination.core.config import Ranged, limited, one_of
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.hashing import digests, files_digest
from contamination.data.readers import Document
from contamination.data.readers.mixture import check_weights, interleave
from contamination.data.readers.rows import READERS, Reading, Row, Shard, Tally, read
from contamination.data.text import is_blank

ENCODING_ERRORS = ("strict", "replace", "ignore")
MISSING = object()


def lookup(row: Any, path: str) -> Any:
    """The value at a field path (`meta.source`), or MISSING; objects kept as JSON text open too."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    for key in path.split("."):
        row = _opened(row)
        if not isinstance(row, Mapping) or key not in row:
            return MISSING
        row = row[key]
    return row


def value_at(row: Row, path: str, tally: Tally) -> Any:
    """The value at a field path, or None where it is null or missing, which the tally counts."""
    value = lookup(row.value, path)
    if value is MISSING:
        has = ", ".join(row.value) or "none"
        tally.bad("missing field", row.where, f"no {path!r}; its fields are {has}")
        return None
    if value is None:
        tally.bad("null field", row.where, f"{path!r} is null")
    return value


def _opened(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return MISSING


@dataclass(frozen=True, kw_only=True)
class StreamedCorpus(Ranged, ABC, node="corpus"):
    """A corpus read row by row; the part that does not depend on where the rows come from."""

    name: str
    text: str = "text"
    """Field path of the document's text."""
    subset: str | None = None
    """Field path of the subset's name; null: the corpus's name."""
    weights: Mapping[str, float] | None = None
    """Subset → its share of characters (any unit); others are left out. Null: the rows' order."""
    on_error: str = "stop"
    """What to do at input that can't be used: stop, or skip (leave it out and count it)."""
    encoding_errors: str = limited("strict", one_of(ENCODING_ERRORS))
    """Invalid UTF-8: strict (bad input, see on_error), replace or ignore the bytes."""
    _tallies: list[Tally] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        Tally(self.on_error, "corpus.on_error")
        if self.weights is not None:
            check_weights(self.weights)
            remedy = "corpus.weights needs the field that names the subset."
            self.require(self.subset is not None, "subset", remedy)

    def documents(self) -> Iterator[Document]:
        """Stream the documents.

        With weights, each subset is a reader of its own, so that memory does not grow with the
        corpus; where subsets share shards, each reader decodes those shards again.
        """
        self._tallies.clear()
        if self.weights is None:
            return self._stream(None)
        return interleave({name: self._stream(name) for name in self.weights}, self.weights)

    @property
    def skipped(self) -> Counter[str]:
        """What the latest stream left out so far: reason → number."""
        # Readers of the same rows each saw a prefix of them: the furthest (the maximum) saw all.
        merge = operator.add if self._disjoint else operator.or_
        return reduce(merge, (tally.skipped for tally in self._tallies), Counter())

    @property
    def _disjoint(self) -> bool:
        """Whether the subsets' readers read different shards."""
        return False

    @abstractmethod
    def _rows(self, tally: Tally, only: str | None) -> Iterator[Row]:
        """The raw rows; those of other subsets than `only` may be left out."""

    @abstractmethod
    def _document_id(self, row: Row, subset: str, text: str, tally: Tally) -> str | None: ...

    def _stream(self, only: str | None) -> Iterator[Document]:
        tally = Tally(self.on_error, "corpus.on_error")
        self._tallies.append(tally)
        return self._documents(self._rows(tally, only), tally, None if only is None else {only})

    def _documents(
        self, rows: Iterator[Row], tally: Tally, only: Collection[str] | None
    ) -> Iterator[Document]:
        for row in rows:
            text = self._text(row, tally)
            subset = None if text is None else self._subset(row, tally)
            if text is None or subset is None or not (only is None or subset in only):
                continue
            identity = self._document_id(row, subset, text, tally)
            if identity is not None:
                yield Document(identity, subset, text)

    def _text(self, row: Row, tally: Tally) -> str | None:
        text = value_at(row, self.text, tally)
        if text is None:
            return None
        if not isinstance(text, str):
            detail = f"{self.text!r} is a {type(text).__name__}"
            tally.bad("text is not a string", row.where, detail)
            return None
        if not text.isascii():
            try:  # JSON can spell half a surrogate pair, which no tokenizer takes
                text.encode()
            except UnicodeEncodeError as error:
                if self.encoding_errors == "strict":
                    tally.bad("invalid UTF-8", row.where, str(error))
                    return None
                text = text.encode(errors=self.encoding_errors).decode()
        if not is_blank(text):
            return text
        tally.empty()
        return None

    def _subset(self, row: Row, tally: Tally) -> str | None:
        if self.subset is None:
            return self.name
        value = value_at(row, self.subset, tally)
        return None if value is None else str(value)


FOLDER = "@folder"
SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson", ".json"),
    **{"csv": (".csv",), "tsv": (".tsv",), "parquet": (".parquet",)},
    "text": (".txt", ".text", ".md"),
}
FORMATS = {suffix: format for format, suffixes in SUFFIXES.items() for suffix in suffixes}
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True, kw_only=True)
class FilesCorpus(StreamedCorpus):
    """Local shards, read in the order of their names.

    `subset` may also be `@folder`: the first folder below the root of `paths` (with RedPajama's own
    layout: arxiv, c4, common_crawl, …).
    """

    paths: str | Sequence[str] | None
    """A folder, a glob pattern, a file, or a list of these. Required."""
    format: str = "auto"
    """auto (by suffix), jsonl, csv, tsv, parquet, or text (one document a file)."""
    id: str | None = None
    """Field path of the document's id; null: the shard's name and the row's number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset == FOLDER and self.weights is not None:
            folders = {shard.folder or self.name for shard in self.shards}
            for name in self.weights:
                hint = f"no such folder with files in corpus.paths. {near_names(name, folders)}"
                require(name in folders, f"corpus.weights.{name}", self.weights[name], hint)
        else:
            _ = self.shards  # a missing path is an error before any work

    @cached_property
    def shards(self) -> list[Shard]:
        """The files, by name."""
        return find_shards(self.paths, self.format, "corpus.paths")

    def fingerprint(self) -> str:
        """SHA-256 of the shards' names and bytes."""
        return files_digest(digests({shard.name: shard.path for shard in self.shards}))

    def most_bytes(self) -> int | None:
        """Bytes that its texts can't exceed; None where the files are compressed."""
        packed = any(s.format == "parquet" or s.path.suffix in COMPRESSED for s in self.shards)
        return None if packed else sum(s.path.stat().st_size for s in self.shards)

    def subsets_in(self, shard: Shard) -> Collection[str]:
        """The subsets of `weights` that the file may have documents of."""
        subsets = {*(self.weights or ())}
        return subsets & {shard.folder or self.name} if self._disjoint else subsets

    def documents_in(self, shard: Shard) -> Iterator[Document]:
        """Stream a file's documents, with `weights` those of its subsets alone."""
        self._tallies[:] = [tally := Tally(self.on_error, "corpus.on_error")]
        return self._documents(read(shard, self._reading(tally)), tally, self.weights)

    @property
    def _disjoint(self) -> bool:
        return self.subset == FOLDER

    def _reading(self, tally: Tally) -> Reading:
        paths = [p for p in (self.text, self.subset, self.id) if p is not None]
        columns = dict.fromkeys(column for p in paths for column in (p, p.split(".")[0]))
        return Reading(tally, tuple(columns), self.encoding_errors)

    def _rows(self, tally: Tally, only: str | None) -> Iterator[Row]:
        reading = self._reading(tally)
        for shard in self.shards:
            if only is None or not self._disjoint or (shard.folder or self.name) == only:
                yield from read(shard, reading)

    def _subset(self, row: Row, tally: Tally) -> str | None:
        if self.subset == FOLDER:
            return row.shard.folder or self.name
        return super()._subset(row, tally)

    def _document_id(self, row: Row, subset: str, text: str, tally: Tally) -> str | None:
        if self.id is None:
            one = row.shard.format == "text"
            return row.shard.name if one else f"{row.shard.name}:{row.number}"
        value = value_at(row, self.id, tally)
        return None if value is None else str(value)


@dataclass(frozen=True)
class FileRows:
    """A benchmark's rows from a local JSONL, CSV or Parquet file."""

    path: str | None
    """A file (or a folder, or a glob pattern). Required."""
    format: str = "auto"
    """auto (by suffix), jsonl, csv, tsv or parquet."""

    def __post_init__(self) -> None:
        kinds = {shard.format for shard in self.shards}
        remedy = "a benchmark has fields: give a JSONL, CSV or Parquet file."
        require("text" not in kinds, "rows.path", self.path, remedy)

    @cached_property
    def shards(self) -> list[Shard]:
        """The files, by name."""
        return find_shards(self.path, self.format, "rows.path")

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows in file order."""
        for shard in self.shards:
            yield from read(shard, Reading(tally))


def find_shards(paths: str | Sequence[str] | None, format: str, option: str) -> list[Shard]:
    """The files that `paths` names, sorted by their names below each entry's root.

    Raises:
        ConfigError: nothing is there, a format is unknown, or two files have one name.
    """
    known = ("auto", *READERS)
    require(format in known, _format_of(option), format, f"choose from {', '.join(known)}.")
    entries = [paths] if isinstance(paths, str) else list(paths or ())
    require(bool(entries), option, paths, "give a file, a folder or a glob pattern.")
    found: dict[str, Shard] = {}
    for entry in entries:
        for shard in _expand(entry, format, option):
            other = found.setdefault(shard.name, shard)
            if other.path != shard.path:
                raise ConfigError(
                    f"{option}: {other.path} and {shard.path} would give their documents the same "
                    "ids: name their common folder, or a glob pattern over it."
                )
    return [found[name] for name in sorted(found)]


def _expand(entry: str, format: str, option: str) -> Iterator[Shard]:
    path = Path(entry).expanduser()
    if path.is_file():
        files, root, named = [path], path.parent, True
    elif path.is_dir():
        files, root, named = [p for p in path.rglob("*") if not _hidden(p, path)], path, False
    else:
        root = Path(re.split(r"[*?\[]", str(path))[0] + "x").parent
        files, named = [Path(p) for p in glob.glob(str(path), recursive=True)], True
    shards = [
        Shard(file.resolve(), file.relative_to(root).as_posix(), kind)
        for file in files
        if file.is_file() and (kind := _kind(file, format, option, named))
    ]
    remedy = f"there is no file of a known kind ({', '.join(FORMATS)})."
    require(bool(shards), option, entry, remedy)
    yield from shards


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _format_of(option: str) -> str:
    """The field that names the format of the files in this one."""
    return option.replace("path", "format").removesuffix("s")


def _kind(file: Path, format: str, option: str, named: bool) -> str | None:
    """The file's format; None for a folder's file of another kind."""
    path = file.resolve()
    suffixes = [s for s in path.suffixes if s not in COMPRESSED]
    by_suffix = FORMATS.get(suffixes[-1]) if suffixes else None
    if format != "auto":
        return format if format == "text" or named or by_suffix == format else None
    if by_suffix is None and named:
        raise ConfigError(
            f"{option}: the kind of {path} can't be told by its suffix. Name it with "
            f"{_format_of(option)}={'|'.join(READERS)}."
        )
    return by_suffix
