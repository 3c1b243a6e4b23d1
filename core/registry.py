"""The project's own classes of each kind: those that the files of `conf/<kind>/` name.

A config that is stored in a run folder names classes as well, in `_target_`. The folder may come
from elsewhere, so a stored name only selects among classes that are known without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from contamination.core.cli import CONF
from contamination.core.errors import ArtifactError, said
from contamination.core.stored_files import read_yaml, targets_in

T = TypeVar("T")


@cache
def registered(kind: str) -> frozenset[str]:
    """The paths of the classes of a kind, such as `format` or `method`: a folder of conf/."""
    nodes = [read_yaml(file) for file in sorted((CONF / kind).glob("*.yaml"))]
    inner = [value for node in nodes for value in node.values() if isinstance(value, dict)]
    targets = (node.get("_target_") for node in [*nodes, *inner])
    return frozenset(target for target in targets if isinstance(target, str))


def registered_class(kind: str, target: object, base: Callable[..., T]) -> type[T] | None:
    """The class that a stored config names, or None if it is not registered. Imports no other.

    Args:
        kind: a folder of conf/.
        target: what the stored config has as `_target_`.
        base: what every class of the kind inherits from.
    """
    if not isinstance(target, str) or target not in registered(kind):
        return None
    return _subclass(target, base)


def stored_object(
    kind: str, node: Any, base: Callable[..., T], where: str, given: Collection[str] = ()
) -> T:
    """The object that a node of a stored config describes.

    Args:
        kind: a folder of conf/; its classes are the ones that a stored config may name.
        node: the stored node: `_target_` and the class's arguments, which are plain data.
        base: what every class of the kind inherits from.
        where: the file that holds the node, for errors.
        given: paths of further classes, given by the user on the command line.

    Raises:
        ArtifactError: another class, a nested `_target_`, or arguments that the class refuses.
    """
    target = node.get("_target_") if isinstance(node, Mapping) else None
    found = registered_class(kind, target, base)
    if found is None and target in given:
        found = _subclass(str(target), base)
    if found is None:
        raise ArtifactError(
            f"{where}: {kind}._target_ is {repr(target)[:200]}, and a stored file does not select "
            f"code. Only the classes of conf/{kind}/ are used, and a class of your own if the "
            f"command names it: {kind}._target_=my_module.MyClass."
        )
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    if keys := targets_in(arguments) or [key for key in node if not isinstance(key, str)]:
        raise ArtifactError(
            f"{where}: {kind} holds a nested {keys[0]}, and a stored file does not select code. "
            "Its fields are plain values; get the folder again."
        )
    try:
        return found(**arguments)
    except Exception as error:  # whatever the class makes of values that it did not write
        raise ArtifactError(
            f"{where}: {kind} can't be made of {repr(arguments)[:200]}: {said(error)[:200]}. Get "
            "the folder again, or give the command that made it again."
        ) from error


def _subclass(target: str, base: Callable[..., T]) -> type[T] | None:
    module, _, name = target.rpartition(".")
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, ValueError):
        return None
    known = isinstance(found, type) and isinstance(base, type) and issubclass(found, base)
    return found if known else None
