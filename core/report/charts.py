"""Charts of pages: inline SVG, whose colours follow the page's theme, and SVG and PDF files."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GREY, LINE = "#1a1a1a", "#595959", "#e2e2e2"
MEMBER, NONMEMBER, ACCENT = "#b35806", "#542788", "#0060a0"
"""The colours of members, of non-members, and of the emphasised series."""
SERIES = (ACCENT, "#00735a", "#a8256f", "#6b5f00")
"""The colours of lines, which also differ in their dashes."""
CSS_VARIABLES = {
    INK: "--ink",
    GREY: "--grey",
    LINE: "--line",
    MEMBER: "--member",
    NONMEMBER: "--nonmember",
    ACCENT: "--accent",
    SERIES[1]: "--second",
    SERIES[2]: "--third",
    SERIES[3]: "--fourth",
}
"""The CSS variable of each colour in page.css, whose value depends on the theme."""
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # text stays text
    "text.parse_math": False,  # titles may contain dollar signs
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


@dataclass(frozen=True)
class InlineChart:
    """A chart of a page, which is also stored as files.

    Attributes:
        name: its identifier on the page and, without an ending, the name of its files.
        title: shown above it.
        figure: drawn in `page_figure`.
        label: the description for screen readers.
        caption: shown below it.
    """

    name: str
    title: str
    figure: Figure
    label: str
    caption: str

    @cached_property
    def svg(self) -> str:
        """The SVG element of the page, with the page's colours."""
        svg = self._svg()
        for colour, variable in CSS_VARIABLES.items():
            svg = re.sub(colour, f"var({variable})", svg, flags=re.IGNORECASE)
        return self._with_label(svg)

    def save(self, path: Path) -> None:
        """Writes a file, `.svg` or `.pdf`: the same bytes every time."""
        if path.suffix == ".svg":
            with_background = r'\1<rect width="100%" height="100%" fill="white"/>'
            svg = self._with_label(re.sub("(<svg[^>]*>)", with_background, self._svg(), count=1))
            path.write_text(svg + "\n", encoding="utf-8")
            return
        metadata = {"CreationDate": None, "Creator": None, "Producer": None}
        with _page_style():
            self.figure.savefig(path, metadata=metadata)

    def _svg(self) -> str:
        with StringIO() as file, _page_style():
            self.figure.savefig(file, format="svg")
            svg = file.getvalue()
        svg = svg[svg.index("<svg") :].rstrip()
        return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)

    def _with_label(self, svg: str) -> str:
        label = html.escape(self.label)
        return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def chart_files(charts: Sequence[InlineChart]) -> dict[str, InlineChart]:
    """Returns the chart of each file's name without its ending; equal names get a number."""
    names: dict[str, InlineChart] = {}
    for chart in charts:
        numbers = count(2)
        name = chart.name
        while name in names:
            name = f"{chart.name}-{next(numbers)}"
        names[name] = chart
    return names


@contextmanager
def page_figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yields a figure in the style of the page, and its axes; the size is in inches.

    The figure is created without pyplot, so no global state changes and no display is needed.
    Missing glyphs cause no warning, since the browser draws the text with its own fonts.
    """
    from matplotlib.figure import Figure

    with _page_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        yield figure, axes
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # each rendering would move the axes a little further


@contextmanager
def _page_style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from font")
        yield
