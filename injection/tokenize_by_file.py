"""The order of the documents of several files from counts alone, as one reader has it.

With weights the reader takes a document of the subset that is furthest behind
(`sources.mixture.interleave`), so the order is a merge: a document's key is the characters of its
subset before it, by the subset's weight, and then the subset's name. Without weights there is one
subset. No token is moved: a shard of the stream is a table of places in the files' tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import merge
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.errors import DataError
from contamination.core.seeds import unit_hash
from contamination.core.tasks import Runner
from contamination.data.readers import ByFile
from contamination.data.readers.mixture import no_documents, say_used_up
from contamination.data.readers.rows import Shard as File
from contamination.data.readers.rows import grouped
from contamination.injection.token_stream import (
    Ids,
    Places,
    Shard,
    TokenStream,
    read_documents,
    read_ids,
)
from contamination.injection.tokenization import (
    Read,
    TokenisedCorpus,
    Work,
    check_enough,
    check_whole,
    match_table,
    read_table,
    shard_files,
    size_of,
    write_shard,
)

Results = Mapping[int, Mapping[str, Any]]
"""What each file's task gave, by the file's number."""
Place = tuple[float, int, int, int, bool, int, int]
"""A document: its key, its lane, its file, its row there, whether it was kept, where in the file's
tokens it starts, and its tokens; or, by its row, what comes after documents."""
FILE_END, LANE_END, UNKNOWN = 1 << 60, 1 << 61, 1 << 62
TABLE = np.dtype([(name, "i8") for name in ("start", "tokens", "at", "file", "row")])
"""A shard's document: where it starts there, and its tokens; where it starts in which file's
tokens, and its row there."""
SHARD_DOCUMENTS = 1 << 16


@dataclass(frozen=True)
class Lane:
    """One subset's documents, file after file."""

    number: int
    """By the subsets' names."""
    name: str | None
    """None: the documents of all subsets."""
    weight: float
    files: Sequence[int]

    def characters(self, results: Results) -> int:
        """How many its files have, as far as they are known."""
        found = [results[file]["characters"] for file in self.files if file in results]
        return sum(sum(x.values()) if self.name is None else x.get(self.name, 0) for x in found)

    def places(self, folder: Path, results: Results) -> Iterator[Place]:
        """Its documents, the end of each file, and its own; up to the first unknown file."""
        before = 0
        for file in self.files:
            if file not in results:
                yield before / self.weight, self.number, file, UNKNOWN, False, 0, 0
                return
            table = read_table(shard_files(folder, file)[2], ("subset", "start", "kept", "before"))
            table["tokens"] = np.diff(table["start"], append=results[file]["tokens"])
            own = table if self.name is None else table[table["subset"] == self.name]
            keys = (before + own["before"]) / self.weight
            columns = (own[name].tolist() for name in ("kept", "start", "tokens"))
            of = repeat(self.number), repeat(file), own.index.tolist()
            yield from zip(keys.tolist(), *of, *columns, strict=False)
            before += self.characters({file: results[file]})
            yield before / self.weight, self.number, file, FILE_END, False, 0, 0
        if self.name is not None and not before:
            raise no_documents(self.name)
        yield before / self.weight, self.number, self.files[-1], LANE_END, False, 0, 0


@dataclass
class Order:
    """The stream in its order, as far as the files that are tokenised tell."""

    lanes: Sequence[Lane]
    sources: Path
    """The folder of the files' tokens."""
    folder: Path
    """For the tables of its shards."""
    shards: list[Shard] = field(default_factory=list)
    tokens: int = 0
    behind: tuple[Lane, float] | None = None
    """Whose next document is not known, and its key; None: there are as many as are wanted."""
    matches: list[Sequence[Any]] = field(default_factory=list)
    """What the documents so far share with the pool."""
    _dropped: list[Sequence[Any]] = field(default_factory=list)
    """That of the documents that were left out."""
    _reached: dict[int, int] = field(default_factory=dict)
    """The last row of each file, or its end."""
    _ended: list[Lane] = field(default_factory=list)

    def fill(self, results: Results, wanted_tokens: int) -> None:
        """Put documents in order until there are so many tokens, or the next one is not known.

        Raises:
            ConfigError: all documents have fewer tokens.
            DataError: bad input, where the corpus stops at it; a subset without documents.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        matches: dict[tuple[int, int], list[Sequence[Any]]] = {}
        for number, found in results.items():
            for match in found["matches"]:
                matches.setdefault((number, match[-1]), []).append(match)
        waiting: list[tuple[int, ...]] = []
        lanes = [lane.places(self.sources, results) for lane in self.lanes]
        for key, lane, file, row, kept, start, tokens in merge(*lanes):
            if row == UNKNOWN:
                self.behind = self.lanes[lane], key
                return
            if row == LANE_END:
                self._ended.append(self.lanes[lane])
                continue
            if row == FILE_END and (stopped := results[file]["stopped"]):
                raise DataError(stopped)
            self._reached[file] = max(row, self._reached.get(file, 0))
            shared = matches.get((file, row), ())
            self.matches += shared
            self._dropped += () if kept else shared
            if kept:
                waiting.append((self.tokens, tokens, start, file, row))
                self.tokens += tokens
                if len(waiting) == SHARD_DOCUMENTS or self.tokens >= wanted_tokens:
                    self._write(waiting)
                    waiting = []
                if self.tokens >= wanted_tokens:
                    return
        check_enough(self.tokens, wanted_tokens, self._dropped)

    def _write(self, documents: Sequence[tuple[int, ...]]) -> None:
        number, table = len(self.shards), np.array(documents, TABLE)
        first = int(table["start"][0])
        table["start"] -= first
        np.save(self.folder / f"{number:05d}.npy", table)
        self.shards.append(Gathered(self.folder, number, first, self.tokens - first, self.sources))

    def tokenised(self, results: Results, wanted_tokens: int) -> TokenisedCorpus:
        """The stream, and what is told of its documents."""
        if self._ended and len(self._ended) < len(self.lanes):  # the others went on
            say_used_up(str(self._ended[0].name), self._ended[0].characters(results))
        skipped = Counter[str]()
        for file, row in self._reached.items():
            if row == FILE_END:
                skipped += Counter(results[file]["skipped"])
            else:
                table = read_table(shard_files(self.sources, file)[2], ["skipped"])
                skipped += Counter(json.loads(table["skipped"].iloc[row]))
        stream = TokenStream(self.shards, wanted_tokens)
        return TokenisedCorpus(stream, match_table(self.matches), dict(skipped))


@dataclass(frozen=True)
class Gathered(Shard):
    """A part of the stream: `<number>.npy` says where in the files its documents are."""

    sources: Path
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
        return str(documents.loc[int(place["row"]), "document_id"])

    @property
    def _table(self) -> Any:
        return _read_table(self.folder / f"{self.number:05d}.npy")


@lru_cache(maxsize=4)
def _read_table(path: Path) -> Any:
    return np.load(path)


MARGIN = 1.02  # more bytes are read than are expected to be needed


@dataclass(frozen=True)
class Files:
    """Some files of the corpus to tokenise, each one a piece of the task."""

    work: Work
    source: ByFile
    share: tuple[float, float]
    """Which documents are used, by their hash."""
    wanted_tokens: int
    shard_characters: int
    numbers: Sequence[int] = ()
    """Which of the source's files."""

    def __len__(self) -> int:
        """How many files."""
        return len(self.numbers)

    def files(self, piece: int) -> list[Path]:
        """Its tokens and its documents."""
        return shard_files(self.work.folder, self.numbers[piece])[1:]

    def make(self, piece: int) -> dict[str, Any]:
        """Tokenise a file, up to the tokens that are wanted of all files together.

        Returns:
            What `write_shard` gives; the characters of each subset that were read; what was left
            out; and why reading stopped, where the file has bad input.
        """
        file = self.source.shards[self.numbers[piece]]
        characters, stopped = Counter[str](), list[str]()
        groups = grouped(self._reads(file, characters, stopped), size_of, self.shard_characters)
        subsets = self.source.subsets_in(file) if self.source.weights else ()

        def enough(tokens: Counter[str]) -> bool:
            counts = [tokens[name] for name in subsets] or [tokens.total()]
            return min(counts) >= self.wanted_tokens

        made = write_shard(self.work, self.files(piece), groups, enough)
        told = {"characters": characters, "stopped": "".join(stopped)}
        return {**made, **told, "skipped": self.source.skipped}

    def _reads(self, file: File, characters: Counter[str], stopped: list[str]) -> Iterator[Read]:
        """A file's documents, also those that are not used: each moves the next ones on."""
        low, high = self.share
        try:
            for document in self.source.documents_in(file):
                used = low <= unit_hash(document.document_id) < high
                before = characters[document.subset]
                characters[document.subset] += len(document.text)
                yield Read(document, json.dumps(self.source.skipped), used, before)
        except DataError as error:  # of no matter where the budget ends before
            stopped.append(str(error))

    @property
    def lanes(self) -> list[Lane]:
        """Each subset's files."""
        source, weights = self.source, self.source.weights
        if not weights:
            return [Lane(0, None, 1.0, range(len(source.shards)))]
        held = [source.subsets_in(file) for file in source.shards]
        files = {name: [n for n, names in enumerate(held) if name in names] for name in weights}
        names = enumerate(sorted(weights))
        return [Lane(n, name, weights[name], files[name]) for n, name in names]


def tokenize_files(task: Files, runner: Runner) -> TokenisedCorpus:
    """Tokenise as many files as hold the tokens that are wanted, and put them in order.

    Raises:
        ConfigError: the corpus has fewer tokens.
        DataError: bad input, where the corpus stops at it; see `check_whole`, after each wave.
    """
    task.work.folder.mkdir(parents=True, exist_ok=True)
    results: dict[int, dict[str, Any]] = {}
    for wave in count():
        order = Order(task.lanes, task.work.folder, task.work.folder.with_name("order"))
        order.fill(results, task.wanted_tokens)
        check_whole(order.matches, task.work)
        if order.behind is None:
            break
        numbers = _next_files(task, results, order.tokens, *order.behind)
        made = runner.run(f"tokenise-{wave}", replace(task, numbers=numbers))
        results |= dict(zip(numbers, made, strict=True))
    return order.tokenised(results, task.wanted_tokens)


def _next_files(task: Files, results: Results, tokens: int, behind: Lane, key: float) -> list[int]:
    """The files that are needed besides; at least the next one of the subset furthest behind.

    Each subset is expected to go on from the key up to which there are so many tokens.
    """
    lanes, found = task.lanes, set[int]()
    aim = key * MARGIN * task.wanted_tokens / tokens if tokens else 2 * key
    for lane in lanes:
        have = [number for number in lane.files if number in results]
        if read := lane.characters(results):
            size = _bytes(task, have) * aim * lane.weight / read
        else:
            share = task.wanted_tokens * lane.weight / sum(x.weight for x in lanes)
            size = max(share, 2 * _bytes(task, have))
        ends = np.cumsum([_bytes(task, [number]) for number in lane.files])
        least = len(have) + (lane == behind)
        found |= {*lane.files[: max(least, 1 + int(np.searchsorted(ends, size)))]}
    return sorted(found - {*results})


def _bytes(task: Files, numbers: Sequence[int]) -> int:
    return sum(task.source.shards[number].path.stat().st_size for number in numbers)
