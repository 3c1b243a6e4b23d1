"""Reads local files as a corpus or a benchmark: JSONL (plain, .gz, .zst), CSV, Parquet, text."""

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

from contamination.core.config import Ranged, one_of, ranged_field
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.hashing import combined_digest, digests_by_name
from contamination.core.stored_files import finite_float, finite_int
from contamination.data.readers import Document
from contamination.data.readers.mixture import check_weights, interleave_by_weight
from contamination.data.readers.rows import (
    READER_BY_FORMAT,
    ReadOptions,
    Row,
    Shard,
    Tally,
    read_file,
)
from contamination.data.words import is_blank

ENCODING_ERRORS = ("strict", "replace", "ignore")
MISSING_VALUE = object()


def value_at_path_or_missing(row: Any, path: str) -> Any:
    """Returns the value at a field path such as `meta.source`; JSON in strings is parsed.

    Returns MISSING_VALUE if there is none.
    """
    if isinstance(row, Mapping) and path in row:
        return row[path]
    for key in path.split("."):
        row = _parse_json(row)
        if not isinstance(row, Mapping) or key not in row:
            return MISSING_VALUE
        row = row[key]
    return row


def value_at(row: Row, path: str, tally: Tally) -> Any:
    """Returns the value at a field path; None if null or missing, which the tally counts."""
    value = value_at_path_or_missing(row.value, path)
    if value is MISSING_VALUE:
        field_names = ", ".join(row.value) or "none"
        tally.reject("missing field", row.where, f"no {path!r}; its fields are {field_names}")
        return None
    if value is None:
        tally.reject("null field", row.where, f"{path!r} is null")
    return value


def _parse_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_float=finite_float, parse_int=finite_int)
    except ValueError:
        return MISSING_VALUE


@dataclass(frozen=True, kw_only=True)
class StreamedCorpus(Ranged, ABC, node="corpus"):
    """Base class of corpora that are read row by row."""

    name: str
    text: str = "text"
    """The field path of the document's text."""
    subset: str | None = None
    """The field path of the subset's name; null: the corpus's name."""
    weights: Mapping[str, float] | None = None
    """Subset → its share of characters (in any unit); other subsets are left out. null: rows in
    their order."""
    on_error: str = "stop"
    """What to do with input that can't be used: stop, or skip (leave it out and count it)."""
    encoding_errors: str = ranged_field("strict", one_of(ENCODING_ERRORS))
    """What to do with invalid UTF-8: strict (see on_error), replace or ignore the bytes."""
    _tallies: list[Tally] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        Tally(self.on_error, "corpus.on_error")
        if self.weights is not None:
            check_weights(self.weights)
            remedy = "corpus.weights needs the field that names the subset."
            self.require(self.subset is not None, "subset", remedy)

    def documents(self) -> Iterator[Document]:
        """Yields the documents.

        With weights, each subset has its own stream, so that memory does not grow with the corpus.
        If subsets share files, each stream decodes these files again.
        """
        self._tallies.clear()
        if self.weights is None:
            return self._stream_documents(None)
        return interleave_by_weight(
            {name: self._stream_documents(name) for name in self.weights}, self.weights
        )

    @property
    def skipped(self) -> Counter[str]:
        """What the latest stream has left out so far: reason → count."""
        # Streams of the same rows have each read a prefix of them: the longest has all counts.
        merge = operator.add if self._has_disjoint_files else operator.or_
        return reduce(merge, (tally.skipped for tally in self._tallies), Counter())

    @property
    def _has_disjoint_files(self) -> bool:
        """Whether the streams of subsets read different files."""
        return False

    @abstractmethod
    def _iter_rows(self, tally: Tally, wanted_subset: str | None) -> Iterator[Row]:
        """Yields the raw rows; rows of subsets other than `wanted_subset` may be left out."""

    @abstractmethod
    def _document_id(self, row: Row, subset: str, text: str, tally: Tally) -> str | None: ...

    def _stream_documents(self, wanted_subset: str | None) -> Iterator[Document]:
        tally = Tally(self.on_error, "corpus.on_error")
        self._tallies.append(tally)
        return self._iter_documents(
            self._iter_rows(tally, wanted_subset),
            tally,
            None if wanted_subset is None else {wanted_subset},
        )

    def _iter_documents(
        self, rows: Iterator[Row], tally: Tally, wanted_subsets: Collection[str] | None
    ) -> Iterator[Document]:
        for row in rows:
            text = self._usable_text(row, tally)
            subset = None if text is None else self._subset_name(row, tally)
            if (
                text is None
                or subset is None
                or not (wanted_subsets is None or subset in wanted_subsets)
            ):
                continue
            identity = self._document_id(row, subset, text, tally)
            if identity is not None:
                yield Document(identity, subset, text)

    def _usable_text(self, row: Row, tally: Tally) -> str | None:
        text = value_at(row, self.text, tally)
        if text is None:
            return None
        if not isinstance(text, str):
            detail = f"{self.text!r} is a {type(text).__name__}"
            tally.reject("text is not a string", row.where, detail)
            return None
        if not text.isascii():
            try:  # JSON can encode lone surrogates, which tokenizers reject
                text.encode()
            except UnicodeEncodeError as error:
                if self.encoding_errors == "strict":
                    tally.reject("invalid UTF-8", row.where, str(error))
                    return None
                text = text.encode(errors=self.encoding_errors).decode()
        if not is_blank(text):
            return text
        tally.count_empty()
        return None

    def _subset_name(self, row: Row, tally: Tally) -> str | None:
        if self.subset is None:
            return self.name
        value = value_at(row, self.subset, tally)
        return None if value is None else str(value)


SUBSET_FROM_FOLDER = "@folder"
SUFFIXES_BY_FORMAT = {
    "jsonl": (".jsonl", ".ndjson", ".json"),
    **{"csv": (".csv",), "tsv": (".tsv",), "parquet": (".parquet",)},
    "text": (".txt", ".text", ".md"),
}
FORMAT_BY_SUFFIX = {
    suffix: format for format, suffixes in SUFFIXES_BY_FORMAT.items() for suffix in suffixes
}
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True, kw_only=True)
class FilesCorpus(StreamedCorpus):
    """Local files, read in the order of their names.

    `subset` may also be `@folder`: the first folder below the root of `paths`, as in RedPajama's
    layout (arxiv, c4, common_crawl, …).
    """

    paths: str | Sequence[str] | None
    """A folder, a glob pattern, a file, or a list of these. Required."""
    format: str = "auto"
    """auto (by suffix), jsonl, csv, tsv, parquet, or text (one document per file)."""
    id: str | None = None
    """The field path of the document's id; null: the file's name and the row's number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset == SUBSET_FROM_FOLDER and self.weights is not None:
            folders = {shard.folder or self.name for shard in self.shards}
            for name in self.weights:
                hint = f"no such folder with files in corpus.paths. {near_names(name, folders)}"
                require(name in folders, f"corpus.weights.{name}", self.weights[name], hint)
        else:
            _ = self.shards  # to report a missing path before any work

    @cached_property
    def shards(self) -> list[Shard]:
        """The files, sorted by name."""
        return find_shards(self.paths, self.format, "corpus.paths")

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the files' names and bytes."""
        return combined_digest(digests_by_name({shard.name: shard.path for shard in self.shards}))

    def max_text_bytes(self) -> int | None:
        """Returns an upper bound of all texts' size in bytes; None if files are compressed."""
        compressed = any(s.format == "parquet" or s.path.suffix in COMPRESSED for s in self.shards)
        return None if compressed else sum(s.path.stat().st_size for s in self.shards)

    def subsets_in(self, shard: Shard) -> Collection[str]:
        """Returns the subsets of `weights` that may have documents in the file."""
        subsets = {*(self.weights or ())}
        return subsets & {shard.folder or self.name} if self._has_disjoint_files else subsets

    def documents_in(self, shard: Shard) -> Iterator[Document]:
        """Yields a file's documents; with `weights`, only those of its subsets."""
        self._tallies[:] = [tally := Tally(self.on_error, "corpus.on_error")]
        return self._iter_documents(
            read_file(shard, self._read_options(tally)), tally, self.weights
        )

    @property
    def _has_disjoint_files(self) -> bool:
        return self.subset == SUBSET_FROM_FOLDER

    def _read_options(self, tally: Tally) -> ReadOptions:
        field_paths = [p for p in (self.text, self.subset, self.id) if p is not None]
        columns = dict.fromkeys(column for p in field_paths for column in (p, p.split(".")[0]))
        return ReadOptions(tally, tuple(columns), self.encoding_errors)

    def _iter_rows(self, tally: Tally, wanted_subset: str | None) -> Iterator[Row]:
        reading = self._read_options(tally)
        for shard in self.shards:
            if (
                wanted_subset is None
                or not self._has_disjoint_files
                or (shard.folder or self.name) == wanted_subset
            ):
                yield from read_file(shard, reading)

    def _subset_name(self, row: Row, tally: Tally) -> str | None:
        if self.subset == SUBSET_FROM_FOLDER:
            return row.shard.folder or self.name
        return super()._subset_name(row, tally)

    def _document_id(self, row: Row, subset: str, text: str, tally: Tally) -> str | None:
        if self.id is None:
            is_whole_file = row.shard.format == "text"
            return row.shard.name if is_whole_file else f"{row.shard.name}:{row.number}"
        value = value_at(row, self.id, tally)
        return None if value is None else str(value)


@dataclass(frozen=True)
class FileRows:
    """A benchmark's rows from a local JSONL, CSV or Parquet file."""

    path: str | None
    """A file, a folder or a glob pattern. Required."""
    format: str = "auto"
    """auto (by suffix), jsonl, csv, tsv or parquet."""

    def __post_init__(self) -> None:
        kinds = {shard.format for shard in self.shards}
        remedy = "a benchmark needs fields: give a JSONL, CSV or Parquet file."
        require("text" not in kinds, "rows.path", self.path, remedy)

    @cached_property
    def shards(self) -> list[Shard]:
        """The files, sorted by name."""
        return find_shards(self.path, self.format, "rows.path")

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows in file order."""
        for shard in self.shards:
            yield from read_file(shard, ReadOptions(tally))


def find_shards(paths: str | Sequence[str] | None, format: str, option: str) -> list[Shard]:
    """Returns the files that `paths` names, sorted by their paths relative to each entry's root.

    Raises:
        ConfigError: there is no file, the format is unknown, or two files have the same name.
    """
    formats = ("auto", *READER_BY_FORMAT)
    require(
        format in formats, _file_format_field(option), format, f"choose from {', '.join(formats)}."
    )
    entries = [paths] if isinstance(paths, str) else list(paths or ())
    require(bool(entries), option, paths, "give a file, a folder or a glob pattern.")
    shard_by_name: dict[str, Shard] = {}
    for entry in entries:
        for shard in _find_shards_of_entry(entry, format, option):
            same_name = shard_by_name.setdefault(shard.name, shard)
            if same_name.path != shard.path:
                raise ConfigError(
                    f"{option}: {same_name.path} and {shard.path} would give their documents the "
                    "same ids: give their common folder, or a glob pattern in it."
                )
    return [shard_by_name[name] for name in sorted(shard_by_name)]


def _find_shards_of_entry(entry: str, format: str, option: str) -> Iterator[Shard]:
    path = Path(entry).expanduser()
    if path.is_file():
        files, root, named = [path], path.parent, True
    elif path.is_dir():
        files, root, named = [p for p in path.rglob("*") if not _is_hidden(p, path)], path, False
    else:
        root = Path(re.split(r"[*?\[]", str(path))[0] + "x").parent
        files, named = [Path(p) for p in glob.glob(str(path), recursive=True)], True
    shards = [
        Shard(file.resolve(), file.relative_to(root).as_posix(), kind)
        for file in files
        if file.is_file() and (kind := _format_of_file(file, format, option, named))
    ]
    remedy = f"there is no file of a known kind ({', '.join(FORMAT_BY_SUFFIX)})."
    require(bool(shards), option, entry, remedy)
    yield from shards


def _is_hidden(path: Path, root: Path) -> bool:
    return any(name.startswith(".") for name in path.relative_to(root).parts)


def _file_format_field(option: str) -> str:
    """Returns the configuration field with the format of the files in the field `option`."""
    return option.replace("path", "format").removesuffix("s")


def _format_of_file(file: Path, format: str, option: str, is_named_by_user: bool) -> str | None:
    """Returns the file's format, or None if a file in a folder has another format."""
    path = file.resolve()
    suffixes = [s for s in path.suffixes if s not in COMPRESSED]
    by_suffix = FORMAT_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if format != "auto":
        return format if format == "text" or is_named_by_user or by_suffix == format else None
    if by_suffix is None and is_named_by_user:
        raise ConfigError(
            f"{option}: the suffix of {path} does not show its format. Give it with "
            f"{_file_format_field(option)}={'|'.join(READER_BY_FORMAT)}."
        )
    return by_suffix
