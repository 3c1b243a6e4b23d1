"""A table in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The table with padded columns, so that it reads well as plain text too."""
    head, *rows = [[escaped(text) for text in row] for row in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    every = [head, rule, *rows]
    padded = [[text.ljust(w) for text, w in zip(row, widths, strict=True)] for row in every]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def escaped(text: str) -> str:
    """A user's name in one cell of a Markdown table: no mark-up of its own."""
    return re.sub("<(?=[A-Za-z/!])", "&lt;", " ".join(text.split()).replace("|", r"\|"))
