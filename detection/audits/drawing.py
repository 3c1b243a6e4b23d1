"""Charts for an audit's page: drawn by matplotlib, coloured by the page's own style sheet.

A figure is drawn in the colours below; in the SVG each becomes a variable of the page, so that one
chart serves light and dark. Files are a function of the figures alone: no dates, no random ids.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
