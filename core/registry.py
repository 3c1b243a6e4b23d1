"""The classes that a stored config may name: those of the project and of installed packages.

A config that is stored in a run folder names classes in `_target_`. The folder may come from
elsewhere, so a stored name can only select one of the registered classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from contamination.core.config import CONF
from contamination.core.errors import ArtifactError, describe_error
from contamination.core.stored_files import hydra_keys_in, read_yaml

T = TypeVar("T")


@cache
def registered_import_paths(kind: str) -> frozenset[str]:
    """Returns the import paths of all classes of a kind, such as `method`.

    They are the classes that the files of `conf/<kind>/` name, and those that installed
    distributions declare as entry points of the group `contamination.<kind>s`::

        [project.entry-points."contamination.methods"]
        my_method = "my_package.my_module:MyMethod"
    """
    nodes = [read_yaml(file) for file in sorted((CONF / kind).glob("*.yaml"))]
    inner_nodes = [value for node in nodes for value in node.values() if isinstance(value, dict)]
    targets = (node.get("_target_") for node in [*nodes, *inner_nodes])
    installed = map(_entry_point_import_path, entry_points(group=f"contamination.{kind}s"))
    return frozenset(target for target in [*targets, *installed] if isinstance(target, str))


def _entry_point_import_path(entry_point: EntryPoint) -> str | None:
    """`package.module.Class`, or None if the entry point is malformed."""
    try:
        return f"{entry_point.module}.{entry_point.attr}"
    except AttributeError:
        return None


def find_registered_class(kind: str, target: object, base: Callable[..., T]) -> type[T] | None:
    """Returns the class that a stored config names, or None if it is not registered.

    Only the module of a registered class is imported.

    Args:
        kind: a folder of conf/, such as `method`.
        target: the `_target_` of the stored config.
        base: the base class of the kind.
    """
    if not isinstance(target, str) or target not in registered_import_paths(kind):
        return None
    return _import_subclass(target, base)


def create_stored_object(
    kind: str, node: Any, base: Callable[..., T], where: str, user_classes: Collection[str] = ()
) -> T:
    """Returns the object that a node of a stored config describes.

    Args:
        kind: a folder of conf/, such as `format`.
        node: the stored node: `_target_` and the class's arguments, which are plain data.
        base: the base class of the kind.
        where: the file that contains the node, for error messages.
        user_classes: import paths of further classes, named by the user on the command line.

    Raises:
        ArtifactError: the class is not registered, the node contains another `_target_`, or the
            class refuses the arguments.
    """
    target = node.get("_target_") if isinstance(node, Mapping) else None
    selected_class = find_registered_class(kind, target, base)
    if selected_class is None and target in user_classes:
        selected_class = _import_subclass(str(target), base)
    if selected_class is None:
        raise ArtifactError(
            f"{where}: {kind}._target_ is {repr(target)[:200]}, and a stored file does not select "
            f"code. It may name the classes of conf/{kind}/ and those of installed packages (entry "
            f"points contamination.{kind}s). To use your own class, name it in the command: "
            f"{kind}._target_=my_module.MyClass."
        )
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    if keys := hydra_keys_in(arguments) or [key for key in node if not isinstance(key, str)]:
        raise ArtifactError(
            f"{where}: {kind} contains a nested {keys[0]}, and a stored file does not select code. "
            "Its fields must be plain values: get the folder again."
        )
    try:
        return selected_class(**arguments)
    except Exception as error:  # any class may raise any error for wrong arguments
        raise ArtifactError(
            f"{where}: {kind} can't be made from {repr(arguments)[:200]}: "
            f"{describe_error(error)[:200]}. Get the folder again, or repeat the command that "
            "wrote it."
        ) from error


def _import_subclass(target: str, base: Callable[..., T]) -> type[T] | None:
    module, _, name = target.rpartition(".")
    try:
        candidate: Any = getattr(import_module(module), name, None)
    except (ImportError, ValueError):
        return None
    is_class = isinstance(candidate, type) and isinstance(base, type)
    return candidate if is_class and issubclass(candidate, base) else None  # type: ignore[arg-type]
