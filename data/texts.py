"""A memory-efficient sequence of texts, and groups of texts that share a beginning or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, overload
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from contamination.core.statistics.samples import Clusters, number_clusters

COLUMNS = pa.schema(
    [
        ("example_id", pa.string()),
        ("text", pa.string()),
        ("sha256", pa.string()),
        ("label", pa.bool_()),
        ("benchmark", pa.string()),
        ("output_start", pa.int64()),
        ("cluster", pa.string()),
        ("contamination", pa.string()),
    ]
)
Rows = NDArray[np.int64]
BLOCK_TEXTS = 2**12  # rows per block of columns
ITERATED_TEXTS = 2**8  # texts that are created at once during iteration


pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own pool never returns freed memory


def release_memory() -> None:
    """Returns freed memory to the system; otherwise the C library keeps it."""
    pa.system_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one example.

    Attributes:
        example_id: the id, which is unique among the texts.
        text: the text.
        sha256: the SHA-256 of the text, which does not depend on the id.
        label: whether it is a member; None if unknown. Scores never depend on it.
        benchmark: the name of its benchmark, or "".
        output_start: the index of its output's first character; None if it has no output.
        cluster: the unit to which it belongs, such as a book; "" if it is a unit itself.
        contamination: the corpora that share text with it, apart from its inserted copies; "" if
            none is known.
    """

    example_id: str
    text: str
    sha256: str
    label: bool | None = None
    benchmark: str = ""
    output_start: int | None = None
    cluster: str = ""
    contamination: str = ""


class Texts(Sequence[Text]):
    """A sequence of texts stored as columns; `Text` objects are created on access.

    Slices share the columns.

    Args:
        blocks: the columns COLUMNS in blocks of BLOCK_TEXTS rows; the last may have fewer.
        rows: the rows of the texts in the columns, in order, shape (texts,).
    """

    def __init__(self, blocks: Sequence[pa.RecordBatch], rows: Rows) -> None:
        self._blocks = blocks
        self._rows = rows

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Texts:
        """Returns the texts as columns; a `Texts` is returned unchanged."""
        if isinstance(texts, Texts):
            return texts
        remaining = iter(texts)
        blocks = [
            _record_batch(block) for block in iter(lambda: [*islice(remaining, BLOCK_TEXTS)], [])
        ]
        release_memory()
        return cls(blocks, np.arange(sum(map(len, blocks)), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> Text | Texts:
        if isinstance(index, slice):
            return self.take(index)
        block, row = divmod(int(self._rows[index]), BLOCK_TEXTS)
        return Text(*(column[row].as_py() for column in self._blocks[block].columns))

    def __iter__(self) -> Iterator[Text]:
        for start in range(0, len(self), ITERATED_TEXTS):
            yield from self._make_texts(self._rows[start : start + ITERATED_TEXTS])

    def _make_texts(self, rows: Rows) -> list[Text]:
        """Creates the texts of some rows by block, which is five times as fast as one by one."""
        block_numbers, texts = rows // BLOCK_TEXTS, dict[int, Text]()
        for number in np.unique(block_numbers):
            indices = np.flatnonzero(block_numbers == number)
            block = self._blocks[number].take(pa.array(rows[indices] % BLOCK_TEXTS))
            columns = (column.to_pylist() for column in block.columns)
            texts.update(zip(indices.tolist(), map(Text, *columns), strict=True))
        return [texts[index] for index in range(len(rows))]

    def take(self, indices: Any) -> Texts:
        """Returns the texts at these indices: an array of integers, a mask or a slice."""
        return Texts(self._blocks, self._rows[indices])

    def sorting_indices(self, *names: str) -> Rows:
        """Returns the indices that sort the texts by these columns; the sort is stable."""
        table = pa.table([self.column(name) for name in names], list(names))
        indices: Rows = pc.sort_indices(table, [(n, "ascending") for n in names]).to_numpy()
        return indices.astype(np.int64)

    def column(self, name: str) -> pa.ChunkedArray:
        """Returns one column of the texts."""
        column = pa.chunked_array([b[name] for b in self._blocks], COLUMNS.field(name).type)
        return column.take(pa.array(self._rows))


def _record_batch(texts: Sequence[Text]) -> pa.RecordBatch:
    columns = {name: [getattr(text, name) for text in texts] for name in COLUMNS.names}
    return pa.RecordBatch.from_pydict(columns, COLUMNS)


BEGINNING_CHARACTERS = 64  # by which texts are grouped before they are compared in full


def longest_extension_indices(sequences: Sequence[Any]) -> list[int]:
    """For each sequence, return the index of a longest sequence that begins with it.

    In sorted order, sequences that begin with another sequence directly follow it.
    """
    order = sorted(range(len(sequences)), key=lambda index: sequences[index])
    longest_of = list(range(len(sequences)))
    for index, following in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        prefix = sequences[index]
        if sequences[following][: len(prefix)] == prefix:
            longest_of[index] = longest_of[following]
    return longest_of


def families_by_sha256(parts: Iterable[Texts]) -> dict[str, Texts]:
    """Groups texts into families: the longest text of a family begins with each of the others.

    Only texts that share their first BEGINNING_CHARACTERS are in memory at the same time.

    Returns:
        The family of each text that has one, by the text's SHA-256.
    """
    family_by_sha256: dict[str, Texts] = {}
    for texts in _group_by_beginning(parts):
        longest_indices = longest_extension_indices([text.text for text in texts])
        for _, indices in groupby(
            sorted(range(len(longest_indices)), key=longest_indices.__getitem__),
            longest_indices.__getitem__,
        ):
            family = texts.take(np.array([*indices]))
            if len(family) > 1:
                family_by_sha256 |= dict.fromkeys(family.column("sha256").to_pylist(), family)
    return family_by_sha256


def _group_by_beginning(parts: Iterable[Texts]) -> Iterable[Texts]:
    """Groups texts by the checksum of their first BEGINNING_CHARACTERS, which rarely collides."""
    parts = list(parts)
    keys = [
        np.array([crc32(t.text[:BEGINNING_CHARACTERS].encode()) for t in p], np.uint32)
        for p in parts
    ]
    values, counts = np.unique(np.concatenate(keys), return_counts=True)
    for key in values[counts > 1]:
        groups = (part.take(at == key) for part, at in zip(parts, keys, strict=True))
        yield Texts.of(text for group in groups for text in group)


def clusters_of(texts: Sequence[Text]) -> Clusters | None:
    """Returns each text's cluster as a number from 0, shape (texts,), or None if no text has one.

    A text without a cluster is its own cluster. Texts of different benchmarks share no cluster.
    """
    return number_clusters([(text.benchmark, text.cluster) for text in texts])
