"""Where documents and benchmark rows come from: one class a kind of source."""

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
    """A source of documents, always in the same order."""

    def documents(self) -> Iterator[Document]:
        """Stream the documents."""
        ...

    def fingerprint(self) -> str:
        """What changes with the documents' content: a hash of the files that they come from."""
        ...

    @property
    def skipped(self) -> Counter[str]:
        """What the latest stream left out so far: reason → number."""
        ...


class ByFile(Corpus, Protocol):
    """A corpus whose files can be read on their own, by several readers at once."""

    @property
    def weights(self) -> Mapping[str, float] | None:
        """Subset → its share of characters; None: the files' order."""
        ...

    @property
    def shards(self) -> Sequence[Shard]:
        """The files, in the order in which they are read."""
        ...

    def subsets_in(self, shard: Shard) -> Collection[str]:
        """The subsets of `weights` that the file may have documents of."""
        ...

    def documents_in(self, shard: Shard) -> Iterator[Document]:
        """Stream a file's documents, with `weights` those of its subsets alone."""
        ...


class Rows(Protocol):
    """A source of a benchmark's raw rows, always in the same order."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows; what can't be used goes to the tally."""
        ...
