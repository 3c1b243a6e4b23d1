"""Formats of books: a file each, which reads a file as the books in it. A new one is listed here.

A reader takes a path and limits and gives (title, text) of each book. It raises a ValueError that
says what is wrong with the file, or which limit it exceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from detection.audits.books.formats.epub import read_epub
from detection.audits.books.formats.jsonl import read_jsonl
from detection.audits.books.formats.limits import Limits
from detection.audits.books.formats.text import read_text

Reader = Callable[[Path, Limits], Iterator[tuple[str, str]]]
READERS: Mapping[str, Reader] = {".txt": read_text, ".epub": read_epub, ".jsonl": read_jsonl}
"""By the file's suffix."""
