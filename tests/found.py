"""What stands in files, also in those that are compressed or cut into blocks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

BLOCK, HEADER = 2**15, 7
"""Bytes of a block of wandb's log (LevelDB's format), and what stands before each piece of it."""


def anywhere(words: str, folder: Path) -> list[Path]:
    """The files that hold the words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(words.encode() in each for each in contents(path))]


def contents(path: Path) -> Iterator[bytes]:
    """The file as it is, and as it reads."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        yield f"{table.schema} {table.to_pylist()}".encode()
    elif path.suffix == ".wandb":
        yield joined(raw)
    elif raw[:2] == b"\x1f\x8b":
        yield gzip.decompress(raw)


def joined(log: bytes) -> bytes:
    """The log's records without the headers that cut them: checksum, length (2 bytes), kind."""
    found = b""
    for start in range(0, len(log), BLOCK):
        block = log[start : start + BLOCK]
        place = HEADER if start == 0 else 0  # the file begins with one of its own
        while place + HEADER <= len(block):
            length = int.from_bytes(block[place + 4 : place + 6], "little")
            found += block[place + HEADER : place + HEADER + length]
            place += HEADER + length
    return found
