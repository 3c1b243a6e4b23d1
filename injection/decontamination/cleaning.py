"""Reads the files of a corpus, counts documents by n-gram, and writes files without the items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from contamination.core.progress import progress_bar
from contamination.core.table_files import write_parquet
from contamination.data.ngrams import words_of
from contamination.data.readers.rows import Shard, Tally
from contamination.injection.decontamination.config import DOCUMENTS
from contamination.injection.decontamination.rewriting import iter_texts, rewrite_file
from contamination.injection.decontamination.rules.base import (
    Counts,
    ItemSearch,
    Match,
    Rule,
    merge_spans,
)
from contamination.injection.decontamination.rules.item_ngrams import split_words
from contamination.injection.token_stream import Tokenizer

CLEANED_FOLDER = "documents"
STAGE = "decontaminate"
UNITS = ("documents", "words", "characters", "tokens")
"""What a corpus is measured in; tokens are counted if there is a tokenizer."""
MATCH_COLUMNS = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("item", pa.int64()),
        ("kind", pa.string()),
        ("share", pa.float64()),
        ("matched_text", pa.string()),
    ]
)
SPAN_SEPARATOR = " […] "
"""The text between the spans of a match in the report."""


@dataclass(frozen=True)
class DocumentFiles:
    """The files of a corpus.

    Attributes:
        shards: the files.
        column: the column of the documents' texts.
        on_error: `stop` or `skip`.
    """

    shards: Sequence[Shard]
    column: str
    on_error: str

    def tally(self) -> Tally:
        """Returns a new tally of rows that can't be used."""
        return Tally(self.on_error, "on_error")


@dataclass(frozen=True)
class CountingTask:
    """Counts the documents that contain each n-gram, one piece per file."""

    files_of_corpus: DocumentFiles
    rule: Rule
    items: Sequence[str]
    folder: Path

    @cached_property
    def _ngrams(self) -> Any:
        return self.rule.counted_ngrams(self.items)

    def __len__(self) -> int:
        """Returns the number of files."""
        return len(self.files_of_corpus.shards)

    def files(self, piece: int) -> list[Path]:
        """Returns the file of the counts."""
        return [self.folder / f"{piece:05d}-counts.npy"]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Counts a file's documents; returns their number."""
        shard, documents = self.files_of_corpus.shards[piece], 0
        counts = np.zeros(len(self._ngrams.index.grams), np.int64)
        texts = iter_texts(shard, self.files_of_corpus.column, self.files_of_corpus.tally())
        with progress_bar(desc=f"count {shard.name}", stage=STAGE, unit="document") as bar:
            for text in texts:
                counts[np.unique(self._ngrams.places(self._ngrams.numbered(text).words)[1])] += 1
                documents += 1
                bar.update()
        np.save(self.files(piece)[0], counts)
        return {"documents": documents}

    def document_counts(self) -> Counts:
        """Returns the counts of all files together, shape (n-grams,)."""
        counts = [np.load(self.files(piece)[0]) for piece in range(len(self))]
        total: Counts = np.sum(counts, axis=0)
        return total


@dataclass(frozen=True)
class CleaningTask:
    """Writes the files of a corpus without the items of a benchmark, one piece per file.

    Attributes:
        files_of_corpus: the files.
        rule: the rule.
        items: the items' texts.
        document_counts: see `Rule.search`.
        remove: `documents` or `spans`.
        tokenizer: the tokenizer's path; None: tokens are not counted.
        folder: the folder of the new files and of the tables of matches.
    """

    files_of_corpus: DocumentFiles
    rule: Rule
    items: Sequence[str]
    document_counts: Counts | None
    remove: str
    tokenizer: str | None
    folder: Path

    @cached_property
    def search(self) -> ItemSearch:
        """The search for the items."""
        return self.rule.search(self.items, self.document_counts)

    @cached_property
    def _loaded_tokenizer(self) -> Tokenizer | None:
        return None if self.tokenizer is None else Tokenizer(self.tokenizer)

    def __len__(self) -> int:
        """Returns the number of files."""
        return len(self.files_of_corpus.shards)

    def cleaned_file(self, piece: int) -> Path:
        """Returns the path of the new file."""
        return self.folder / CLEANED_FOLDER / self.files_of_corpus.shards[piece].name

    def matches_file(self, piece: int) -> Path:
        """Returns the path of the table of a file's matches."""
        return self.folder / "work" / f"{piece:05d}-matches.parquet"

    def files(self, piece: int) -> list[Path]:
        """Returns the new file and the table of its matches."""
        return [self.cleaned_file(piece), self.matches_file(piece)]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Writes a file; returns counts.

        Returns:
            `read` and `lost`, each by unit (`UNITS`); `flagged`, the number of documents with a
            match; `skipped`, the counts of rows that can't be used.
        """
        shard, tally = self.files_of_corpus.shards[piece], self.files_of_corpus.tally()
        rows: list[dict[str, Any]] = []
        read, lost = np.zeros(len(UNITS), np.int64), np.zeros(len(UNITS), np.int64)
        flagged = 0
        with progress_bar(desc=f"clean {shard.name}", stage=STAGE, unit="document") as bar:

            def clean(row: int, text: str) -> str | None:
                nonlocal flagged
                remaining, matches = self._clean_text(text)
                rows.extend(_match_row(shard, row, *pair) for pair in matches)
                size = self._size(text)
                read[:] += size
                bar.update()
                if not matches:
                    return text
                flagged += 1
                lost[:] += size if remaining is None else size - self._size(remaining)
                return remaining

            rewrite_file(shard, self.cleaned_file(piece), self.files_of_corpus.column, clean, tally)
        self.matches_file(piece).parent.mkdir(parents=True, exist_ok=True)
        write_parquet(self.matches_file(piece), pa.Table.from_pylist(rows, MATCH_COLUMNS))
        return {
            "read": dict(zip(UNITS, read.tolist(), strict=True)),
            "lost": dict(zip(UNITS, lost.tolist(), strict=True)),
            "flagged": flagged,
            "skipped": dict(tally.skipped),
        }

    def _clean_text(self, text: str) -> tuple[str | None, list[tuple[str, Match]]]:
        """Returns what remains of a document, and the first match of each item with its text.

        What remains is searched again, since its parts may now form an item.
        """
        found: dict[int, tuple[str, Match]] = {}
        remaining: str | None = text
        while remaining is not None and (matches := self.search.matches(remaining)):
            for match in matches:
                found.setdefault(match.item, (remaining, match))
            remaining = remaining_text(remaining, matches, self.remove)
        return remaining, [found[item] for item in sorted(found)]

    def _size(self, text: str) -> Counts:
        """Returns the size of a document's text in each unit, shape (units,)."""
        tokenizer = self._loaded_tokenizer
        tokens = 0 if tokenizer is None else len(tokenizer.encode(text))
        return np.array([1, len(split_words(text)), len(text), tokens], np.int64)


def remaining_text(text: str, matches: Sequence[Match], remove: str) -> str | None:
    """Returns a document's text without its matches, or None if the document is to be left out.

    Args:
        text: the document.
        matches: its matches, at least one.
        remove: `documents` or `spans`.
    """
    if remove == DOCUMENTS:
        return None
    parts, place = [], 0
    for start, end in merge_spans([span for match in matches for span in match.spans]):
        parts.append(text[place:start])
        place = end
    remaining = "".join([*parts, text[place:]])
    return remaining if words_of(remaining) else None


def _match_row(shard: Shard, row: int, text: str, match: Match) -> dict[str, Any]:
    matched_text = SPAN_SEPARATOR.join(text[start:end] for start, end in match.spans)
    return {
        "file": shard.name,
        "row": row,
        "item": match.item,
        "kind": match.kind,
        "share": match.share,
        "matched_text": matched_text,
    }
