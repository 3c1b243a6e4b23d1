"""Charts as inline SVG, whose colours follow the light or dark theme of the page."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
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
    """A chart as an SVG element, as returned by `svg_element`.

    Attributes:
        name: its identifier on the page.
        title: shown above it.
        svg: the element.
        caption: shown below it.
    """

    name: str
    title: str
    svg: str
    caption: str


@contextmanager
def page_figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yields a figure in the style of the page, and its axes; the size is in inches.

    The figure is created without pyplot, so no global state changes and no display is needed.
    Missing glyphs cause no warning, since the browser draws the text with its own fonts.
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


def svg_element(figure: Figure, label: str) -> str:
    """Returns a figure of `page_figure` as an SVG element with the page's colours and font.

    Args:
        figure: the figure.
        label: the description for screen readers.
    """
    with StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in CSS_VARIABLES.items():
        svg = re.sub(colour, f"var({variable})", svg, flags=re.IGNORECASE)
    svg = re.sub(r"font: (\S+) [^;\"]+", r"font-size: \1; font-family: inherit", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).rstrip()
