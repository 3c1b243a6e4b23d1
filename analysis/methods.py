"""The name, order and style of each method, and the variant that represents it.

Every table and chart uses these, so that a method looks the same everywhere.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED, Cell
from contamination.core.registry import find_registered_class
from contamination.detection.baselines.blind import BLIND
from contamination.detection.flags import UPPER_BOUND
from contamination.detection.methods.base import Method

Methods = Sequence[tuple[str, str]]
"""(method, variant) in the order of tables and legends."""


class MethodStyle(NamedTuple):
    """A line's colour and marker: matplotlib's (a name, or a star's points and turn), plotly's."""

    colour: str
    marker: str | tuple[int, int, int]
    symbol: str


ORDER = (
    *("loss", "zlib", "lowercase", "reference", "reference_upper_bound", "neighbor"),
    *("min_k", "min_k_plus_plus", "infilling", "pac", "recall", "surp", "gap_k", "max_k"),
    *("mean_only", "std_only", "polarized_distance", "wbc", "ez_mia", "info_rmia", "lt_mia"),
    *("dc_pdd", "grad_norm", "con_recall"),
)
"""The order of tables and legends; other methods follow by name, the blind baseline is last."""

COLOURS = (
    *("#0072B2", "#E69F00", "#F08796", "#A55AFF", "#694B78", "#00B4B4", "#009E73", "#D55E00"),
    *("#FF87F0", "#5A5A2D", "#A56987", "#F0A578", "#A53C5A", "#00695A", "#B40F00", "#1EB4FF"),
    *("#876996", "#0F5A3C", "#00C3A5", "#0F4B87", "#D2004B", "#0FB45A", "#4B96C3", "#000FFF"),
)
"""Any two are ΔE 10 apart or more, also to a reader with deuteranopia (CIEDE2000), and each has a
contrast of 2 or more with the page, light or dark (WCAG 2)."""

MARKERS: Sequence[tuple[str | tuple[int, int, int], str]] = (
    *(("o", "circle"), ("s", "square"), ("v", "triangle-down"), ("P", "cross")),
    *(((8, 1, 0), "star-square"), ("X", "x"), ("^", "triangle-up"), ("D", "diamond")),
    *(("*", "star"), ("<", "triangle-left"), ("h", "hexagon"), (">", "triangle-right")),
    *(("p", "pentagon"), ("8", "octagon"), ("H", "hexagon2"), ((4, 1, 0), "star-diamond")),
    *(
        ((6, 1, 0), "hexagram"),
        ((3, 1, 0), "star-triangle-up"),
        ((3, 1, 180), "star-triangle-down"),
    ),
    *(((3, 0, -45), "triangle-ne"), ((3, 0, 45), "triangle-nw"), ((3, 0, 135), "triangle-sw")),
    *(((3, 0, -135), "triangle-se"), ((7, 1, 0), "circle-x")),
)
"""matplotlib's and plotly's names: no chart relies on colour alone."""


def method_style(method: str, methods: Methods) -> MethodStyle:
    """The method's colour and marker in a chart of these methods.

    A method of `ORDER` has its own everywhere; others take what these leave, in order of names.
    """
    if method == BLIND:
        return MethodStyle("#7F7F7F", "d", "diamond-tall")
    slot = _colour_index_by_method(methods)[method]
    turn = slot // len(COLOURS)  # beyond the last colour each comes again, with another marker
    return MethodStyle(COLOURS[slot % len(COLOURS)], *MARKERS[(slot + turn) % len(MARKERS)])


def _colour_index_by_method(methods: Methods) -> dict[str, int]:
    """Method → its place in `COLOURS`."""
    detectors = {method for method, _ in methods} - {BLIND}
    fixed_indices = {
        name: position
        for name in detectors
        if (position := _position(name)) is not None
        and (name in ORDER or ORDER[position] not in detectors)
    }
    free_indices = (slot for slot in count() if slot not in fixed_indices.values())
    return {
        **fixed_indices,
        **dict(zip(sorted(detectors - fixed_indices.keys()), free_indices, strict=False)),
    }


def _position(method: str) -> int | None:
    """A method's place in `ORDER`; an upper bound that is not in it has that of its method."""
    known = (name for name in (method, method.removesuffix(UPPER_BOUND)) if name in ORDER)
    return next(map(ORDER.index, known), None)


def sort_methods(methods: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Distinct (method, variant): known ones as in `ORDER`, then others by name, blind last."""

    def sort_key(pair: tuple[str, str]) -> tuple[int, str, str]:
        method, variant = pair
        position = _position(method)
        rank = len(ORDER) + (method == BLIND) if position is None else position
        return (rank, method, variant)

    return sorted(set(methods), key=sort_key)


def methods_of(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """The (method, variant) of a table's rows, in order."""
    return sort_methods(rows[["method", "variant"]].itertuples(index=False, name=None))


def checkpoint_of(method: str) -> str:
    """Returns the checkpoint of a method's rows: the blind baseline's are under "clean"."""
    return CLEAN if method == BLIND else CONTAMINATED


def method_label(method: str, variant: str, methods: Iterable[tuple[str, str]]) -> str:
    """Returns the method's name, with its variant if `methods` contains several of them."""
    variants = {v for m, v in methods if m == method}
    return f"{method} ({variant})" if len(variants) > 1 else method


def default_variants(cells: Sequence[Cell]) -> dict[str, str]:
    """Method → the variant that stands for it where methods are compared.

    The one with the method's own hyperparameters, never the one that did best here; where that
    wasn't scored, the first by name.
    """
    scored = sorted({pair for cell in cells for pair in cell.scores[CONTAMINATED].columns})
    return {**dict(reversed(scored)), **dict(pair for cell in cells for pair in cell.defaults)}


class GlossaryEntry(NamedTuple):
    """A method, the first sentence of its docstring (with the paper), and the rest (how it scores).

    Both are empty where its class is neither the project's own nor imported.
    """

    method: str
    summary: str
    equation: str


def glossary_entries(methods: Iterable[str], classes: Mapping[str, str]) -> list[GlossaryEntry]:
    """Returns an entry per method, in their order.

    Args:
        methods: the names in the scores.
        classes: name → dotted path of its class, as the scores' config has it.
    """
    return [_glossary_entry(name, classes.get(name.removesuffix(UPPER_BOUND))) for name in methods]


def _glossary_entry(method: str, target: str | None) -> GlossaryEntry:
    kind = _known_method_class(target or "")
    summary, _, rest = (inspect.getdoc(kind) or "" if kind else "").partition("\n\n")
    return GlossaryEntry(method, " ".join(summary.split()), rest.strip())


def _known_method_class(target: str) -> type[Method] | None:
    """The method's class, if it is known without the scores' config."""
    module, _, name = target.rpartition(".")
    candidate = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if isinstance(candidate, type) and issubclass(candidate, Method):
        return candidate
    return find_registered_class("method", target, Method)
