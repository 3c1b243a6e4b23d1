"""JSONL: a book a line where lines have a `title`, else one book whose parts the lines are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_jsonl(path: Path) -> Iterator[tuple[str, str]]:
    """Each line's `title` and `text`; or the file's name and all lines' `text`, one below another.

    Raises:
        ValueError: there is no line; one is no object with a `text`, or its title is no string; or
            some lines have a title and others none.
    """
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    rows = [_row(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise ValueError("it is empty")
    titled = ["title" in row for row in rows]
    if all(titled):
        yield from ((row["title"], row["text"]) for row in rows)
    elif any(titled):
        raise ValueError("some lines have a `title`, others none: give all lines one, or none")
    else:
        yield path.stem, "\n".join(row["text"] for row in rows)


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
