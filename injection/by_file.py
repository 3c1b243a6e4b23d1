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
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.seeds import unit_hash
from injection.mixed import Lane, Mix, Results, furthest_behind
from injection.sources import ByFile
from injection.sources.mixture import say_used_up
from injection.sources.reading import Shard as File
from injection.tasks import Runner
from injection.tokenize import (
    Read,
    Tokenised,
    Work,
    check_enough,
    last_used,
    match_table,
    shard_files,
    size_of,
    write_shard,
)
from injection.tokens import Shard, TokenStream, grouped

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

    def done(self, piece: int) -> Path:
        """What says that a file is tokenised."""
        return shard_files(self.work.folder, self.numbers[piece])[0]

    def files(self, piece: int) -> list[Path]:
        """Its tokens and its documents."""
        return shard_files(self.work.folder, self.numbers[piece])[1:]

    def make(self, piece: int) -> dict[str, Any]:
        """Tokenise a file, up to the tokens that are wanted of all files together.

        Returns:
            What `write_shard` gives; the characters of each subset that were read; what was left
            out; and why reading stopped, where the file has bad input.
        """
        self.work.folder.mkdir(parents=True, exist_ok=True)
        file = self.source.shards[self.numbers[piece]]
        reading = _Reading(self.source, file, self.share)
        groups = grouped(reading, size_of, self.shard_characters)
        subsets = self.source.subsets_in(file) if self.source.weights else ()

        def enough(tokens: Counter[str]) -> bool:
            counts = [tokens[name] for name in subsets] or [tokens.total()]
            return min(counts) >= self.wanted_tokens

        made = write_shard(self.work, self.files(piece), groups, enough)
        told = {"characters": reading.characters, "stopped": reading.stopped}
        return {**made, **told, "skipped": self.source.skipped}


class _Reading:
    """A file's documents, and what is known of it once they are read."""

    def __init__(self, source: ByFile, file: File, share: tuple[float, float]) -> None:
        self.source, self.file, self.share = source, file, share
        self.characters = Counter[str]()
        self.stopped: str | None = None

    def __iter__(self) -> Iterator[Read]:
        """The documents that are used; of a mixture all, since each moves the next ones on."""
        low, high = self.share
        try:
            for document in self.source.documents_in(self.file):
                used = low <= unit_hash(document.document_id) < high
                before = self.characters[document.subset]
                self.characters[document.subset] += len(document.text)
                if used or self.source.weights:
                    yield Read(document, json.dumps(self.source.skipped), used, before)
        except DataError as error:  # of no matter where the budget ends before
            self.stopped = str(error)


def tokenize_files(task: Files, runner: Runner) -> Tokenised:
    """Tokenise as many files as hold the tokens that are wanted, and put them in order.

    Raises:
        ConfigError: the corpus has fewer tokens.
        DataError: bad input, where the corpus stops at it.
    """
    results: dict[int, dict[str, Any]] = {}
    wave, numbers = 0, _first_files(task)
    while True:
        made = runner.run(f"tokenise-{wave}", replace(task, numbers=numbers))
        results |= dict(zip(numbers, made, strict=True))
        if task.source.weights:
            mix = _mix(task, results)
            if mix.tokens >= task.wanted_tokens:
                return _mixed(task, mix, results)
            numbers = _more_of_mix(task, mix, results)
        else:
            found = _in_order(task, results)
            if found is not None:
                return found
            numbers = _more_files(task, results)
        wave += 1


def _sizes(task: Files, numbers: Sequence[int]) -> list[int]:
    return [task.source.shards[number].path.stat().st_size for number in numbers]


def _up_to(task: Files, files: Sequence[int], least: int, size: float) -> list[int]:
    """The first `least` files or more, up to a size in bytes."""
    total, count = 0, 0
    for count, bytes_ in enumerate(_sizes(task, files)):
        if count >= least and total >= size:
            return list(files[:count])
        total += bytes_
    return list(files)


def lanes_of(task: Files) -> list[Lane]:
    """Each subset's files."""
    source, weights = task.source, task.source.weights or {}
    subsets = [source.subsets_in(file) for file in source.shards]
    files = {name: [n for n, held in enumerate(subsets) if name in held] for name in weights}
    folder, names = task.work.folder, enumerate(sorted(weights))
    return [Lane(n, name, weights[name], files[name], folder) for n, name in names]


def _first_files(task: Files) -> list[int]:
    if not task.source.weights:
        return _up_to(task, range(len(task.source.shards)), 1, task.wanted_tokens)
    total = sum(task.source.weights.values())
    found: set[int] = set()
    for lane in lanes_of(task):
        found |= {*_up_to(task, lane.files, 1, task.wanted_tokens * lane.weight / total)}
    return sorted(found)


def _more_files(task: Files, results: Results) -> list[int]:
    """The files that are needed besides those of the results, which come first."""
    tokens = sum(found["tokens"] for found in results.values())
    needed = sum(_sizes(task, [*results])) * MARGIN * (task.wanted_tokens / tokens if tokens else 2)
    files = range(len(task.source.shards))
    return _up_to(task, files, len(results) + 1, needed)[len(results) :]


def _in_order(task: Files, results: Results) -> Tokenised | None:
    """The stream of files in their order; None: more are needed."""
    shards: list[Shard] = []
    matches, skipped, total = [], Counter[str](), 0
    for number in range(len(results)):
        found = results[number]
        shard = Shard(task.work.folder, number, total, found["tokens"])
        shards.append(shard)
        total += shard.tokens
        if total >= task.wanted_tokens:
            last = last_used(shard, task.wanted_tokens - shard.start)
            matches += [match for match in found["matches"] if match[-1] <= last.row]
            stream = TokenStream(shards, task.wanted_tokens)
            return Tokenised(stream, match_table(matches), dict(skipped + Counter(last.skipped)))
        if found["stopped"]:
            raise DataError(found["stopped"])
        matches += found["matches"]
        skipped += Counter(found["skipped"])
    if len(results) == len(task.source.shards):
        check_enough(total, task.wanted_tokens)
    return None


def _mix(task: Files, results: Results) -> Mix:
    """The mixture of the files so far."""
    mix = Mix(lanes_of(task), task.work.folder.with_name("mixed"))
    mix.fill(results, task.wanted_tokens)
    return mix


def _mixed(task: Files, mix: Mix, results: Results) -> Tokenised:
    if lane := mix.used_up():
        say_used_up(lane.name, lane.characters)
    stream = TokenStream(mix.shards, task.wanted_tokens)
    return Tokenised(stream, match_table(mix.matches), mix.skipped(results))


def _more_of_mix(task: Files, mix: Mix, results: Results) -> list[int]:
    """The files that are needed besides; at least the next one of the subset furthest behind."""
    behind = furthest_behind(mix.lanes)
    if behind is None:
        check_enough(mix.tokens, task.wanted_tokens)
    assert behind is not None
    if behind.stopped:
        raise DataError(behind.stopped)
    found: set[int] = set()
    key = behind.next_key[0] * MARGIN * task.wanted_tokens / max(mix.tokens, 1)
    for lane in mix.lanes:
        have = [number for number in lane.files if number in results]
        read = sum(results[number]["characters"].get(lane.name, 0) for number in have)
        size = sum(_sizes(task, have)) * (key * lane.weight / read if read and mix.tokens else 1)
        if lane is behind and size <= sum(_sizes(task, have)):
            size = 2 * sum(_sizes(task, have))
        least = len(have) + 1 if lane is behind else 0
        found |= {*_up_to(task, lane.files, least, size)}
    return sorted(found - {*results})
