"""The content of files, also of compressed files and of logs that are cut into blocks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

BLOCK, HEADER = 2**15, 7
"""Bytes of a block of wandb's log (LevelDB's format), and of the header of each piece of it."""


def anywhere(words: str, folder: Path) -> list[Path]:
    """The files that contain the words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(words.encode() in content for content in contents(path))]


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of the file, and its decoded content."""
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
    """The log's records without the headers of their pieces: checksum, length (2 bytes), kind."""
    records = b""
    for start in range(0, len(log), BLOCK):
        block = log[start : start + BLOCK]
        offset = HEADER if start == 0 else 0  # the file has a header of its own
        while offset + HEADER <= len(block):
            length = int.from_bytes(block[offset + 4 : offset + 6], "little")
            records += block[offset + HEADER : offset + HEADER + length]
            offset += HEADER + length
    return records
