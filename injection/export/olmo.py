"""OLMo-core: `tokens.npy`, which has no header in spite of its name, and `tokens.csv.gz`."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from injection.export.base import Counts
from injection.export.tokens import TokenFormat, starts
from injection.parts import place_in_parts


@dataclass(frozen=True)
class Olmo(TokenFormat):
    """The index has a line a document: start, end, id, source, location (as Dolma's toolkit)."""

    DATA, INDEX = "tokens.npy", "tokens.csv.gz"
    DTYPES = ("uint8", "uint16", "uint32")  # the first that fits, as NumpyDatasetConfig chooses
    USAGE = (
        "NumpyFSLDatasetConfig(paths=['{folder}/tokens.npy'], sequence_length={sequence_tokens}, …)"
    )
    opened = staticmethod(partial(gzip.GzipFile, mtime=0))

    def index(self, counts: Counts) -> Iterator[bytes]:
        """See `TokenFormat`."""
        width = counts["sequence_tokens"]
        for part in starts(counts):
            numbers = (part // width).tolist()
            places = ((n, *place_in_parts(n, width)) for n in numbers)
            lines = (f"{n * width},{(n + 1) * width},{n},{name},{m}\n" for n, name, m in places)
            yield "".join(lines).encode()
