"""A plain text file: one book, called as the file is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def read_text(path: Path) -> Iterator[tuple[str, str]]:
    """The file's text, of UTF-8.

    Raises:
        ValueError: it is none.
    """
    yield path.stem, path.read_bytes().decode("utf-8-sig")
