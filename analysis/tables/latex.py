"""A table in LaTeX, with the rules of the package booktabs, which is all that it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
