"""Texts in sequences of one length, and the files that hold them.

A sequence is a row of `SEQUENCES`: its tokens; the number of the text that each is of (-1: it is
padding); whether it is output; and how many tokens of it, over all its texts, have one before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from injection.finetuning.config import PADDED
from injection.finetuning.encode import Encoded

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
