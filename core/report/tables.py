"""What a table is, and its files: Markdown, LaTeX (for a paper) and CSV (the rows behind it)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from contamination.core.table_files import write_csv
from contamination.core.terminal import columns, fit

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": "$-$",
    "\n": " ",
    "\t": " ",
}
"""What LaTeX would take for a command, or lacks in its default fonts."""


def escape(text: str) -> str:
    """The text as LaTeX prints it; **bold** of Markdown stays bold."""
    escaped = "".join(SPECIAL.get(mark, mark) for mark in text)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)


def latex(
    name: str, title: str, header: Sequence[str], lines: Sequence[Sequence[str]], place: str = ""
) -> str:
    """A floating table: `title` is its caption and `name`, after `place`, its label."""
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(part for part in (place, name) if part))
    caption = f"{title} ({place})" if place else title
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(caption)}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            _row(header),
            r"\midrule",
            *map(_row, lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _row(texts: Sequence[str]) -> str:
    # A row that begins with a bracket would be read as an argument of the `\\` before it.
    return " & ".join(re.sub(r"^\[", "{[}", escape(text)) for text in texts) + r" \\"


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


NOTHING = "–"
"""Stands where there was nothing to measure."""
ESTIMATE = ("value", "ci_low", "ci_high", "needs")
"""The columns that `estimate_text` takes."""


@dataclass(frozen=True)
class Table:
    """One cell's table: text as shown, and the rows of the results that it shows."""

    name: str
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    data: pd.DataFrame
    least: Sequence[str] = ()
    """Columns that a narrow terminal leaves out first."""

    def on_terminal(self) -> str:
        """The columns that fit the terminal, with a line that names the others; else Markdown."""
        if columns() is None:
            return self.markdown()
        return "\n".join(fit(self.header, self.lines, least=self.least).lines())

    def markdown(self) -> str:
        """The table with padded columns, so that it reads well as plain text too."""
        return markdown_table(self.header, self.lines)

    def latex(self, place: str = "") -> str:
        """The table for a paper; `place` (a condition) goes into its caption and its label."""
        return latex(self.name, self.title, self.header, self.lines, place)


def write_tables(folder: Path, tables: Mapping[str, Sequence[Table]]) -> list[Path]:
    """`<table>.md` and `.tex` with a part a place, and `.csv` with the tidy rows of all places.

    A place is a cell or a condition; "" holds the tables over all of them.
    """
    folder.mkdir(exist_ok=True)
    by_name: dict[str, dict[str, Table]] = {}
    for place, some in tables.items():
        for table in some:
            by_name.setdefault(table.name, {})[place] = table
    written: list[Path] = []
    for name, places in by_name.items():
        paths = {suffix: folder / f"{name}.{suffix}" for suffix in ("md", "csv", "tex")}
        paths["md"].write_text("\n".join(_section(*part) for part in places.items()))
        data = pd.concat([table.data for table in places.values()])
        write_csv(paths["csv"], data)
        paths["tex"].write_text("\n\n".join(t.latex(p) for p, t in places.items()) + "\n")
        written += paths.values()
    return written


def estimate_text(value: float, low: float, high: float, needs: str) -> str:
    """An estimate: 0.91 [0.88, 0.93], or what the examples lack to carry it."""
    return f"needs {needs}" if needs else with_interval(value, low, high)


def with_interval(value: float, low: float, high: float) -> str:
    """0.91 [0.88, 0.93]."""
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _section(place: str, table: Table) -> str:
    heading = f"## {place}\n\n" if place else ""
    return f"{heading}{table.title}\n\n{table.markdown()}\n"
