"""What all streamed corpora share: from a row to a document, bad input, weighted subsets."""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from core.blank import is_blank
from core.ranges import Ranged, limited, one_of
from injection.sources import Document
from injection.sources.mixture import check_weights, interleave
from injection.sources.reading import Row
from injection.sources.tally import Tally

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
