"""Tokenising the corpus: shard by shard, in one process or several, with the same result."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.content import digests
from core.errors import ConfigError
from core.files import sealed, unsealed, write_text
from core.progress import progress
from injection.decontaminate import Matcher
from injection.sources import Document
from injection.tokens import Shard, Tokenizer, TokenStream, grouped


@dataclass(frozen=True)
class Work:
    """What a worker needs to know: where to write, and what to do with each document."""

    folder: Path
    tokenizer: Path
    pool: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Text and fields by example that documents are held against; none: no decontamination."""
    drop: bool = False
    """Whether a document that matches is left out."""


@dataclass(frozen=True)
class Tokenised:
    """The stream, and what decontamination found: document_id, example_id, rule, evidence."""

    stream: TokenStream
    matches: pd.DataFrame


def tokenize(
    documents: Iterator[Document],
    work: Work,
    wanted_tokens: int,
    num_proc: int,
    shard_characters: int,
) -> Tokenised:
    """Write documents as token shards until `wanted_tokens` are there; finished shards are reused.

    The stream is cut at `wanted_tokens`, so it depends neither on the number of processes nor on
    the size of a shard.

    Raises:
        ConfigError: the corpus has fewer tokens.
    """
    work.folder.mkdir(parents=True, exist_ok=True)
    shards: list[Shard] = []
    starts, matches, total = [], [], 0
    finished = {path.name for path in work.folder.iterdir()}
    chunks = grouped(documents, lambda document: len(document.text), shard_characters)
    shown = {"unit": "tok", "unit_scale": True}
    bar = progress(total=wanted_tokens, desc="tokenise", stage="inject", **shown)
    with ExitStack() as stack, bar:
        for number, found in enumerate(_in_order(chunks, work, num_proc, stack)):
            shard = Shard(work.folder, number, total, found["tokens"])
            starts.append(shard.documents()["start"].to_numpy() + total)
            matches += found["matches"]
            shards.append(shard)
            used = min(shard.tokens, wanted_tokens - total)  # the last shard is cut
            total += shard.tokens
            if f"{number:05d}.json" in finished:  # by an earlier run: no work of this one
                bar.initial += used
            bar.update(used)
            if total >= wanted_tokens:
                break
    if total < wanted_tokens:
        raise ConfigError(
            f"injection.budget_tokens asks for {wanted_tokens:,} tokens of documents, but the "
            f"corpus has {total:,} in this part: lower the budget or choose a larger corpus."
        )
    places = np.concatenate(starts)
    stream = TokenStream(shards, places[places < wanted_tokens], wanted_tokens)
    return Tokenised(stream, _used(pd.DataFrame(matches, columns=list(MATCH_COLUMNS)), stream))


MATCH_COLUMNS = ("document_id", "example_id", "rule", "evidence", "shard", "place")


def _used(matches: pd.DataFrame, stream: TokenStream) -> pd.DataFrame:
    """The matches of documents that the cut stream reached."""
    last = stream.shards[-1]
    reached = int((last.documents()["start"] + last.start < stream.tokens).sum())
    kept = matches[(matches["shard"] < last.number) | (matches["place"] < reached)]
    return kept.drop(columns=["shard", "place"]).reset_index(drop=True)


def _in_order(
    chunks: Iterator[list[Document]], work: Work, num_proc: int, stack: ExitStack
) -> Iterator[dict[str, Any]]:
    """Each chunk's shard, made here or by workers, who are a few chunks ahead."""
    numbered = enumerate(chunks)
    if num_proc == 1:
        yield from (tokenize_shard(work, number, chunk) for number, chunk in numbered)
        return
    pool = ProcessPoolExecutor(num_proc, get_context("spawn"), initializer=_one_thread)
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    ahead: deque[Future[dict[str, Any]]] = deque()
    for number, chunk in numbered:
        ahead.append(pool.submit(tokenize_shard, work, number, chunk))
        if len(ahead) > 2 * num_proc:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _one_thread() -> None:
    """A worker is one thread: the processes share the cores between them."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def tokenize_shard(work: Work, number: int, documents: list[Document]) -> dict[str, Any]:
    """One shard, made or found; `<number>.json` is written last and marks it complete."""
    done = work.folder / f"{number:05d}.json"
    files = [work.folder / f"{number:05d}.{part}" for part in ("ids", "parquet")]
    if not _is_whole(done, files):
        kept, matches = _decontaminated(work, number, documents)
        encoded = _tokenizer(work.tokenizer).encode_documents([d.text for d in kept])
        lengths = np.array([len(e) for e in encoded], dtype=np.int64)
        ids = np.concatenate([np.empty(0, np.int32), *(np.asarray(e, np.int32) for e in encoded)])
        files[0].write_bytes(ids.tobytes())
        table = pd.DataFrame(
            {
                "document_id": pd.Series([d.document_id for d in kept], dtype=str),
                "subset": pd.Series([d.subset for d in kept], dtype=str),
                "start": np.cumsum(lengths) - lengths,
            }
        )
        table.to_parquet(files[1])
        made = {"tokens": int(lengths.sum()), "matches": matches, "sha256": _hashes(files)}
        write_text(done, sealed(made))
    return unsealed(done.read_text())


def _is_whole(done: Path, files: Sequence[Path]) -> bool:
    """Whether a shard is there as it was written."""
    try:
        return bool(unsealed(done.read_text())["sha256"] == _hashes(files))
    except (OSError, ValueError):
        return False


def _hashes(files: Sequence[Path]) -> list[str]:
    return [*digests({path.name: path for path in files}).values()]


def _decontaminated(
    work: Work, number: int, documents: list[Document]
) -> tuple[list[Document], list[tuple[Any, ...]]]:
    """The documents to keep, and a row for each one that shares text with the pool."""
    if not work.pool:
        return documents, []
    matcher = _matcher(tuple(work.pool.items()))
    kept: list[Document] = []
    matches: list[tuple[Any, ...]] = []
    for document in documents:
        match = matcher.match(document.text)
        if match is not None:
            found = match.example_id, match.rule, match.evidence
            matches.append((document.document_id, *found, number, len(kept)))
        if match is None or not work.drop:
            kept.append(document)
    return kept, matches


@lru_cache(maxsize=1)  # of one corpus: those of the cells before are not needed again
def _tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(str(path))


@lru_cache(maxsize=1)
def _matcher(pool: tuple[tuple[str, tuple[str, ...]], ...]) -> Matcher:
    texts = {example: text for example, (text, *_) in pool}
    return Matcher(texts, {example: fields for example, (_, *fields) in pool})
