"""Many texts in little memory, and which of them share a beginning or a cluster."""

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
AT_ONCE = 2**12  # texts of a block of columns
OBJECTS_AT_ONCE = 2**8  # texts that are objects at the same time when many are iterated


pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own pool never returns freed memory


def release_memory() -> None:
    """Return freed memory to the system, which the C library would keep."""
    pa.system_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class Text:
    """One example's text. `sha256` names the text whatever the id.

    `label` says whether it is a member, None if that is unknown; scores never depend on it.
    `output_start` is the place of its output's first character, None if it has no output.
    `cluster` names the unit to which it belongs, such as a book; empty if it is a unit itself.
    `contamination` names the corpora that share text with it beside its inserted copies; empty if
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
    """Texts in columns, of which a `Text` is made when it is needed; a slice shares the columns.

    Args:
        blocks: the columns COLUMNS in blocks of AT_ONCE rows; the last may have fewer.
        rows: the rows of the texts in the columns, in order, shape (texts,).
    """

    def __init__(self, blocks: Sequence[pa.RecordBatch], rows: Rows) -> None:
        self._blocks = blocks
        self._iter_rows = rows

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Texts:
        """Put texts in columns, unless they already are."""
        if isinstance(texts, Texts):
            return texts
        rest = iter(texts)
        blocks = [_record_batch(block) for block in iter(lambda: [*islice(rest, AT_ONCE)], [])]
        release_memory()
        return cls(blocks, np.arange(sum(map(len, blocks)), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._iter_rows)

    @overload
    def __getitem__(self, place: int) -> Text: ...
    @overload
    def __getitem__(self, place: slice) -> Texts: ...
    def __getitem__(self, place: int | slice) -> Text | Texts:
        if isinstance(place, slice):
            return self.take(place)
        block, row = divmod(int(self._iter_rows[place]), AT_ONCE)
        return Text(*(column[row].as_py() for column in self._blocks[block].columns))

    def __iter__(self) -> Iterator[Text]:
        for start in range(0, len(self), OBJECTS_AT_ONCE):
            yield from self._make_texts(self._iter_rows[start : start + OBJECTS_AT_ONCE])

    def _make_texts(self, rows: Rows) -> list[Text]:
        """Make the texts of some rows by block, which is five times as fast as one by one."""
        block_numbers, texts = rows // AT_ONCE, dict[int, Text]()
        for number in np.unique(block_numbers):
            indices = np.flatnonzero(block_numbers == number)
            block = self._blocks[number].take(pa.array(rows[indices] % AT_ONCE))
            columns = (column.to_pylist() for column in block.columns)
            texts.update(zip(indices.tolist(), map(Text, *columns), strict=True))
        return [texts[index] for index in range(len(rows))]

    def take(self, places: Any) -> Texts:
        """Return the texts at these places: numbers, a mask or a slice."""
        return Texts(self._blocks, self._iter_rows[places])

    def sorting_places(self, *names: str) -> Rows:
        """Return the places that sort the texts by these columns; the sort is stable."""
        table = pa.table([self.column(name) for name in names], list(names))
        places: Rows = pc.sort_indices(table, [(n, "ascending") for n in names]).to_numpy()
        return places.astype(np.int64)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column of the texts."""
        column = pa.chunked_array([b[name] for b in self._blocks], COLUMNS.field(name).type)
        return column.take(pa.array(self._iter_rows))


def _record_batch(texts: Sequence[Text]) -> pa.RecordBatch:
    columns = {name: [getattr(text, name) for text in texts] for name in COLUMNS.names}
    return pa.RecordBatch.from_pydict(columns, COLUMNS)


CHARACTERS = 64  # texts are grouped by their first CHARACTERS before they are compared in full


def longest_extension_indices(sequences: Sequence[Any]) -> list[int]:
    """For each sequence, return the index of a longest one that begins with it.

    In sorted order, the sequences that begin with another one directly follow it.
    """
    order = sorted(range(len(sequences)), key=lambda index: sequences[index])
    longest_of = list(range(len(sequences)))
    for index, following in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        prefix = sequences[index]
        if sequences[following][: len(prefix)] == prefix:
            longest_of[index] = longest_of[following]
    return longest_of


def families_by_sha256(parts: Iterable[Texts]) -> dict[str, Texts]:
    """Group the texts of several parts into families, in which one text begins with each other.

    Only texts that share their first CHARACTERS are in memory at the same time.

    Returns:
        The family of each text that has one, by the text's SHA-256.
    """
    family_by_sha256: dict[str, Texts] = {}
    for texts in _groups_with_equal_beginning(parts):
        longest_indices = longest_extension_indices([text.text for text in texts])
        for _, indices in groupby(
            sorted(range(len(longest_indices)), key=longest_indices.__getitem__),
            longest_indices.__getitem__,
        ):
            family = texts.take(np.array([*indices]))
            if len(family) > 1:
                family_by_sha256 |= dict.fromkeys(family.column("sha256").to_pylist(), family)
    return family_by_sha256


def _groups_with_equal_beginning(parts: Iterable[Texts]) -> Iterable[Texts]:
    """Group texts by their first CHARACTERS, or rarely only by the equal checksums of these."""
    parts = list(parts)
    keys = [np.array([crc32(t.text[:CHARACTERS].encode()) for t in p], np.uint32) for p in parts]
    values, counts = np.unique(np.concatenate(keys), return_counts=True)
    for key in values[counts > 1]:
        groups = (part.take(at == key) for part, at in zip(parts, keys, strict=True))
        yield Texts.of(text for group in groups for text in group)


def clusters_of(texts: Sequence[Text]) -> Clusters | None:
    """Return each text's cluster as a number from 0, shape (texts,); None if no text has one.

    A text without a cluster is a cluster of its own. Texts of two benchmarks share no cluster.
    """
    return number_clusters([(text.benchmark, text.cluster) for text in texts])
