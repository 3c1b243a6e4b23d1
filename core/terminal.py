"""Text on a terminal: tables that fit its width, and text from elsewhere made harmless."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm.utils import disp_len

UP = "\x1b[A"
CONTROL = re.compile(
    r"\x1b\[A|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What moves the cursor, colours, rings, reorders or ends a line, except line feed and tab."""
REDRAWING = ("\r", UP)
"""What progress bars write to redraw their lines."""
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
        sides = [i >= left for i in range(len(widths))]
        texts = [list(map(_padded, row, widths, sides)) for row in table]
        return [
            *((" " * BETWEEN).join(row).rstrip() for row in texts),
            *[self.note] * bool(self.note),
        ]


def escaped(text: str, allowed: Sequence[str] = ()) -> str:
    r"""The text with each control character as Python writes it in a string, such as \x1b.

    Without them it can't move the cursor, set the terminal's title or turn its own direction.

    Args:
        text: perhaps from a server, a file or a model. Line feeds and tabs stay.
        allowed: controls that stay as well.
    """

    def visible(match: re.Match[str]) -> str:
        control = match[0]
        return control if control in allowed else control.encode("unicode_escape").decode()

    return CONTROL.sub(visible, text)


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
    table = [[escaped(cell) for cell in row] for row in (header, *rows)]
    widths = _widths(table)
    named = [header.index(name) for name in least if name in header[1:]]
    order = [*named, *(i for i in range(len(header) - 1, 0, -1) if i not in named)]
    kept = list(range(len(header)))
    while width and order and sum(widths[i] + between for i in kept) + edges - between > width:
        kept.remove(order.pop(0))
    gone = [name for i, name in enumerate(header) if i not in kept]
    head, *lines = [[row[i] for i in kept] for row in table]
    return Fitted(head, lines, _note(gone, width))


def beside(names: Sequence[str], texts: Sequence[str], width: int | None = None) -> list[str]:
    """Each name with its text beside it, wrapped to the width; below it where little is left.

    Args:
        names: of which each is kept whole.
        texts: as many.
        width: characters in a line; None: the terminal's (see `columns`).
    """
    width = width or columns()
    indent = 2 * BETWEEN + max(map(disp_len, names))
    if width and width < 2 * indent:
        indent = 2 * BETWEEN
    lines: list[str] = []
    for name, text in zip(names, texts, strict=True):
        first = f"{' ' * BETWEEN}{_padded(name, indent - 2 * BETWEEN)}{' ' * BETWEEN}"
        if text and disp_len(first) > indent:
            lines, first = [*lines, first.rstrip()], " " * indent
        own, *more = wrapped(text, width and width - indent).split("\n")
        lines += [f"{first}{own}".rstrip(), *(" " * indent + line for line in more)]
    return lines


def wrapped(text: str, width: int | None = None) -> str:
    """The text in lines of the width (None: the terminal's), cut between words, not in a path."""
    width = width or columns() or sys.maxsize
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def duration(seconds: float) -> str:
    """Such as 12 s, 40 min or 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def about(seconds: float) -> str:
    """The same without false precision, such as <1 min, ~8 min, ~35 min or ~3 h."""
    minutes = seconds / 60
    if minutes < 1:
        return "<1 min"
    if minutes < 90:
        return f"~{round(minutes) if minutes < 10 else 5 * round(minutes / 5)} min"
    return f"~{round(minutes / 60)} h"


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(disp_len, column)) for column in zip(*table, strict=True)]


def _padded(text: str, width: int, right: bool = False) -> str:
    blanks = " " * (width - disp_len(text))
    return blanks + text if right else text + blanks


def _note(gone: Sequence[str], width: int | None) -> str:
    if not gone:
        return ""
    return f"(not in {width} columns: {', '.join(gone)}; `| cat` shows all)"
