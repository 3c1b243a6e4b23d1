"""Megatron-LM, GPT-NeoX and NeMo: `tokens.bin` and `tokens.idx` (an `IndexedDataset`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from injection.export.base import Counts
from injection.export.tokens import TokenFormat, starts

CODES = {"uint16": 8, "int32": 4}


@dataclass(frozen=True)
class Megatron(TokenFormat):
    """The index has the sequences' lengths and byte offsets, then the ends of the documents."""

    DATA, INDEX, DTYPES = "tokens.bin", "tokens.idx", tuple(CODES)
    USAGE = "--data-path {folder}/tokens --seq-length {sequence_tokens} --split 100,0,0"

    def index(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        count, width = counts["sequences"], counts["sequence_tokens"]
        yield struct.pack("<9sQBQQ", b"MMIDIDX", 1, CODES[counts["dtype"]], count, count + 1)
        for part in starts(counts):
            yield np.full(len(part), width, "<i4").tobytes()
        for part in starts(counts):
            yield (part * counts["bytes_a_token"]).astype("<i8").tobytes()
        yield bytes(8)  # the first document begins with sequence 0
        for part in starts(counts):
            yield (part // width + 1).astype("<i8").tobytes()
