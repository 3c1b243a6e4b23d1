"""Arranges texts in sequences of equal length; writes, reads and verifies the file of sequences.

A row is a sequence. It has the tokens; the number of each token's text (-1: padding); whether each
token is output; and the numbers of texts, targets (tokens of a text except the first) and output
targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from contamination.core.terminal import counted
from contamination.injection.finetuning.config import PADDED, FinetuningConfig
from contamination.injection.finetuning.prompts import EncodedText, PromptedText, encode_text
from contamination.injection.token_stream import Tokenizer
from contamination.injection.verification import Proof

NO_TEXT = -1
OPEN_SEQUENCES = 64  # the latest sequences, to which texts may still be added
BATCH_SEQUENCES = 1024  # sequences written at a time


def assign_to_sequences(lengths: Sequence[int], width: int, layout: str) -> list[list[int]]:
    """Returns the texts of each sequence, by their index in `lengths`.

    In the packed layout, a text goes into the first of the latest sequences that has room. Texts
    are never cut.

    Args:
        lengths: the tokens of each text, at most `width`.
        width: the tokens of a sequence.
        layout: packed or padded.
    """
    if layout == PADDED:
        return [[text] for text in range(len(lengths))]
    sequences: list[list[int]] = []
    room: list[int] = []
    for text, length in enumerate(lengths):
        latest = range(max(0, len(room) - OPEN_SEQUENCES), len(room))
        number = next((n for n in latest if room[n] >= length), len(room))
        if number == len(room):
            sequences.append([])
            room.append(width)
        sequences[number].append(text)
        room[number] -= length
    return sequences


def text_places(sequences: Sequence[Sequence[int]], texts: Sequence[EncodedText]) -> pd.DataFrame:
    """Returns the position of each text: sequence, token_start and token_end, one row per text."""
    rows: dict[int, tuple[int, int, int]] = {}
    for number, sequence_texts in enumerate(sequences):
        start = 0
        for text in sequence_texts:
            encoded = texts[text]
            rows[text] = (number, start + encoded.first, start + encoded.stop)
            start += len(encoded.ids)
    columns = ["sequence", "token_start", "token_end"]
    return pd.DataFrame([rows[text] for text in range(len(texts))], columns=columns, dtype="int64")


def write_sequences(
    path: Path,
    sequences: Sequence[Sequence[int]],
    texts: Sequence[EncodedText],
    width: int,
    padding_id: int,
) -> None:
    """Writes the sequences as an Arrow stream file."""
    schema = _arrow_schema(width)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, len(sequences), BATCH_SEQUENCES):
            rows = [
                _sequence_row(s, texts, width, padding_id)
                for s in sequences[start : start + BATCH_SEQUENCES]
            ]
            writer.write_batch(_record_batch(rows, schema))


def _arrow_schema(width: int) -> Any:
    tokens = [("input_ids", pa.int32()), ("text", pa.int32()), ("output", pa.int8())]
    counts = ["texts", "targets", "output_targets"]
    wide = [(name, pa.list_(kind, width)) for name, kind in tokens]
    return pa.schema([*wide, *((name, pa.int32()) for name in counts)])


def _sequence_row(
    text_numbers: Sequence[int], texts: Sequence[EncodedText], width: int, padding_id: int
) -> dict[str, Any]:
    encoded = [texts[text] for text in text_numbers]
    n_padding = width - sum(len(text.ids) for text in encoded)
    numbers = [np.full(len(texts[text].ids), text, np.int32) for text in text_numbers]
    return {
        "input_ids": np.concatenate(
            [*(text.ids for text in encoded), np.full(n_padding, padding_id, np.int32)]
        ),
        "text": np.concatenate([*numbers, np.full(n_padding, NO_TEXT, np.int32)]),
        "output": np.concatenate(
            [*(text.output for text in encoded), np.zeros(n_padding, bool)]
        ).astype(np.int8),
        "texts": len(encoded),
        "targets": sum(text.n_targets for text in encoded),
        "output_targets": sum(text.n_output_targets for text in encoded),
    }


def _record_batch(rows: Sequence[dict[str, Any]], schema: Any) -> Any:
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.array(np.concatenate(values))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, field.type.list_size))
        else:
            columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=schema)


def read_sequences(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the sequences of a file: arrays of shape (sequence_tokens,), and counts."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            columns = {name: _column_to_numpy(batch.column(name)) for name in batch.schema.names}
            for row in range(batch.num_rows):
                yield {name: values[row] for name, values in columns.items()}


def _column_to_numpy(column: Any) -> Any:
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return column.to_numpy()


def prove_set(
    path: Path,
    tables: Sequence[pd.DataFrame],
    tokenizer: Tokenizer,
    config: FinetuningConfig,
) -> Proof:
    """Verifies the tokens, the position and the output of each text against its row.

    Args:
        path: the file of sequences.
        tables: the examples, the ledger and the clean texts.
        tokenizer: the tokenizer of the set.
        config: the configuration of the set.
    """
    examples, ledger, clean = tables
    proof, sequences = Proof(rows=len(ledger)), [*read_sequences(path)]
    proof.tokens = sum(len(row["input_ids"]) for row in sequences)
    texts = {r.example_id: PromptedText(r.example_id, "", r.text, r.output_start)
             for r in chain(clean.itertuples(), examples.itertuples())}  # fmt: skip
    rows = [*clean.itertuples(), *ledger.itertuples()]
    for text_number, row in enumerate(rows):
        problem = _why_text_is_wrong(
            sequences, text_number, row, texts[row.example_id], tokenizer, config
        )
        if problem:
            proof.failures.append(f"{row.example_id}: sequence {row.sequence}, {problem}")
    proof.failures += _wrong_sequence_counts(sequences, len(rows))
    copies = ledger["example_id"].value_counts()
    for example in examples.itertuples():
        listed = int(copies.get(example.example_id, 0))
        if listed != example.occurrences:
            proof.failures.append(
                f"{example.example_id}: {example.occurrences} occurrences, the ledger has "
                f"{counted(listed, 'copy')}"
            )
    return proof


def _why_text_is_wrong(
    sequences: Sequence[dict[str, Any]],
    number: int,
    row: Any,
    text: PromptedText,
    tokenizer: Tokenizer,
    config: FinetuningConfig,
) -> str | None:
    if row.sequence >= len(sequences):
        return "which does not exist"
    sequence, encoded = sequences[row.sequence], encode_text(text, config, tokenizer)
    tokens = np.flatnonzero(sequence["text"] == number)
    if len(tokens) != len(encoded.ids) or len(tokens) != tokens[-1] - tokens[0] + 1:
        return f"which has {len(tokens)} of its {len(encoded.ids)} tokens"
    first = tokens[0]
    if (row.token_start, row.token_end) != (first + encoded.first, first + encoded.stop):
        return f"where it is not at {row.token_start}..{row.token_end}"
    if not np.array_equal(sequence["input_ids"][tokens], encoded.ids):
        return "whose tokens differ from the text's"
    if not np.array_equal(sequence["output"][tokens], encoded.output):
        return "where other tokens are its output"
    return None


def _wrong_sequence_counts(sequences: Sequence[dict[str, Any]], texts: int) -> list[str]:
    """Reports sequences with wrong counts, or with a text that is in no table."""
    failures = []
    for sequence, row in enumerate(sequences):
        numbers = row["text"]
        follows = numbers[1:] == np.where(numbers[:-1] == NO_TEXT, -2, numbers[:-1])
        counts = {
            "texts": len(np.unique(numbers[numbers != NO_TEXT])),
            "targets": int(follows.sum()),
            "output_targets": int((follows & (row["output"][1:] == 1)).sum()),
        }
        failures += [
            f"sequence {sequence}: {name} is {row[name]}, found {count}"
            for name, count in counts.items()
            if row[name] != count
        ]
        if numbers.max() >= texts:
            failures.append(f"sequence {sequence}: text {numbers.max()} is in no table")
    return failures
