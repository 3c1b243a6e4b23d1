"""A plain text file: one book, called as the file is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from detection.audits.books.formats.limits import LIMITS, Limits


def read_text(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """The file's text, of UTF-8.

    Raises:
        ValueError: it is none, or larger than the limit.
    """
    limits.check("max_book_bytes", "it", path.stat().st_size)
    yield path.stem, path.read_bytes().decode("utf-8-sig")
