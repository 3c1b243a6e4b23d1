"""Many texts in little memory: columns, of which a `Text` is made when it is asked for."""

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

from contamination.core.statistics.clusters import Clusters

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
AT_ONCE = 2**12
"""Texts of a block of columns."""
MADE_AT_ONCE = 2**8
"""Texts that are there as objects, where many are gone through."""


pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what is freed, even if asked


def release() -> None:
    """Give memory that is free back to the system: the C library would keep it."""
    pa.system_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class Text:
    """One example's text. `sha256` names the text whatever the id.

    `label` says whether it is a member, None where that is not known; scores never depend on it.
    `output_start` is the place of its output's first character, None where it has no such part.
    `cluster` names what it is a piece of, such as a book; empty where it stands for itself.
    `contamination` names the corpora that share text with it beside its inserted copies; empty
    where none is known.
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
    """Texts in columns, and the rows of them that are meant, in order; a slice shares the columns.

    Args:
        blocks: as COLUMNS, each of AT_ONCE rows but for the last.
        rows: their places in the columns.
    """

    def __init__(self, blocks: Sequence[pa.RecordBatch], rows: Rows) -> None:
        self._blocks = blocks
        self._rows = rows

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Texts:
        """The texts, or themselves where they are in columns."""
        if isinstance(texts, Texts):
            return texts
        rest = iter(texts)
        blocks = [_batch(block) for block in iter(lambda: [*islice(rest, AT_ONCE)], [])]
        release()
        return cls(blocks, np.arange(sum(map(len, blocks)), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Text: ...
    @overload
    def __getitem__(self, place: slice) -> Texts: ...
    def __getitem__(self, place: int | slice) -> Text | Texts:
        if isinstance(place, slice):
            return self.take(place)
        block, row = divmod(int(self._rows[place]), AT_ONCE)
        return Text(*(column[row].as_py() for column in self._blocks[block].columns))

    def __iter__(self) -> Iterator[Text]:
        for start in range(0, len(self), MADE_AT_ONCE):
            yield from self._made(self._rows[start : start + MADE_AT_ONCE])

    def _made(self, rows: Rows) -> list[Text]:
        """The texts of some rows, a block's at a time: one by one they take five times as long."""
        own, found = rows // AT_ONCE, dict[int, Text]()
        for number in np.unique(own):
            places = np.flatnonzero(own == number)
            block = self._blocks[number].take(pa.array(rows[places] % AT_ONCE))
            columns = (column.to_pylist() for column in block.columns)
            found.update(zip(places.tolist(), map(Text, *columns), strict=True))
        return [found[place] for place in range(len(rows))]

    def take(self, places: Any) -> Texts:
        """The texts at these places: numbers, a mask or a slice."""
        return Texts(self._blocks, self._rows[places])

    def order(self, *names: str) -> Rows:
        """The places that sort the texts by these columns; equal ones stay as they are."""
        table = pa.table([self.column(name) for name in names], list(names))
        found: Rows = pc.sort_indices(table, [(n, "ascending") for n in names]).to_numpy()
        return found.astype(np.int64)

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the texts."""
        whole = pa.chunked_array([b[name] for b in self._blocks], COLUMNS.field(name).type)
        return whole.take(pa.array(self._rows))


def _batch(texts: Sequence[Text]) -> pa.RecordBatch:
    columns = {name: [getattr(text, name) for text in texts] for name in COLUMNS.names}
    return pa.RecordBatch.from_pydict(columns, COLUMNS)


CHARACTERS = 64
"""So many first characters of two texts are compared before they are held beside each other."""


def longest(sequences: Sequence[Any]) -> list[int]:
    """For each sequence the place of one that begins with it and that no other begins with.

    In sorted order those that begin with a sequence follow it at once.
    """
    order = sorted(range(len(sequences)), key=lambda place: sequences[place])
    found = list(range(len(sequences)))
    for own, after in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        short = sequences[own]
        if sequences[after][: len(short)] == short:
            found[own] = found[after]
    return found


def families(parts: Iterable[Texts]) -> dict[str, Texts]:
    """Texts of several parts of which one begins with each of the others, by the SHA-256 of each.

    Only texts that share their first CHARACTERS are held, and none that stands alone.
    """
    found: dict[str, Texts] = {}
    for some in _alike(parts):
        ends = longest([text.text for text in some])
        for _, places in groupby(sorted(range(len(ends)), key=ends.__getitem__), ends.__getitem__):
            family = some.take(np.array([*places]))
            if len(family) > 1:
                found |= dict.fromkeys(family.column("sha256").to_pylist(), family)
    return found


def _alike(parts: Iterable[Texts]) -> Iterable[Texts]:
    """Groups of texts whose first CHARACTERS are the same, or rarely only their checksums."""
    some = list(parts)
    keys = [np.array([crc32(t.text[:CHARACTERS].encode()) for t in own], np.uint32) for own in some]
    values, counts = np.unique(np.concatenate(keys), return_counts=True)
    for key in values[counts > 1]:
        own = (part.take(at == key) for part, at in zip(some, keys, strict=True))
        yield Texts.of(text for part in own for text in part)


def clusters_of(texts: Sequence[Text]) -> Clusters | None:
    """Each text's cluster as a number from 0; a text without one is alone. None: no text has one.

    Texts of two benchmarks share none.
    """
    return numbered([(text.benchmark, text.cluster) for text in texts])


def numbered(named: Sequence[tuple[str, str]]) -> Clusters | None:
    """The same, of the names of the texts' benchmarks and clusters."""
    if not any(cluster for _, cluster in named):
        return None
    numbers: dict[object, int] = {}
    keys = (key if key[1] else place for place, key in enumerate(named))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)


def sides(cluster: Clusters, member: NDArray[np.bool_]) -> tuple[Clusters, Clusters]:
    """The members' and the non-members' clusters, each numbered from 0.

    A cluster that has both is one of each side: then the interval is too wide rather than too
    narrow, since what both have in common moves them together.
    """
    members, nonmembers = (
        np.unique(cluster[own], return_inverse=True)[1] for own in (member, ~member)
    )
    return members, nonmembers
