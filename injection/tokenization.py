"""Tokenizes the corpus in shards with one or several processes, and searches it for the pool."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.errors import ConfigError, DataError
from contamination.core.progress import progress_bar
from contamination.core.task_runner import run_unless_stored
from contamination.core.worker_pool import worker_pool
from contamination.data.readers import Corpus, Document
from contamination.data.readers.rows import group_by_size
from contamination.injection.decontamination.flagging import DocumentFlagging
from contamination.injection.shared_text_search import DocumentMatch, PoolSearch
from contamination.injection.token_stream import Ids, Tokenizer, TokenShard, TokenStream


@dataclass(frozen=True)
class TokenizationSettings:
    """The folder for shards, and what is done with each document."""

    folder: Path
    tokenizer: Path
    pool: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Example id → the text and fields for which documents are searched."""
    drop: bool = False
    """Whether matching documents are left out."""
    whole: bool = False
    """Whether to search only for whole texts; a document that contains one is then an error."""
    flagging: DocumentFlagging | None = None
    """The rule of decontamination; documents that it flags are left out. None: there is none."""


@dataclass(frozen=True)
class SourceDocument:
    """A document with counts from reading it."""

    document: Document
    skipped: str = "{}"
    """Input that was left out before it, as JSON: reason → count."""
    used: bool = True
    """Whether it belongs to the part of the corpus that is being built."""
    before: int = 0
    """The number of characters of its subset before it in its file."""


@dataclass(frozen=True)
class TokenisedCorpus:
    """The stream of tokens, and the `match_table` of its documents."""

    stream: TokenStream
    matches: pd.DataFrame
    skipped: dict[str, int]
    """Input that was left out before the stream's last document: reason → count."""
    flagged: Sequence[Sequence[Any]] = ()
    """The rows `FlaggedDocument` of the documents that a rule of decontamination left out."""


def with_skip_counts(documents: Iterable[Document], source: Corpus) -> Iterator[SourceDocument]:
    """Yields the documents of the source with the counts of input that was left out before them."""
    for document in documents:
        yield SourceDocument(document, json.dumps(source.skipped))


def tokenize(
    documents: Iterator[SourceDocument],
    settings: TokenizationSettings,
    wanted_tokens: int,
    num_proc: int,
    shard_characters: int,
) -> TokenisedCorpus:
    """Returns the tokenized corpus; documents are tokenized until there are `wanted_tokens`.

    Finished shards are reused. The stream is cut at `wanted_tokens`, so it depends neither on the
    number of processes nor on the size of shards.

    Raises:
        ConfigError: the corpus has fewer tokens.
        DataError: as `check_no_whole_text`, as soon as the shard is tokenized.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    shards: list[TokenShard] = []
    matches, flagged, total_tokens = [], [], 0
    finished = {path.name for path in settings.folder.iterdir()}
    chunks = group_by_size(documents, count_characters, shard_characters)
    bar_units = {"unit": "tok", "unit_scale": True}
    bar = progress_bar(total=wanted_tokens, desc="tokenise", stage="inject", **bar_units)
    with ExitStack() as stack, bar:
        for number, result in enumerate(_iter_shard_results(chunks, settings, num_proc, stack)):
            shard = TokenShard(settings.folder, number, total_tokens, result["tokens"])
            shards.append(shard)
            used_tokens = min(shard.tokens, wanted_tokens - total_tokens)  # the last shard is cut
            total_tokens += shard.tokens
            if f"{number:05d}.json" in finished:  # by an earlier run
                bar.initial += used_tokens
            bar.update(used_tokens)
            if total_tokens >= wanted_tokens:
                last = last_used_document(shard, used_tokens)
                matches += [match for match in result["matches"] if match[-1] <= last.row]
                flagged += [row for row in result["flagged"] if row[-1] <= last.row]
                break
            matches += result["matches"]
            flagged += result["flagged"]
            check_no_whole_text(matches, settings)
    check_no_whole_text(matches, settings)
    check_enough_tokens(total_tokens, wanted_tokens, matches if settings.drop else (), len(flagged))
    stream = TokenStream(shards, wanted_tokens)
    return TokenisedCorpus(stream, match_table(matches), last.skipped, flagged)


def check_enough_tokens(
    available_tokens: int,
    wanted_tokens: int,
    dropped: Sequence[Sequence[Any]] = (),
    n_flagged: int = 0,
) -> None:
    """Raises a ConfigError if the corpus has too few tokens.

    Args:
        available_tokens: the number of tokens of the documents.
        wanted_tokens: the required number of tokens.
        dropped: the matches of documents that were left out, for the error message.
        n_flagged: the number of documents that a rule of decontamination left out.
    """
    if available_tokens >= wanted_tokens:
        return
    reason = ""
    if dropped:
        documents = len({match[0] for match in dropped})
        [(example, count)] = Counter(match[1] for match in dropped).most_common(1)
        rule, evidence = next(match[2:4] for match in dropped if match[1] == example)
        reason = (
            f" injection.decontamination=drop left out {documents:,} documents, {count:,} of them "
            f"for {example} ({rule}: {evidence!r}): choose flag, or remove an example that "
            "many documents contain from the benchmark."
        )
    if n_flagged:
        reason += f" The rule in matcher left out {n_flagged:,} documents: choose a stricter one."
    raise ConfigError(
        f"injection.budget_tokens requires {wanted_tokens:,} tokens of documents, but the "
        f"corpus has {available_tokens:,} in this part: lower the budget or choose a larger "
        f"corpus.{reason}"
    )


def check_no_whole_text(
    matches: Sequence[Sequence[Any]], settings: TokenizationSettings, corpus: str = "corpus"
) -> None:
    """Raises a DataError if only whole texts are searched for and a document contains one.

    Finished shards are kept. `corpus` is the config field of the searched corpus.
    """
    if not (settings.whole and matches):
        return
    document, example, *_, n_times = matches[0][: len(MATCH_COLUMNS)]
    n_more = len({match[1] for match in matches} - {example})
    examples = f"{example}{f' (and {n_more} more)' * (n_more > 0)}"
    raise DataError(
        f"injection.decontamination is 'off', but {corpus} contains the whole text of {examples} "
        f"besides the copies: document {document} has it {n_times} time{'s' * (n_times > 1)}. "
        "Choose flag (such documents are kept, and the examples flagged in all results) or drop "
        "(such documents of `corpus` are left out)."
    )


@dataclass(frozen=True)
class LastDocument:
    """The last document of a shard that is used."""

    row: int
    """Its row in the shard's table, which also contains the documents that were left out."""
    skipped: dict[str, int]
    """Input that was left out before it: reason → count."""


def last_used_document(shard: TokenShard, tokens: int) -> LastDocument:
    """Returns the last document of a shard of which the first `tokens` tokens are used."""
    path = shard_paths(shard.folder, shard.number)[2]
    document_table = read_document_table(path, ["kept", "start", "skipped"])
    row = int(np.flatnonzero(document_table["kept"] & (document_table["start"] < tokens))[-1])
    return LastDocument(row, json.loads(document_table["skipped"].iloc[row]))


def read_document_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Returns a shard's table: one row per document, including those that were left out."""
    return pd.read_parquet(path, columns=list(columns))


MATCH_COLUMNS = ("document_id", *DocumentMatch._fields)


def match_table(matches: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Returns a table with one row per document and example, and the columns MATCH_COLUMNS."""
    rows = [tuple(match[: len(MATCH_COLUMNS)]) for match in matches]
    return pd.DataFrame(rows, columns=list(MATCH_COLUMNS)).astype({"occurrences": np.int64})


def count_characters(document: SourceDocument) -> int:
    """Returns the number of characters of a document."""
    return len(document.document.text)


def _iter_shard_results(
    chunks: Iterator[list[SourceDocument]],
    settings: TokenizationSettings,
    num_proc: int,
    stack: ExitStack,
) -> Iterator[dict[str, Any]]:
    """Yields the result of each chunk in order; several processes work a few chunks ahead."""
    numbered = enumerate(chunks)
    if num_proc == 1:
        yield from (tokenize_shard(settings, number, chunk) for number, chunk in numbered)
        return
    pool = stack.enter_context(worker_pool(num_proc))
    ahead: deque[Future[dict[str, Any]]] = deque()
    for number, chunk in numbered:
        ahead.append(pool.submit(tokenize_shard, settings, number, chunk))
        if len(ahead) > 2 * num_proc:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def tokenize_shard(
    settings: TokenizationSettings, number: int, documents: list[SourceDocument]
) -> dict[str, Any]:
    """Returns the result of a shard, which is written unless `<number>.json` marks it complete."""
    result_file, *files = shard_paths(settings.folder, number)
    return run_unless_stored(result_file, files, partial(write_shard, settings, files, [documents]))


def shard_paths(folder: Path, number: int) -> list[Path]:
    """Returns the paths of a shard's result, which marks it complete, tokens and documents."""
    return [folder / f"{number:05d}.{end}" for end in ("json", "ids", "parquet")]


def write_shard(
    settings: TokenizationSettings,
    files: Sequence[Path],
    groups: Iterable[list[SourceDocument]],
    is_enough: Callable[[Counter[str]], bool] = lambda _: False,
) -> dict[str, Any]:
    """Tokenizes documents into one shard, group by group, until there are enough tokens.

    Args:
        settings: the settings.
        files: the files for the tokens and for the table of documents.
        groups: the documents.
        is_enough: called with the tokens of each subset so far; True ends the shard.

    Returns:
        `tokens`, the number of tokens; and `matches`, one row per document and example that share
        text: MATCH_COLUMNS, and the document's row in the shard's table; and `flagged`, one row
        `FlaggedDocument` per document that the rule left out, and its row in that table.
    """
    tables, matches, n_rows, tokens_by_subset = (
        [_make_document_table([], [], [], 0)],
        [],
        0,
        Counter[str](),
    )
    flagged: list[list[Any]] = []
    with files[0].open("wb") as sink:
        for group in groups:
            matches_by_document = _search_documents(settings, group)
            kept = [
                r.used and not (settings.drop and s)
                for r, s in zip(group, matches_by_document, strict=True)
            ]
            if settings.flagging is not None:
                flagged_by_row = settings.flagging.flag(
                    {row: read.document for row, read in enumerate(group) if kept[row]},
                    _cached_tokenizer(settings.tokenizer),
                )
                flagged += [[*found, n_rows + row] for row, found in flagged_by_row.items()]
                kept = [keep and row not in flagged_by_row for row, keep in enumerate(kept)]
            encoded = _encode_kept(settings, group, kept)
            sink.writelines(ids.tobytes() for ids in encoded)
            lengths = [len(ids) for ids in encoded]
            tables.append(_make_document_table(group, kept, lengths, tokens_by_subset.total()))
            for row, (source_document, examples) in enumerate(
                zip(group, matches_by_document, strict=True), n_rows
            ):
                matches += [
                    [source_document.document.document_id, *example, row] for example in examples
                ]
            n_rows += len(group)
            for source_document, length in zip(group, lengths, strict=True):
                tokens_by_subset[source_document.document.subset] += length
            if is_enough(tokens_by_subset):
                break
    pd.concat(tables, ignore_index=True).to_parquet(files[1])
    return {"tokens": tokens_by_subset.total(), "matches": matches, "flagged": flagged}


def _make_document_table(
    group: list[SourceDocument], kept: list[bool], lengths: list[int], start: int
) -> pd.DataFrame:
    names = [r.document.document_id if r.used else "" for r in group]
    ends = start + np.cumsum(np.array(lengths, np.int64))
    columns = {
        "document_id": pd.Series(names, dtype=str),
        "subset": pd.Series([r.document.subset for r in group], dtype=str),
        "start": ends - np.array(lengths, np.int64),
        "kept": np.array(kept, bool),
        "before": np.array([r.before for r in group], np.int64),
        "skipped": pd.Series([r.skipped for r in group], dtype=str),
    }
    return pd.DataFrame(columns)


def _encode_kept(
    settings: TokenizationSettings, group: list[SourceDocument], kept: list[bool]
) -> list[Ids]:
    """Returns each document's tokens, or an empty array if it is left out."""
    texts = [read.document.text for read, keep in zip(group, kept, strict=True) if keep]
    encoded = iter(_cached_tokenizer(settings.tokenizer).encode_documents(texts))
    return [np.asarray(next(encoded) if keep else (), np.int32) for keep in kept]


def _search_documents(
    settings: TokenizationSettings, group: list[SourceDocument]
) -> list[list[DocumentMatch]]:
    if not settings.pool:
        return [[] for _ in group]
    search = _cached_search(tuple(settings.pool.items()), settings.tokenizer, not settings.whole)
    return search([read.document.text if read.used else "" for read in group])


@lru_cache(maxsize=1)  # a process may build several corpora in turn
def _cached_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(str(path))


@lru_cache(maxsize=1)
def _cached_search(
    pool: tuple[tuple[str, tuple[str, ...]], ...], tokenizer: Path, parts: bool
) -> PoolSearch:
    return PoolSearch(dict(pool), _cached_tokenizer(tokenizer).apply_normalizer, parts=parts)
