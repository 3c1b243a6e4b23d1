"""How each method is called and looks, and which of its variants stands for it.

Every table and chart asks here, so that a method has one name, one place and one look.

Colours are from the Okabe-Ito and Tol palettes, which stay apart for colour-blind readers; each
method has its own marker as well, so that no chart relies on colour alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from analysis.cells import CLEAN, CONTAMINATED, Cell
from detection.blind import BLIND as BLIND

Methods = Sequence[tuple[str, str]]
"""(method, variant) in the order of tables and legends."""


class Look(NamedTuple):
    """A line's colour and marker: matplotlib's (a name, or a star's points and turn), plotly's."""

    colour: str
    marker: str | tuple[int, int, int]
    symbol: str


LOOKS = {
    "loss": Look("#0072B2", "o", "circle"),
    "zlib": Look("#E69F00", "s", "square"),
    "lowercase": Look("#CC79A7", "v", "triangle-down"),
    "reference": Look("#332288", "P", "cross"),
    "reference_upper_bound": Look("#AAAA00", (8, 1, 0), "star-square"),
    "neighbor": Look("#56B4E9", "X", "x"),
    "min_k": Look("#009E73", "^", "triangle-up"),
    "min_k_plus_plus": Look("#D55E00", "D", "diamond"),
    "infilling": Look("#882255", "*", "star"),
    "pac": Look("#999933", "<", "triangle-left"),
    "recall": Look("#000000", "h", "hexagon"),
    "surp": Look("#44AA99", ">", "triangle-right"),
    "gap_k": Look("#AA4499", "p", "pentagon"),
    "max_k": Look("#117733", "8", "octagon"),
    "mean_only": Look("#661100", "H", "hexagon2"),
    "std_only": Look("#6699CC", (4, 1, 0), "star-diamond"),
    "polarized_distance": Look("#B8860B", (6, 1, 0), "hexagram"),
    BLIND: Look("#7F7F7F", "d", "diamond-tall"),
}
"""The known methods, in the order of tables and legends; the blind baseline is last."""

SPARE_COLOURS = ("#888888", "#DDCC77", "#4477AA", "#AA3377", "#228833", "#CCBB44", "#994455")
SPARE_MARKERS = ("8", "H", "d", "X", "P", "s", "^", "v")


def look(method: str) -> Look:
    """The method's colour and marker; an unknown name picks spare ones by its hash."""
    if method in LOOKS:
        return LOOKS[method]
    first, second, *_ = hashlib.sha256(method.encode()).digest()
    marker = SPARE_MARKERS[second % len(SPARE_MARKERS)]
    symbol = next(known.symbol for known in LOOKS.values() if known.marker == marker)
    return Look(SPARE_COLOURS[first % len(SPARE_COLOURS)], marker, symbol)


def in_order(methods: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Distinct (method, variant): known ones as in `LOOKS`, then others by name, blind last."""
    known = [name for name in LOOKS if name != BLIND]

    def place(pair: tuple[str, str]) -> tuple[int, str, str]:
        method, variant = pair
        position = known.index(method) if method in known else len(known)
        return (position + (method == BLIND), method, variant)

    return sorted(set(methods), key=place)


def methods_of(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """The (method, variant) of a table's rows, in order."""
    return in_order(rows[["method", "variant"]].itertuples(index=False, name=None))


def checkpoint_of(method: str) -> str:
    """Where the method stands in the results: the blind baseline reads no model, a control."""
    return CLEAN if method == BLIND else CONTAMINATED


def label(method: str, variant: str, among: Iterable[tuple[str, str]]) -> str:
    """The method's name, with its variant where `among` holds several of them."""
    variants = {v for m, v in among if m == method}
    return f"{method} ({variant})" if len(variants) > 1 else method


def default_variants(cells: Sequence[Cell]) -> dict[str, str]:
    """Method → the variant that stands for it where methods are compared.

    The one with the method's own hyperparameters, never the one that did best here; where that
    wasn't scored, the first by name.
    """
    scored = sorted({pair for cell in cells for pair in cell.scores[CONTAMINATED].columns})
    return {**dict(reversed(scored)), **dict(pair for cell in cells for pair in cell.defaults)}
