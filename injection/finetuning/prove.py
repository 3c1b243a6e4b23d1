"""The proof of a fine-tuning set: its files are read again and held against its tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from injection.finetuning.config import FinetuningConfig
from injection.finetuning.encode import encode
from injection.finetuning.layout import NO_TEXT, read_rows
from injection.finetuning.prompts import Prompted
from injection.tokens import Tokenizer
from injection.verify import Proof


def prove(
    path: Path,
    tables: Sequence[pd.DataFrame],
    tokenizer: Tokenizer,
    config: FinetuningConfig,
) -> Proof:
    """Hold each text's tokens, their places and what is output of them against its row.

    Args:
        path: the file of sequences.
        tables: the examples, the ledger and the clean texts.
        tokenizer: the one that made the tokens.
        config: as the set was made.
    """
    examples, ledger, clean = tables
    proof, sequences = Proof(rows=len(ledger)), [*read_rows(path)]
    proof.tokens = sum(len(row["input_ids"]) for row in sequences)
    texts = {r.example_id: Prompted(r.example_id, "", r.text, r.output_start)
             for r in chain(clean.itertuples(), examples.itertuples())}  # fmt: skip
    rows = [*clean.itertuples(), *ledger.itertuples()]
    for number, row in enumerate(rows):
        wrong = _wrong(sequences, number, row, texts[row.example_id], tokenizer, config)
        proof.failures += [f"{row.example_id}: sequence {row.sequence}, {wrong}"] if wrong else []
    proof.failures += _uncounted(sequences, len(rows))
    listed = ledger["example_id"].value_counts()
    for example in examples.itertuples():
        if (found := int(listed.get(example.example_id, 0))) != example.occurrences:
            few = f"{example.occurrences} occurrences, the ledger has {found} copies"
            proof.failures.append(f"{example.example_id}: {few}")
    return proof


def _wrong(
    sequences: Sequence[dict[str, Any]],
    number: int,
    row: Any,
    text: Prompted,
    tokenizer: Tokenizer,
    config: FinetuningConfig,
) -> str | None:
    """What does not hold of text `number`, or None."""
    if row.sequence >= len(sequences):
        return "which does not exist"
    sequence, encoded = sequences[row.sequence], encode(text, config, tokenizer)
    own = np.flatnonzero(sequence["text"] == number)
    if len(own) != len(encoded.ids) or len(own) != own[-1] - own[0] + 1:
        return f"which has {len(own)} of its {len(encoded.ids)} tokens"
    if (row.token_start, row.token_end) != (own[0] + encoded.first, own[0] + encoded.stop):
        return f"where it does not stand at {row.token_start}..{row.token_end}"
    if not np.array_equal(sequence["input_ids"][own], encoded.ids):
        return "whose tokens differ from the text's"
    if not np.array_equal(sequence["output"][own], encoded.output):
        return "where other tokens are its output"
    return None


def _uncounted(sequences: Sequence[dict[str, Any]], texts: int) -> list[str]:
    """Sequences whose counts are not those of their texts, or that hold a text of no table."""
    failures = []
    for place, row in enumerate(sequences):
        numbers = row["text"]
        follows = numbers[1:] == np.where(numbers[:-1] == NO_TEXT, -2, numbers[:-1])
        found = {
            "texts": len(np.unique(numbers[numbers != NO_TEXT])),
            "targets": int(follows.sum()),
            "output_targets": int((follows & (row["output"][1:] == 1)).sum()),
        }
        failures += [
            f"sequence {place}: {name} is {row[name]}, found {count}"
            for name, count in found.items()
            if row[name] != count
        ]
        if numbers.max() >= texts:
            failures.append(f"sequence {place}: text {numbers.max()} is in no table")
    return failures
