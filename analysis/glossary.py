"""What each scored method is: paper and equation stand in its class's docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hydra.utils import get_class

from detection.flags import UPPER_BOUND


class Entry(NamedTuple):
    """A method, the first sentence of its docstring (with the paper), and the rest (how it scores).

    Both are empty where its class can't be imported here.
    """

    method: str
    summary: str
    equation: str


def glossary(methods: Iterable[str], classes: Mapping[str, str]) -> list[Entry]:
    """An entry a method, in their order.

    Args:
        methods: the names in the scores.
        classes: name → dotted path of its class, as the scores' config has it.
    """
    return [_entry(name, classes.get(name.removesuffix(UPPER_BOUND))) for name in methods]


def _entry(method: str, target: str | None) -> Entry:
    try:
        text = inspect.getdoc(get_class(target)) if target else None
    except Exception:  # whatever a class of the user's own raises where it is not installed
        text = None
    summary, _, rest = (text or "").partition("\n\n")
    return Entry(method, " ".join(summary.split()), rest.strip())
