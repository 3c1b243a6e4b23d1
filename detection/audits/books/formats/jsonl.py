"""JSONL: a book a line where lines have a `title`, else one book whose parts the lines are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from detection.audits.books.formats.limits import LIMITS, Limits


def read_jsonl(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[str, str]]:
    """Each line's `title` and `text`; or the file's name and all lines' `text`, one below another.

    Raises:
        ValueError: there is no line; one is no object with a `text`, or its title is no string; or
            some lines have a title and others none; or a line is larger than the limit.
    """
    rows = [_row(number, line) for number, line in _lines(path, limits) if line.strip()]
    if not rows:
        raise ValueError("it is empty")
    titled = ["title" in row for row in rows]
    if all(titled):
        yield from ((row["title"], row["text"]) for row in rows)
    elif any(titled):
        raise ValueError("some lines have a `title`, others none: give all lines one, or none")
    else:
        yield path.stem, "\n".join(row["text"] for row in rows)


def _lines(path: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1."""
    with path.open("rb") as stream:
        read = partial(stream.readline, limits.max_book_bytes + 1)
        for number, line in enumerate(iter(read, b""), 1):
            limits.check("max_book_bytes", f"line {number}", len(line))
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")


def _row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError(f"line {number} is no object with a string as its `text`")
    if not isinstance(row.get("title", ""), str):
        raise ValueError(f"line {number} has {row['title']!r} as its `title`: give a string")
    return row
