"""Where documents and benchmark rows come from: one class a kind of source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from injection.sources.reading import Row
from injection.sources.tally import Tally


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


class Rows(Protocol):
    """A source of a benchmark's raw rows, always in the same order."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows; what can't be used goes to the tally."""
        ...
