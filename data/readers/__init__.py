"""The interfaces of readers: sources of documents and of benchmark rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from contamination.data.readers.rows import Row, Shard, Tally


@dataclass(frozen=True)
class Document:
    """One document of a corpus; `document_id` is unique and stable."""

    document_id: str
    subset: str
    text: str


class Corpus(Protocol):
    """A source of documents, which always have the same order."""

    def documents(self) -> Iterator[Document]:
        """Yields the documents."""
        ...

    def fingerprint(self) -> str:
        """Returns a digest of the documents' files, which changes with their content."""
        ...

    @property
    def skipped(self) -> Counter[str]:
        """What the latest stream has left out so far: reason → count."""
        ...


class CorpusByFile(Corpus, Protocol):
    """A corpus whose files can be read independently by several processes."""

    @property
    def weights(self) -> Mapping[str, float] | None:
        """Subset → its share of characters; None: documents are in the order of the files."""
        ...

    @property
    def shards(self) -> Sequence[Shard]:
        """The files, in the order in which they are read."""
        ...

    def subsets_in(self, shard: Shard) -> Collection[str]:
        """Returns the subsets of `weights` that may have documents in the file."""
        ...

    def documents_in(self, shard: Shard) -> Iterator[Document]:
        """Yields a file's documents; with `weights`, only those of its subsets."""
        ...


class RowSource(Protocol):
    """A source of a benchmark's raw rows, which always have the same order."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows; the tally decides what happens with rows that can't be used."""
        ...
