"""Tables of reports, and their Markdown, LaTeX (for papers) and CSV (with the underlying data)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from contamination.core.table_files import write_csv
from contamination.core.terminal import fit_columns, terminal_width

LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
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
"""Replacements for characters that LaTeX treats as commands or that its default fonts lack."""


def escape_latex(text: str) -> str:
    """Returns the text escaped for LaTeX; Markdown's **bold** becomes bold."""
    escaped_text = "".join(LATEX_CHARACTERS.get(character, character) for character in text)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped_text)


def latex_table(
    name: str,
    title: str,
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    condition: str = "",
) -> str:
    """Returns a floating LaTeX table; the condition is added to its caption and label.

    Args:
        name: the table's label.
        title: its caption.
        header: the columns' names.
        lines: the texts of each row.
        condition: the condition or cell that the table describes, or "".
    """
    label = "-".join(part for part in (condition, name) if part)
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", label)
    caption = f"{title} ({condition})" if condition else title
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            _latex_row(header),
            r"\midrule",
            *map(_latex_row, lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _latex_row(texts: Sequence[str]) -> str:
    # A row that begins with a bracket would be read as an argument of the `\\` before it.
    return " & ".join(re.sub(r"^\[", "{[}", escape_latex(text)) for text in texts) + r" \\"


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with padded columns, which is also readable as plain text."""
    head, *rows = [[escape_markdown(text) for text in row] for row in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    padded_rows = [
        [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        for row in (head, rule, *rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded_rows)


MARKDOWN_ESCAPES: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]] = (
    (r"&(?=#?\w+;)", "&amp;"),  # an entity
    (r"\\(?=[!-/:-@\[-`{-~])", r"\\\\"),  # a backslash that would escape what follows
    (r"<(?=[A-Za-z/!?])", "&lt;"),  # a tag, or a link in angle brackets
    (r"[`|~$]", r"\\\g<0>"),  # code, a table's column, struck text, a formula
    (r"(?<!\*)\*(?!\*)(?:(?<=\S\*)|(?=\S))|\*{3,}", lambda run: r"\*" * len(run[0])),
    (r"(?<![^\W_])_+|_+(?![^\W_])", lambda run: r"\_" * len(run[0])),
    (r"\](?=[(\[])", r"\\]"),  # a link or an image
    (r"^\[(?=[^\]]*\](?:[: ]|$))", r"\\["),  # the target of a link, or a box to tick
    (r"(?<=\w):(?=//)|(?<=www)\.", r"\\\g<0>"),  # an address, which is a link by itself
    (r"(?<=[\w.+-])@(?=[\w-])", "<!-- -->@"),  # GitHub links `a\@b.c`, too
    (r"^(?:#{1,6}(?= |$)|>|[-+*](?= |$)|[-=]{2,})", r"\\\g<0>"),  # a heading, quote, list, rule
    (r"^(\d{1,9})(?=[.)](?: |$))", r"\1\\"),  # a numbered list
)  # fmt: skip
"""Pattern → replacement, in order: what Markdown would not show as it is written."""


def escape_markdown(text: str) -> str:
    """Returns the text on one line, for a paragraph, heading, list or table of Markdown.

    It is shown as it is written, except for **bold**, which the reports' sentences have: no part
    becomes a link, not even an address, as GitHub makes of it. GitHub's own references (@name, #12)
    are not escaped.
    """
    text = " ".join(text.split())
    for pattern, replacement in MARKDOWN_ESCAPES:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return text


NO_VALUE = "–"  # the text of a cell without a value
ESTIMATE_COLUMNS = ("value", "ci_low", "ci_high", "needs")
"""The columns of results that are the arguments of `format_estimate`, in order."""


@dataclass(frozen=True)
class Table:
    """A table as text, with the data that it shows.

    Attributes:
        name: the name of its files, without the suffix.
        title: shown above it.
        header: the columns' names.
        lines: the texts of each row.
        data: the unrounded results; they may have more columns and rows than the table.
        least: names of the columns that a narrow terminal leaves out first.
        note: how to read the table, shown below it, or "".
    """

    name: str
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    data: pd.DataFrame
    least: Sequence[str] = ()
    note: str = ""

    def terminal_text(self) -> str:
        """Returns the columns that fit the terminal, and a line that names the others.

        If standard output is not a terminal, returns Markdown.
        """
        if terminal_width() is None:
            return self.markdown()
        return "\n".join(fit_columns(self.header, self.lines, least=self.least).lines())

    def markdown(self) -> str:
        """Returns the table in Markdown, without its title and note."""
        return markdown_table(self.header, self.lines)

    def latex(self, condition: str = "") -> str:
        """Returns the table in LaTeX; the condition is added to its caption and label."""
        return latex_table(self.name, self.title, self.header, self.lines, condition)


def write_tables(folder: Path, tables: Mapping[str, Sequence[Table]]) -> list[Path]:
    """Writes each table as `<name>.md`, `<name>.tex` and `<name>.csv`, and returns the paths.

    Args:
        folder: created if it does not exist.
        tables: condition or cell → its tables; "" for tables over all of them. Tables with the
            same name share their files: Markdown and LaTeX have one table per condition, and the
            CSV has all rows.
    """
    folder.mkdir(exist_ok=True)
    tables_by_name: dict[str, dict[str, Table]] = {}
    for condition, condition_tables in tables.items():
        for table in condition_tables:
            tables_by_name.setdefault(table.name, {})[condition] = table
    written: list[Path] = []
    for name, by_condition in tables_by_name.items():
        paths = {suffix: folder / f"{name}.{suffix}" for suffix in ("md", "csv", "tex")}
        sections = (
            _markdown_section(condition, table) for condition, table in by_condition.items()
        )
        paths["md"].write_text("\n".join(sections))
        write_csv(paths["csv"], pd.concat([table.data for table in by_condition.values()]))
        latex_tables = (table.latex(condition) for condition, table in by_condition.items())
        paths["tex"].write_text("\n\n".join(latex_tables) + "\n")
        written += paths.values()
    return written


def _markdown_section(condition: str, table: Table) -> str:
    heading = f"## {escape_markdown(condition)}\n\n" if condition else ""
    return f"{heading}{escape_markdown(table.title)}\n\n{table.markdown()}\n"


def format_estimate(value: float, low: float, high: float, needs: str) -> str:
    """Returns an estimate with its interval, such as "0.91 [0.88, 0.93]", or what it needs.

    Args:
        value: the estimate.
        low: the lower end of its interval.
        high: the upper end.
        needs: what is missing for an estimate, such as "≥ 20 non-members"; "" if nothing is.
    """
    return f"needs {needs}" if needs else format_interval(value, low, high)


def format_interval(value: float, low: float, high: float) -> str:
    """Returns a value with its interval, such as "0.91 [0.88, 0.93]"."""
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"
