"""What each scored method is: paper and equation stand in its class's docstring.

The scores' config names the class. Scores may come from elsewhere, so no module is imported because
they name it: the class is one of the project's own, or one that is imported here already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from core.registry import registered_class
from detection.flags import UPPER_BOUND
from detection.methods.base import Method


class Entry(NamedTuple):
    """A method, the first sentence of its docstring (with the paper), and the rest (how it scores).

    Both are empty where its class is neither the project's own nor imported.
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
    kind = _class(target or "")
    summary, _, rest = (inspect.getdoc(kind) or "" if kind else "").partition("\n\n")
    return Entry(method, " ".join(summary.split()), rest.strip())


def _class(target: str) -> type[Method] | None:
    """The method's class, if it is known without the scores' config."""
    module, _, name = target.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if isinstance(found, type) and issubclass(found, Method):
        return found
    return registered_class("method", target, Method)
