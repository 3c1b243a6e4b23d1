"""Searches finished corpora, and the copies of a pool, for the examples of the pool."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.artifacts import path_part_of
from contamination.core.task_runner import TaskRunner
from contamination.data.readers.rows import group_by_size
from contamination.data.words import normalise_text
from contamination.injection import packing
from contamination.injection.corpus import FinetuningSet, PackedCorpus, open_corpus
from contamination.injection.shared_text_search import VERBATIM, PoolSearch, first_words
from contamination.injection.token_stream import Ids, Tokenizer
from contamination.injection.tokenization import match_table

TextsByExample = Mapping[str, Sequence[str]]
"""Example id → the example's text, followed by its fields."""
STRETCH_TOKENS = 4_096
DOCUMENTS_AT_ONCE = 256


def texts_by_example(examples: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Returns each example's text, followed by its fields."""
    rows = examples.itertuples()
    return {r.example_id: (r.text, *json.loads(r.fields).values()) for r in rows}


def matches_within_copies(
    examples: pd.DataFrame, ledger: pd.DataFrame, tokenizer: Tokenizer
) -> pd.DataFrame:
    """Returns a `match_table` of examples whose whole text is part of another example's copies."""
    texts = dict(zip(examples["example_id"], examples["text"], strict=True))
    copies = ledger.drop_duplicates(["example_id", "copy"])
    inserted = Counter(
        (row.example_id, row.reworded or texts[row.example_id]) for row in copies.itertuples()
    )
    pool = {name: (text,) for name, text in texts.items()}
    search = PoolSearch(pool, tokenizer.apply_normalizer, parts=False)
    matches_by_copy = search([text for _, text in inserted])
    rows = [
        (owner, *match._replace(occurrences=match.occurrences * n_copies))
        for ((owner, _), n_copies), matches in zip(inserted.items(), matches_by_copy, strict=True)
        for match in matches
        if match.example_id != owner
    ]
    return match_table(rows)


def matches_only_in_proof(
    examples: pd.DataFrame, natural: Mapping[str, int], matches: pd.DataFrame
) -> pd.DataFrame:
    """Returns a `match_table` of the natural occurrences that only the verification found.

    They span two documents, or only their tokens are equal. Their `document_id` is empty.

    Args:
        examples: the pool.
        natural: text → its natural occurrences, from the verification.
        matches: the `match_table` of the documents.
    """
    matched_examples = set(matches.loc[matches["occurrences"] > 0, "example_id"])
    rows = examples[["example_id", "text"]].itertuples(index=False, name=None)
    return match_table(
        [
            ("", example_id, VERBATIM, first_words(normalise_text(text)), natural[text])
            for example_id, text in rows
            if natural.get(text, 0) and example_id not in matched_examples
        ]
    )


def open_corpora(folders: Mapping[str, str]) -> dict[str, PackedCorpus]:
    """Returns the corpora in these folders by name.

    Raises:
        ArtifactError: a folder is missing or unfinished.
    """
    return {name: open_corpus(path) for name, path in folders.items()}


@dataclass(frozen=True)
class CorpusSearchTask:
    """The search of a packed corpus for a pool, one piece per part of the corpus."""

    tokenizer: str
    """The tokenizer's folder."""
    paths: Sequence[Path]
    """The files of the parts."""
    starts: Sequence[int]
    """The number of each part's first sequence."""
    sequence_tokens: int
    pool: TextsByExample
    whole: bool
    """Whether only whole texts are searched for."""

    def __len__(self) -> int:
        """Returns the number of parts."""
        return len(self.paths)

    def files(self, piece: int) -> list[Path]:
        """Returns no files: only results are returned."""
        return []

    def process_piece(self, piece: int) -> dict[str, Any]:
        """Searches the documents that begin in a part, each up to its end.

        Returns:
            `matches`, the rows for a `match_table`. The id of a document is the sequence in which
            it begins.
        """
        tokenizer = Tokenizer(str(self.tokenizer))
        search = PoolSearch(self.pool, tokenizer.apply_normalizer, parts=not self.whole)
        longest_text = max(
            (len(tokenizer.encode(text)) for text, *_ in self.pool.values()), default=0
        )
        first = self.starts[piece] * self.sequence_tokens
        stop = first + packing.count_sequences(self.paths[piece]) * self.sequence_tokens
        blocks = (b.reshape(-1) for path in self.paths[piece:] for b in packing.read_blocks(path))
        documents = split_documents(blocks, tokenizer.document_start_id, 2 * longest_text)
        # the previous part is read up to the first BOS of this part
        if piece and tokenizer.document_start_id is not None:
            documents = (d for d in documents if d[1][0] == tokenizer.document_start_id)
        begin_here = takewhile(lambda document: first + document[0] < stop, documents)
        rows: list[list[Any]] = []
        for group in group_by_size(begin_here, lambda _: 1, DOCUMENTS_AT_ONCE):
            matches_by_document = search([tokenizer.decode(ids) for _, ids in group])
            for (start, _), matches in zip(group, matches_by_document, strict=True):
                document_id = f"sequence-{(first + start) // self.sequence_tokens}"
                rows += [[document_id, *match] for match in matches]
        return {"matches": rows}


def search_corpus(
    corpus: PackedCorpus, pool: TextsByExample, runner: TaskRunner, name: str, *, whole: bool
) -> pd.DataFrame:
    """Returns a `match_table` of the text that the corpus's documents share with the pool.

    Documents are separated at their BOS tokens. If the tokenizer adds no BOS, overlapping stretches
    of tokens are searched instead, and a text within an overlap is found twice.

    Args:
        corpus: the packed corpus, or a fine-tuning set; inserted copies are found as well.
        pool: the texts to search for.
        runner: runs the search of the parts.
        name: the corpus's name in task names and logs.
        whole: whether to search only for whole texts.
    """
    if isinstance(corpus, FinetuningSet):
        return _search_finetuning_set(
            corpus, PoolSearch(pool, corpus.tokenizer.apply_normalizer, parts=not whole)
        )
    sequence_counts = [packing.count_sequences(path) for path in corpus.part_paths]
    first_sequences = [sum(sequence_counts[:n]) for n in range(len(sequence_counts))]
    folder, width = str(corpus.tokenizer_folder.resolve()), corpus.sequence_tokens
    parts = [path.resolve() for path in corpus.part_paths]
    task = CorpusSearchTask(folder, parts, first_sequences, width, pool, whole)
    results = runner.run(f"compare-{path_part_of(name)}", task)
    return match_table([match for result in results for match in result["matches"]])


def _search_finetuning_set(corpus: FinetuningSet, search: PoolSearch) -> pd.DataFrame:
    inserted = corpus.examples[corpus.examples["occurrences"] > 0]
    texts = pd.concat([corpus.instructions, inserted])
    matches_by_text = zip(texts["example_id"], search(texts["text"].tolist()), strict=True)
    return match_table(
        [(text_id, *match) for text_id, matches in matches_by_text for match in matches]
    )


def split_documents(
    blocks: Iterable[Ids], document_start_id: int | None, overlap: int
) -> Iterator[tuple[int, Ids]]:
    """Yields the documents in a stream of tokens.

    Args:
        blocks: the stream, in blocks of shape (tokens,).
        document_start_id: the token that begins each document; None: the stream is divided into
            stretches of STRETCH_TOKENS and `overlap` tokens instead.
        overlap: the number of tokens by which consecutive stretches overlap.

    Yields:
        The position of the document's first token in the stream, and its tokens.
    """
    start, buffer = 0, np.empty(0, np.int32)
    for block in blocks:
        buffer = np.concatenate([buffer, block])
        if document_start_id is None:
            while len(buffer) >= STRETCH_TOKENS + overlap:
                yield start, buffer[: STRETCH_TOKENS + overlap]
                start, buffer = start + STRETCH_TOKENS, buffer[STRETCH_TOKENS:]
            continue
        done = 0
        for stop in (1 + np.flatnonzero(buffer[1:] == document_start_id)).tolist():
            yield start + done, buffer[done:stop]
            done = stop
        start, buffer = start + done, buffer[done:]
    if len(buffer):
        yield start, buffer
