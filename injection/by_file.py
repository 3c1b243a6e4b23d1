"""Tokenising a corpus file by file: each file is a task, and rank 0 alone decides their order.

How many files the budget needs is not known before they are tokenised. So they go in waves: the
first takes as many as would do if each byte were a token, and each later one as many as the files
so far let expect. What a file has beyond the budget is not tokenised.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import DataError
from core.seeds import unit_hash
from injection.order import Lane, Order, Results
from injection.sources import ByFile
from injection.sources.reading import Shard as File
from injection.tasks import Runner
from injection.tokenize import (
    Read,
    Tokenised,
    Work,
    check_whole,
    shard_files,
    size_of,
    write_shard,
)
from injection.tokens import grouped

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


def tokenize_files(task: Files, runner: Runner) -> Tokenised:
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
