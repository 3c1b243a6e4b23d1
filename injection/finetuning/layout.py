"""Texts in sequences of one length, and the files that hold them.

A sequence is a row of `SEQUENCES`: its tokens; the number of the text that each is of (-1: it is
padding); whether it is output; and how many tokens of it, over all its texts, have one before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from contamination.injection.finetuning.config import PADDED, FinetuningConfig
from contamination.injection.finetuning.prompts import Encoded, Prompted, encode
from contamination.injection.token_stream import Tokenizer
from contamination.injection.verification import Proof

NO_TEXT = -1
OPEN_SEQUENCES = 64  # in which a text may still find room
BATCH = 1024  # sequences written at a time


def lay_out(lengths: Sequence[int], width: int, layout: str) -> list[list[int]]:
    """The texts of each sequence, by their place in `lengths`.

    Packed, a text goes into the first of the latest sequences that has room: texts are never cut.

    Args:
        lengths: tokens of each text, `width` at most.
        width: tokens of a sequence.
        layout: packed or padded.
    """
    if layout == PADDED:
        return [[text] for text in range(len(lengths))]
    sequences: list[list[int]] = []
    room: list[int] = []
    for text, length in enumerate(lengths):
        latest = range(max(0, len(room) - OPEN_SEQUENCES), len(room))
        place = next((n for n in latest if room[n] >= length), len(room))
        if place == len(room):
            sequences.append([])
            room.append(width)
        sequences[place].append(text)
        room[place] -= length
    return sequences


def places(sequences: Sequence[Sequence[int]], texts: Sequence[Encoded]) -> pd.DataFrame:
    """Where each text's own tokens stand: sequence, token_start and token_end, a row a text."""
    rows: dict[int, tuple[int, int, int]] = {}
    for number, members in enumerate(sequences):
        start = 0
        for text in members:
            own = texts[text]
            rows[text] = (number, start + own.first, start + own.stop)
            start += len(own.ids)
    columns = ["sequence", "token_start", "token_end"]
    return pd.DataFrame([rows[text] for text in range(len(texts))], columns=columns, dtype="int64")


def write(
    path: Path,
    sequences: Sequence[Sequence[int]],
    texts: Sequence[Encoded],
    width: int,
    padding: int,
) -> None:
    """Write the sequences as an Arrow stream file."""
    schema = _schema(width)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, len(sequences), BATCH):
            rows = [_row(s, texts, width, padding) for s in sequences[start : start + BATCH]]
            writer.write_batch(_batch(rows, schema))


def _schema(width: int) -> Any:
    tokens = [("input_ids", pa.int32()), ("text", pa.int32()), ("output", pa.int8())]
    counts = ["texts", "targets", "output_targets"]
    wide = [(name, pa.list_(kind, width)) for name, kind in tokens]
    return pa.schema([*wide, *((name, pa.int32()) for name in counts)])


def _row(
    members: Sequence[int], texts: Sequence[Encoded], width: int, padding: int
) -> dict[str, Any]:
    own = [texts[text] for text in members]
    left = width - sum(len(text.ids) for text in own)
    numbers = [np.full(len(texts[text].ids), text, np.int32) for text in members]
    return {
        "input_ids": np.concatenate([*(t.ids for t in own), np.full(left, padding, np.int32)]),
        "text": np.concatenate([*numbers, np.full(left, NO_TEXT, np.int32)]),
        "output": np.concatenate([*(t.output for t in own), np.zeros(left, bool)]).astype(np.int8),
        "texts": len(own),
        "targets": sum(text.targets for text in own),
        "output_targets": sum(text.output_targets for text in own),
    }


def _batch(rows: Sequence[dict[str, Any]], schema: Any) -> Any:
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.array(np.concatenate(values))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, field.type.list_size))
        else:
            columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=schema)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The sequences of a file, in order: arrays of shape (sequence_tokens,) and counts."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            columns = {name: _values(batch.column(name)) for name in batch.schema.names}
            for row in range(batch.num_rows):
                yield {name: values[row] for name, values in columns.items()}


def _values(column: Any) -> Any:
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return column.to_numpy()


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
