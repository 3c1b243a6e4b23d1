"""Text for terminals: tables that fit, durations, counts with nouns, escaped control characters."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm.utils import disp_len

CURSOR_UP = "\x1b[A"
CONTROL = re.compile(
    r"\x1b\[A|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters and escape sequences, except line feed and tab."""
REDRAWING = ("\r", CURSOR_UP)  # the control characters with which progress bars redraw their lines
COLUMN_GAP = 2  # spaces between two columns


@dataclass(frozen=True)
class FittedTable:
    """The columns of a table that fit into a line; `note` names the omitted columns."""

    header: list[str]
    rows: list[list[str]]
    note: str

    def lines(self, n_left_aligned: int = 99) -> list[str]:
        """Returns the table and the note; the first `n_left_aligned` columns are left-aligned."""
        table = [self.header, *self.rows]
        widths = _column_widths(table)
        align_right = [i >= n_left_aligned for i in range(len(widths))]
        padded_rows = [list(map(_pad, row, widths, align_right)) for row in table]
        return [
            *((" " * COLUMN_GAP).join(row).rstrip() for row in padded_rows),
            *[self.note] * bool(self.note),
        ]


def escape_controls(text: str, allowed: Sequence[str] = ()) -> str:
    r"""Returns the text with control characters written as in a Python string, such as \x1b.

    The text then can't move the cursor, set the terminal's title or change the text direction.

    Args:
        text: text from, for example, a server, a file or a model. Line feeds and tabs are kept.
        allowed: further control characters to keep.
    """

    def visible(match: re.Match[str]) -> str:
        control = match[0]
        return control if control in allowed else control.encode("unicode_escape").decode()

    return CONTROL.sub(visible, text)


def terminal_width() -> int | None:
    """Returns the terminal's width in characters, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    *,
    least: Sequence[str] = (),
    between: int = COLUMN_GAP,
    edges: int = 0,
) -> FittedTable:
    """Returns the columns of a table that fit into a line; the first column is always included.

    Args:
        header: the columns' names.
        rows: one text per column.
        width: characters in a line; None: the terminal's (see `terminal_width`).
        least: names of the columns to omit first, in this order; then the last columns are omitted.
        between: characters between two columns.
        edges: characters before the first and after the last column, such as 4 in Markdown.
    """
    width = width or terminal_width()
    table = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    widths = _column_widths(table)
    first_to_drop = [header.index(name) for name in least if name in header[1:]]
    last_columns = [i for i in range(len(header) - 1, 0, -1) if i not in first_to_drop]
    to_drop = [*first_to_drop, *last_columns]
    included = list(range(len(header)))
    room = width + between - edges if width else sys.maxsize
    while to_drop and sum(widths[i] + between for i in included) > room:
        included.remove(to_drop.pop(0))
    omitted = [name for i, name in enumerate(header) if i not in included]
    fitted_header, *fitted_rows = [[row[i] for i in included] for row in table]
    return FittedTable(fitted_header, fitted_rows, _omitted_columns_note(omitted, width))


def format_descriptions(
    names: Sequence[str], texts: Sequence[str], width: int | None = None
) -> list[str]:
    """Returns lines with each name and its text beside it, wrapped to the width.

    If there is little room beside the names, the texts begin below them.

    Args:
        names: the names, which are not wrapped.
        texts: one text per name.
        width: characters in a line; None: the terminal's (see `terminal_width`).
    """
    width = width or terminal_width()
    indent = 2 * COLUMN_GAP + max(map(disp_len, names))
    if width and width < 2 * indent:
        indent = 2 * COLUMN_GAP
    lines: list[str] = []
    for name, text in zip(names, texts, strict=True):
        first = f"{' ' * COLUMN_GAP}{_pad(name, indent - 2 * COLUMN_GAP)}{' ' * COLUMN_GAP}"
        if text and disp_len(first) > indent:
            lines, first = [*lines, first.rstrip()], " " * indent
        text_line, *more_lines = wrap_text(text, width and width - indent).split("\n")
        lines += [f"{first}{text_line}".rstrip(), *(" " * indent + line for line in more_lines)]
    return lines


def wrap_text(text: str, width: int | None = None) -> str:
    """Returns the text in lines of the width (None: the terminal's), broken only at spaces."""
    width = width or terminal_width() or sys.maxsize
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 text", "2,000 texts" or "3 copies"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def format_duration(seconds: float) -> str:
    """Returns a duration such as 12 s, 40 min or 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def format_approximate_duration(seconds: float) -> str:
    """Returns a rounded duration such as <1 min, ~8 min, ~35 min or ~3 h."""
    minutes = seconds / 60
    if minutes < 1:
        return "<1 min"
    if minutes < 90:
        return f"~{round(minutes) if minutes < 10 else 5 * round(minutes / 5)} min"
    return f"~{round(minutes / 60)} h"


def _column_widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(disp_len, column)) for column in zip(*table, strict=True)]


def _pad(text: str, width: int, align_right: bool = False) -> str:
    padding = " " * (width - disp_len(text))
    return padding + text if align_right else text + padding


def _omitted_columns_note(omitted_names: Sequence[str], width: int | None) -> str:
    if not omitted_names:
        return ""
    return f"(not in {width} columns: {', '.join(omitted_names)}; `| cat` shows all)"
