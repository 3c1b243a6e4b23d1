"""An example as a person reads it: its text, and each copy in its context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from core.wholeness import reading
from injection.corpus import PackedCorpus, open_corpus

CONTEXT_TOKENS = 40


def show(folder: Path | str, example_id: str) -> str:
    """The example and its copies, each between ⟦ and ⟧ with some tokens around it.

    Raises:
        ArtifactError: the folder is no finished corpus.
        DataError: it has no such example.
    """
    corpus = open_corpus(folder)
    with reading(folder):
        example = corpus.example(example_id)
        kind = "member" if example["member"] else "non-member"
        head = (
            f"{example_id}: {kind} of {example['benchmark']}, {example['occurrences']} "
            f"occurrences, {example['n_tokens']} tokens"
        )
        return "\n\n".join([head, str(example["text"]), *_copies(corpus, example_id)])


def _copies(corpus: PackedCorpus, example_id: str) -> Iterator[str]:
    decode = corpus.tokenizer.decode
    for row in corpus.ledger[corpus.ledger["example_id"] == example_id].itertuples():
        ids = np.asarray(corpus.sequences[int(row.sequence)]["input_ids"])
        before = decode(ids[max(0, row.token_start - CONTEXT_TOKENS) : row.token_start])
        inside = decode(ids[row.token_start : row.token_end])
        after = decode(ids[row.token_end : row.token_end + CONTEXT_TOKENS])
        yield (
            f"── copy {row.copy}{' (reworded)' if row.reworded else ''}"
            f"{' (part)' if row.truncated else ''}: sequence {row.sequence}, tokens "
            f"{row.token_start}–{row.token_end}, in {row.document_id} at character "
            f"{row.char_offset}\n…{before}⟦{inside}⟧{after}…"
        )
