"""Builds methods from the configuration node `method`."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from omegaconf import OmegaConf

from contamination.core.config import convert_config
from contamination.core.errors import ConfigError, near_names, require
from contamination.detection.config import METHODS_FOLDER
from contamination.detection.methods.base import Method

MAX_VARIANTS = 1000
"""The limit for all methods together; the scores have one row per variant and text."""


def build_methods(nodes: Mapping[str, Any]) -> dict[tuple[str, str], Method]:
    """Builds the methods of the config node `method`, by name and variant.

    A hyperparameter given as a list makes one method per value; several variants often need no
    further pass. `method=all` leaves out methods that take far longer than reading.

    Raises:
        ConfigError: an unknown class or hyperparameter, a value out of range, or more than
            MAX_VARIANTS variants.
    """
    count = sum(_count_variants(node) for node in nodes.values())
    if count > MAX_VARIANTS:
        raise ConfigError(
            f"method has {count:,} variants in {len(nodes):,} methods: give at most "
            f"{MAX_VARIANTS:,}. A hyperparameter with several values is one variant per value."
        )
    built = {(name, m.variant): m for name, node in nodes.items() for m in _variants(name, node)}
    return {key: m for key, m in built.items() if not (is_slow(m) and is_all(nodes))}


def is_all(names: Collection[str]) -> bool:
    """Returns whether these are all methods of conf/method."""
    return set(names) >= {path.stem for path in METHODS_FOLDER.glob("*.yaml")}


def is_slow(method: Method) -> bool:
    """Returns whether the method takes far longer than reading the text."""
    return method.generates or method.costly


def _count_variants(method_config: Any) -> int:
    values = method_config.values() if isinstance(method_config, Mapping) else ()
    return math.prod(len(value) for value in values if isinstance(value, list) and value)


def _variants(name: str, node: Any) -> list[Method]:
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(
            f"method.{name} is {node!r}: give a mapping with the method's class as `_target_`, "
            "as the files of conf/method do."
        )
    kind = _method_class(name, str(node["_target_"]))
    hyperparameters = {str(key): value for key, value in node.items() if key != "_target_"}
    field_names = [f.name for f in fields(kind)]
    for key in hyperparameters:
        if key not in field_names:
            names = near_names(key, field_names) if field_names else "It has none."
            raise ConfigError(f"method.{name}.{key}: unknown hyperparameter. {names}")
    values = [value if isinstance(value, list) else [value] for value in hyperparameters.values()]
    for key, options in zip(hyperparameters, values, strict=True):
        require(
            bool(options), f"method.{name}.{key}", options, "give one value, or several, in a list."
        )
    chosen = (
        dict(zip(hyperparameters, choice, strict=True)) for choice in itertools.product(*values)
    )
    try:
        return [convert_config(OmegaConf.create(choice), kind) for choice in chosen]
    except ConfigError as error:
        raise ConfigError(f"method.{name}.{error}") from error


def _method_class(name: str, target: str) -> type[Method]:
    module, _, class_name = target.rpartition(".")
    try:
        kind = getattr(import_module(module), class_name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise ConfigError(
            f"method.{name}._target_ is {target!r}: there is no such class ({error}). Give one "
            "in detection.methods, such as contamination.detection.methods.min_k.MinK, or your own."
        ) from error
    is_method = isinstance(kind, type) and issubclass(kind, Method)
    if not is_method or inspect.isabstract(kind):
        raise ConfigError(
            f"method.{name}._target_ is {target!r}: it is not a method. Give a subclass of "
            "contamination.detection.methods.base.Method."
        )
    method_class: type[Method] = kind
    return method_class
