"""The order of a mixture's documents from counts alone, as `sources.mixture.interleave` has it.

That chooses the subset that is furthest behind, so its order is a merge: each document's key is the
characters of its subset before it, by the subset's weight, and then the subset's name. No token is
moved: a shard of the mixed stream is a table of places in the files' tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from injection.sources.mixture import no_documents
from injection.tokenize import read_table, shard_files
from injection.tokens import Ids, Places, Shard, read_documents, read_ids

Key = tuple[float, str]
Results = Mapping[int, Mapping[str, Any]]
"""What each file's task gave, by the file's number."""
TABLE = np.dtype([(name, "i8") for name in ("start", "tokens", "at", "file", "row")])
"""A mixed shard's document: where it starts there, and its tokens; where it starts in which file's
tokens; its number among the file's documents that were kept."""
SHARD_DOCUMENTS = 1 << 16


PLACES = ("subset", "start", "kept", "before")
"""What of a file's documents makes their order."""
COLUMNS = ("key", "lane", "file", "row", "kept", "kept_row", "start", "tokens")


@dataclass
class Lane:
    """One subset's documents, file after file."""

    number: int
    """By the subsets' names."""
    name: str
    weight: float
    files: Sequence[int]
    folder: Path
    """Of the files' tokens."""
    characters: int = 0
    """Of the files that were taken."""
    taken: int = 0
    """How many files were taken."""
    stopped: str | None = None
    """Why the last of them could not be read to its end."""
    waiting: pd.DataFrame | None = None
    """Documents of them that are not merged yet."""

    @property
    def next_key(self) -> Key:
        """The key of the first document that was not taken."""
        return self.characters / self.weight, self.name

    @property
    def ended(self) -> bool:
        """Whether all documents were taken."""
        return self.taken == len(self.files) and self.stopped is None

    def take(self, results: Results) -> None:
        """Take the next file.

        Raises:
            DataError: it was the last, and none had a document of this subset.
        """
        number = self.files[self.taken]
        table = read_table(shard_files(self.folder, number)[2], PLACES)
        table = table.assign(
            **{"lane": self.number, "file": number, "row": np.arange(len(table))},
            key=(self.characters + table["before"]) / self.weight,
            tokens=np.diff(table["start"], append=results[number]["tokens"]),
            kept_row=np.cumsum(table["kept"]) - 1,
        )
        own = table.loc[table["subset"] == self.name, list(COLUMNS)]
        self.waiting = own if self.waiting is None else pd.concat([self.waiting, own])
        self.characters += results[number]["characters"].get(self.name, 0)
        self.stopped = results[number]["stopped"]
        self.taken += 1
        if self.ended and not self.characters:
            raise no_documents(self.name)

    def give(self, before: Key | None) -> list[pd.DataFrame]:
        """The documents whose keys come before that one; None: all."""
        found, self.waiting = self.waiting, None
        if found is not None and before is not None:
            side: Literal["left", "right"] = "right" if self.name < before[1] else "left"
            cut = int(np.searchsorted(found["key"], before[0], side=side))
            found, self.waiting = found.iloc[:cut], found.iloc[cut:]
        return [] if found is None or found.empty else [found]


def merged(lanes: Sequence[Lane], results: Results) -> Iterator[pd.DataFrame]:
    """The documents in their order, a block at a time, as far as the files in `results` tell."""
    while True:
        behind = furthest_behind(lanes)
        blocks = [block for x in lanes for block in x.give(behind.next_key if behind else None)]
        if blocks:
            yield pd.concat(blocks).sort_values(["key", "lane"], ignore_index=True)
        if behind is None or behind.stopped or behind.files[behind.taken] not in results:
            return
        behind.take(results)


def furthest_behind(lanes: Sequence[Lane]) -> Lane | None:
    """The one whose next document is not known and comes first; None: all are known."""
    return min((x for x in lanes if not x.ended), key=lambda x: x.next_key, default=None)


@dataclass
class Mix:
    """The mixed stream, as far as the files that are tokenised tell."""

    lanes: Sequence[Lane]
    folder: Path
    """For the tables of its shards."""
    shards: list[Shard] = field(default_factory=list)
    tokens: int = 0
    matches: list[Sequence[Any]] = field(default_factory=list)
    last: Key = (0.0, "")
    """The key of its last document."""
    reached: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The file and row of each lane's last document."""

    def fill(self, results: Results, wanted_tokens: int) -> None:
        """Merge documents until there are so many tokens, or no more are known."""
        self.folder.mkdir(parents=True, exist_ok=True)
        noted = {(n, m[-1]): m for n, found in results.items() for m in found["matches"]}
        for block in merged(self.lanes, results):
            starts = self.tokens + block["tokens"].cumsum() - block["tokens"]
            within = np.flatnonzero(block["kept"] & (starts < wanted_tokens))
            full = self.tokens + block["tokens"].sum() >= wanted_tokens
            used = block[: within[-1] + 1] if full else block
            self._note(used, noted)
            kept = used[used["kept"]]
            for first in range(0, len(kept), SHARD_DOCUMENTS):
                self._write(kept[first : first + SHARD_DOCUMENTS])
            if full:
                return

    def _note(self, block: pd.DataFrame, noted: Mapping[tuple[int, int], Sequence[Any]]) -> None:
        """Keep what of the documents is told later."""
        if noted:
            places = pd.MultiIndex.from_frame(block[["file", "row"]])
            self.matches += [noted[place] for place in places[places.isin(list(noted))]]
        for row in block.groupby("lane").tail(1).itertuples():
            self.reached[row.lane] = row.file, row.row
        self.last = block["key"].iloc[-1], self.lanes[block["lane"].iloc[-1]].name

    def _write(self, documents: pd.DataFrame) -> None:
        number, lengths = len(self.shards), documents["tokens"].to_numpy()
        table = np.empty(len(documents), TABLE)
        table["start"], table["tokens"] = np.cumsum(lengths) - lengths, lengths
        table["at"], table["file"] = documents["start"], documents["file"]
        table["row"] = documents["kept_row"]
        np.save(self.folder / f"{number:05d}.npy", table)
        sources, tokens = self.lanes[0].folder, int(lengths.sum())
        self.shards.append(MixedShard(self.folder, number, self.tokens, tokens, sources))
        self.tokens += tokens

    def skipped(self, results: Results) -> dict[str, int]:
        """What was left out up to each subset's last document, or its end where that was passed."""
        whole, parts = set[int](), dict[int, int]()
        for lane in self.lanes:
            if lane.ended and lane.next_key < self.last:
                whole |= {*lane.files}
            elif lane.number in self.reached:
                file, row = self.reached[lane.number]
                whole |= {*lane.files[: lane.files.index(file)]}
                parts[file] = max(row, parts.get(file, row))
        found = Counter[str]()
        for number in sorted(whole | {*parts}):
            if number in whole:
                found += Counter(results[number]["skipped"])
            else:
                table = read_table(shard_files(self.lanes[0].folder, number)[2], ["skipped"])
                found += Counter(json.loads(table["skipped"].iloc[parts[number]]))
        return dict(found)

    def used_up(self) -> Lane | None:
        """The subset that ended first, if the stream goes on after it."""
        ended = [lane for lane in self.lanes if lane.ended and lane.next_key < self.last]
        return min(ended, key=lambda lane: lane.next_key, default=None)


@dataclass(frozen=True)
class MixedShard(Shard):
    """A part of a mixed stream: `<number>.npy` says where its documents are."""

    sources: Path = Path()
    """The folder of the files' tokens."""

    def read(self, start: int, stop: int) -> Ids:
        """Its tokens start..stop, gathered from the files."""
        table = self._table
        first = int(np.searchsorted(table["start"], start, side="right")) - 1
        rows = table[first : int(np.searchsorted(table["start"], stop, side="left"))]
        low = np.maximum(start - rows["start"], 0) + rows["at"]
        high = np.minimum(stop - rows["start"], rows["tokens"]) + rows["at"]
        files = {n: read_ids(shard_files(self.sources, n)[1]) for n in {*rows["file"].tolist()}}
        places = zip(rows["file"].tolist(), low.tolist(), high.tolist(), strict=True)
        return np.concatenate([files[n][a:b] for n, a, b in places])

    def document_starts(self) -> Places:
        """Where in the shard its documents start, shape (n,)."""
        starts: Places = self._table["start"]
        return starts

    def document_id(self, row: int) -> str:
        """The id of its document number `row`."""
        place = self._table[row]
        documents = read_documents(shard_files(self.sources, int(place["file"]))[2])
        return str(documents["document_id"].iloc[int(place["row"])])

    @property
    def _table(self) -> Any:
        return _read_mixed(self.folder / f"{self.number:05d}.npy")


@lru_cache(maxsize=4)
def _read_mixed(path: Path) -> Any:
    return np.load(path)
