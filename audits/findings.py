"""What an audit finds: sentences, tables and charts, before they become files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table:
    """A table with all its figures, and as it is shown.

    Attributes:
        name: that of its files, `<name>.parquet` and `<name>.csv`.
        title: what stands above it.
        rows: the figures in full.
        header: the shown columns' names.
        lines: a text for each of them; as many lines as there are rows, or fewer.
        note: how it is read, or nothing.
    """

    name: str
    title: str
    rows: pd.DataFrame
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart as an inline SVG (`drawing.svg`), with its title and what it shows."""

    name: str
    title: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Findings:
    """All that an audit says.

    Attributes:
        title: what was audited.
        conclusions: what may be concluded, a plain sentence or paragraph each, the answer first.
        warnings: why less may be concluded than it seems; shown in red, before all figures.
        tables: the most important first.
        charts: they stand above the tables.
        limits: what the audit can't prove.
        facts: what it was made of, by name.
        counts: worth recording in the manifest.
        files: names of further files that it wrote into its folder.
    """

    title: str
    conclusions: Sequence[str]
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    limits: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()


INK, GREY, LINE = "#1a1a1a", "#595959", "#e2e2e2"
MEMBER, NONMEMBER, MARKED = "#b35806", "#542788", "#0060a0"
"""Members, non-members, and what is asked about."""
SERIES = (MARKED, "#00735a", "#a8256f", "#6b5f00")
"""Lines that stand for none of these, told apart by their dashes too."""
VARIABLES = {
    INK: "--ink",
    GREY: "--grey",
    LINE: "--line",
    MEMBER: "--member",
    NONMEMBER: "--nonmember",
    MARKED: "--accent",
    SERIES[1]: "--second",
    SERIES[2]: "--third",
    SERIES[3]: "--fourth",
}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a title may hold dollars
    "svg.hashsalt": "contamination-testbed",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "legend.frameon": False,
}


@contextmanager
def drawn(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of so many inches with its axes, in the style of the page.

    It is made without pyplot, so that nothing global stays changed and no display is needed. The
    page's reader has fonts for letters that matplotlib has none for.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        yield figure, axes


def svg(figure: Figure, label: str) -> str:
    """The figure as an element of a page; call it within `drawn`.

    `label` is what a screen reader says of it.
    """
    from html import escape

    with StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        found = file.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    for colour, name in VARIABLES.items():
        found = re.sub(colour, f"var({name})", found, flags=re.IGNORECASE)
    found = re.sub(r"font: (\S+) [^;\"]+", r"font-size: \1; font-family: inherit", found)
    return found.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).rstrip()
