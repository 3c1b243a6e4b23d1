"""Tables on a terminal: the columns that fit its width, and a line that names the others."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

BETWEEN = 2
"""Blanks between two columns."""


@dataclass(frozen=True)
class Fitted:
    """The part of a table that fits; `note` names the columns left out, and is empty where none."""

    header: list[str]
    rows: list[list[str]]
    note: str

    def lines(self, left: int = 99) -> list[str]:
        """The table as text, its note below; columns from number `left` on are aligned right."""
        table = [self.header, *self.rows]
        widths = _widths(table)
        pad = [str.ljust if i < left else str.rjust for i in range(len(widths))]
        texts = [[p(t, w) for p, t, w in zip(pad, row, widths, strict=True)] for row in table]
        return [
            *((" " * BETWEEN).join(row).rstrip() for row in texts),
            *[self.note] * bool(self.note),
        ]


def columns() -> int | None:
    """Characters in a line of the terminal; None: standard output is none, and takes any width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    *,
    least: Sequence[str] = (),
    between: int = BETWEEN,
    edges: int = 0,
) -> Fitted:
    """The columns that fit into a line; the first column always stays.

    Args:
        header: the columns' names.
        rows: a text for each column.
        width: characters in a line; None: the terminal's (see `columns`).
        least: names of columns, in the order in which they are left out; after them the last ones.
        between: characters between two columns.
        edges: characters before the first and after the last column, such as 4 in Markdown.
    """
    width = width or columns()
    table = [list(header), *map(list, rows)]
    widths = _widths(table)
    named = [header.index(name) for name in least if name in header[1:]]
    order = [*named, *(i for i in range(len(header) - 1, 0, -1) if i not in named)]
    kept = list(range(len(header)))
    while width and order and sum(widths[i] + between for i in kept) + edges - between > width:
        kept.remove(order.pop(0))
    gone = [name for i, name in enumerate(header) if i not in kept]
    head, *lines = [[row[i] for i in kept] for row in table]
    return Fitted(head, lines, _note(gone, width))


def duration(seconds: float) -> str:
    """Such as 12 s, 40 min or 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _note(gone: Sequence[str], width: int | None) -> str:
    if not gone:
        return ""
    return f"(not in {width} columns: {', '.join(gone)}; `| cat` shows all)"
