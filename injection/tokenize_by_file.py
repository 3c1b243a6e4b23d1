"""Tokenizes a corpus by file, and arranges its documents in the order of a single reader.

With weights, the order is that of `data.readers.mixture.interleave_by_weight`: a merge of the
subsets by the characters of a subset before a document, divided by its weight, and then by the
subset's name. Tokens are not copied: a shard of the stream is a table of positions in the files'
tokens.
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
from contamination.core.task_runner import TaskRunner
from contamination.data.readers import CorpusByFile
from contamination.data.readers.mixture import no_documents_error, warn_of_used_up_subset
from contamination.data.readers.rows import Shard as File
from contamination.data.readers.rows import group_by_size
from contamination.injection import token_stream, tokenization
from contamination.injection.token_stream import Ids, Places, TokenShard, TokenStream, read_ids
from contamination.injection.tokenization import (
    SourceDocument,
    TokenisedCorpus,
    TokenizationSettings,
)

Results = Mapping[int, Mapping[str, Any]]
"""File number → the result of its task."""
DocumentPlace = tuple[float, int, int, int, bool, int, int]
"""A document: its sort key, its subset's number, its file, its row there, whether it was kept, its
first token in the file, and its number of tokens. The rows FILE_END, SUBSET_END and UNKNOWN_ROW are
not documents."""
FILE_END, SUBSET_END, UNKNOWN_ROW = 1 << 60, 1 << 61, 1 << 62
PLACE_DTYPE = np.dtype([(name, "i8") for name in ("start", "tokens", "at", "file", "row")])
"""A document of a shard: its first token in the shard and its number of tokens; its first token in
the file `file`, and its row there."""
SHARD_DOCUMENTS = 1 << 16


@dataclass(frozen=True)
class SubsetFiles:
    """The documents of one subset, file by file."""

    number: int
    """Its index among the sorted names of subsets."""
    name: str | None
    """None: documents of all subsets."""
    weight: float
    files: Sequence[int]

    def count_read_characters(self, results: Results) -> int:
        """Returns the number of characters in its files that have results."""
        by_file = [
            results[file_number]["characters"]
            for file_number in self.files
            if file_number in results
        ]
        if self.name is None:
            return sum(sum(by_subset.values()) for by_subset in by_file)
        return sum(by_subset.get(self.name, 0) for by_subset in by_file)

    def iter_places(self, folder: Path, results: Results) -> Iterator[DocumentPlace]:
        """Yields documents, ends of files and of the subset, up to the first unread file."""
        before = 0
        for file_number in self.files:
            if file_number not in results:
                yield before / self.weight, self.number, file_number, UNKNOWN_ROW, False, 0, 0
                return
            table = tokenization.read_document_table(
                tokenization.shard_paths(folder, file_number)[2],
                ("subset", "start", "kept", "before"),
            )
            table["tokens"] = np.diff(table["start"], append=results[file_number]["tokens"])
            documents = table if self.name is None else table[table["subset"] == self.name]
            keys = (before + documents["before"]) / self.weight
            location = repeat(self.number), repeat(file_number), documents.index.tolist()
            columns = (documents[name].tolist() for name in ("kept", "start", "tokens"))
            yield from zip(keys.tolist(), *location, *columns, strict=False)
            before += self.count_read_characters({file_number: results[file_number]})
            yield before / self.weight, self.number, file_number, FILE_END, False, 0, 0
        if self.name is not None and not before:
            raise no_documents_error(self.name)
        yield before / self.weight, self.number, self.files[-1], SUBSET_END, False, 0, 0


@dataclass
class DocumentOrder:
    """The documents in the order of the stream, as far as the tokenized files determine it."""

    subsets: Sequence[SubsetFiles]
    sources: Path
    """The folder with the files' tokens."""
    folder: Path
    """The folder for the shards' tables."""
    shards: list[TokenShard] = field(default_factory=list)
    tokens: int = 0
    behind: tuple[SubsetFiles, float] | None = None
    """The subset whose next document is unknown, and its key; None: there are enough tokens."""
    matches: list[Sequence[Any]] = field(default_factory=list)
    """The matches of the documents so far."""
    _dropped: list[Sequence[Any]] = field(default_factory=list)
    """The matches of documents that were left out."""
    _reached: dict[int, int] = field(default_factory=dict)
    """File number → the last row that was reached, or FILE_END."""
    _ended: list[SubsetFiles] = field(default_factory=list)

    def extend_order(self, results: Results, wanted_tokens: int) -> None:
        """Order documents until there are `wanted_tokens` or the next document is unknown.

        Raises:
            ConfigError: all documents together have fewer tokens.
            DataError: a file has bad input and `on_error` is stop; or a subset has no documents.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        matches: dict[tuple[int, int], list[Sequence[Any]]] = {}
        for number, result in results.items():
            for match in result["matches"]:
                matches.setdefault((number, match[-1]), []).append(match)
        waiting: list[tuple[int, ...]] = []
        places = [subset.iter_places(self.sources, results) for subset in self.subsets]
        for key, subset, file_number, row, kept, start, tokens in merge(*places):
            if row == UNKNOWN_ROW:
                self.behind = self.subsets[subset], key
                return
            if row == SUBSET_END:
                self._ended.append(self.subsets[subset])
                continue
            if row == FILE_END and (stopped := results[file_number]["stopped"]):
                raise DataError(stopped)
            self._reached[file_number] = max(row, self._reached.get(file_number, 0))
            shared = matches.get((file_number, row), ())
            self.matches += shared
            self._dropped += () if kept else shared
            if kept:
                waiting.append((self.tokens, tokens, start, file_number, row))
                self.tokens += tokens
                if len(waiting) == SHARD_DOCUMENTS or self.tokens >= wanted_tokens:
                    self._write_shard(waiting)
                    waiting = []
                if self.tokens >= wanted_tokens:
                    return
        tokenization.check_enough_tokens(self.tokens, wanted_tokens, self._dropped)

    def _write_shard(self, places: Sequence[tuple[int, ...]]) -> None:
        shard_number, place_table = len(self.shards), np.array(places, PLACE_DTYPE)
        first_token = int(place_table["start"][0])
        place_table["start"] -= first_token
        np.save(self.folder / f"{shard_number:05d}.npy", place_table)
        self.shards.append(
            GatheredShard(
                self.folder, shard_number, first_token, self.tokens - first_token, self.sources
            )
        )

    def tokenised_corpus(self, results: Results, wanted_tokens: int) -> TokenisedCorpus:
        """Returns the tokenized corpus: the stream, its matches, and counts of left-out input."""
        if self._ended and len(self._ended) < len(self.subsets):  # other subsets continued
            warn_of_used_up_subset(
                str(self._ended[0].name), self._ended[0].count_read_characters(results)
            )
        skipped = Counter[str]()
        for file_number, row in self._reached.items():
            if row == FILE_END:
                skipped += Counter(results[file_number]["skipped"])
            else:
                table = tokenization.read_document_table(
                    tokenization.shard_paths(self.sources, file_number)[2], ["skipped"]
                )
                skipped += Counter(json.loads(table["skipped"].iloc[row]))
        stream = TokenStream(self.shards, wanted_tokens)
        return TokenisedCorpus(stream, tokenization.match_table(self.matches), dict(skipped))


@dataclass(frozen=True)
class GatheredShard(TokenShard):
    """A part of the stream: `<number>.npy` lists the positions of its documents in the files."""

    sources: Path
    """The folder of the files' tokens."""

    def read(self, start: int, stop: int) -> Ids:
        """Returns the tokens start..stop, gathered from the files."""
        place_table = self._place_table
        first_row = int(np.searchsorted(place_table["start"], start, side="right")) - 1
        rows = place_table[
            first_row : int(np.searchsorted(place_table["start"], stop, side="left"))
        ]
        first_tokens = np.maximum(start - rows["start"], 0) + rows["at"]
        end_tokens = np.minimum(stop - rows["start"], rows["tokens"]) + rows["at"]
        ids_by_file = {
            n: read_ids(tokenization.shard_paths(self.sources, n)[1])
            for n in {*rows["file"].tolist()}
        }
        spans = zip(rows["file"].tolist(), first_tokens.tolist(), end_tokens.tolist(), strict=True)
        return np.concatenate([ids_by_file[n][a:b] for n, a, b in spans])

    def document_starts(self) -> Places:
        """Returns the first token of each of the shard's documents, shape (documents,)."""
        starts: Places = self._place_table["start"]
        return starts

    def document_id(self, row: int) -> str:
        """Returns the id of the document in this row."""
        entry = self._place_table[row]
        documents = token_stream.read_kept_documents(
            tokenization.shard_paths(self.sources, int(entry["file"]))[2]
        )
        return str(documents.loc[int(entry["row"]), "document_id"])

    @property
    def _place_table(self) -> Any:
        return _load_place_table(self.folder / f"{self.number:05d}.npy")


@lru_cache(maxsize=4)
def _load_place_table(path: Path) -> Any:
    return np.load(path)


FILES_MARGIN = 1.02  # so many times the bytes that are probably needed are read


@dataclass(frozen=True)
class FileTokenizationTask:
    """Tokenizes files of the corpus, one piece per file."""

    work: TokenizationSettings
    source: CorpusByFile
    share: tuple[float, float]
    """The range of hashes of the documents that are used."""
    wanted_tokens: int
    shard_characters: int
    numbers: Sequence[int] = ()
    """The numbers of the source's files."""

    def __len__(self) -> int:
        """Returns the number of files."""
        return len(self.numbers)

    def files(self, piece: int) -> list[Path]:
        """Returns the files of the tokens and of the table of documents."""
        return tokenization.shard_paths(self.work.folder, self.numbers[piece])[1:]

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Tokenizes a file, up to the number of tokens that is wanted of all files together.

        Returns:
            The result of `write_shard`, and: `characters`, the characters read by subset;
            `skipped`, the counts of left-out input; `stopped`, the error if bad input ended it.
        """
        file = self.source.shards[self.numbers[piece]]
        characters, stopped = Counter[str](), list[str]()
        groups = group_by_size(
            self._iter_documents(file, characters, stopped),
            tokenization.count_characters,
            self.shard_characters,
        )
        subsets = self.source.subsets_in(file) if self.source.weights else ()

        def is_enough(tokens: Counter[str]) -> bool:
            subset_tokens = [tokens[name] for name in subsets] or [tokens.total()]
            return min(subset_tokens) >= self.wanted_tokens

        result = tokenization.write_shard(self.work, self.files(piece), groups, is_enough)
        return {
            **result,
            "characters": characters,
            "stopped": "".join(stopped),
            "skipped": self.source.skipped,
        }

    def _iter_documents(
        self, file: File, characters: Counter[str], stopped: list[str]
    ) -> Iterator[SourceDocument]:
        """Yields all documents of a file; unused documents also affect the order."""
        low, high = self.share
        try:
            for document in self.source.documents_in(file):
                used = low <= unit_hash(document.document_id) < high
                before = characters[document.subset]
                characters[document.subset] += len(document.text)
                yield SourceDocument(document, json.dumps(self.source.skipped), used, before)
        except DataError as error:  # ignored if the budget ends before it
            stopped.append(str(error))

    @property
    def subsets(self) -> list[SubsetFiles]:
        """The files of each subset."""
        source, weights = self.source, self.source.weights
        if not weights:
            return [SubsetFiles(0, None, 1.0, range(len(source.shards)))]
        subsets_by_file = [source.subsets_in(file) for file in source.shards]
        files = {
            name: [n for n, names in enumerate(subsets_by_file) if name in names]
            for name in weights
        }
        return [
            SubsetFiles(n, name, weights[name], files[name])
            for n, name in enumerate(sorted(weights))
        ]


def tokenize_files(task: FileTokenizationTask, runner: TaskRunner) -> TokenisedCorpus:
    """Tokenizes as many files as are needed, and arrange their documents in order.

    Raises:
        ConfigError: the corpus has too few tokens.
        DataError: a file has bad input and `on_error` is stop; or as `check_no_whole_text`.
    """
    task.work.folder.mkdir(parents=True, exist_ok=True)
    results: dict[int, dict[str, Any]] = {}
    for wave in count():
        order = DocumentOrder(task.subsets, task.work.folder, task.work.folder.with_name("order"))
        order.extend_order(results, task.wanted_tokens)
        tokenization.check_no_whole_text(order.matches, task.work)
        if order.behind is None:
            break
        numbers = _choose_next_files(task, results, order.tokens, *order.behind)
        new_results = runner.run(f"tokenise-{wave}", replace(task, numbers=numbers))
        results |= dict(zip(numbers, new_results, strict=True))
    return order.tokenised_corpus(results, task.wanted_tokens)


def _choose_next_files(
    task: FileTokenizationTask, results: Results, tokens: int, behind: SubsetFiles, key: float
) -> list[int]:
    """Returns the files to tokenize next, at least one of the subset that is furthest behind.

    The number of tokens per unit of the key is assumed to be the same in the rest of the files.
    """
    subsets, chosen = task.subsets, set[int]()
    target_key = key * FILES_MARGIN * task.wanted_tokens / tokens if tokens else 2 * key
    for subset in subsets:
        known_files = [number for number in subset.files if number in results]
        if read := subset.count_read_characters(results):
            wanted_bytes = _total_file_bytes(task, known_files) * target_key * subset.weight / read
        else:
            share = task.wanted_tokens * subset.weight / sum(x.weight for x in subsets)
            wanted_bytes = max(share, 2 * _total_file_bytes(task, known_files))
        ends = np.cumsum([_total_file_bytes(task, [number]) for number in subset.files])
        n_files = max(
            len(known_files) + (subset == behind), 1 + int(np.searchsorted(ends, wanted_bytes))
        )
        chosen |= {*subset.files[:n_files]}
    return sorted(chosen - {*results})


def _total_file_bytes(task: FileTokenizationTask, numbers: Sequence[int]) -> int:
    return sum(task.source.shards[number].path.stat().st_size for number in numbers)
