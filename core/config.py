"""Typed configuration: dataclasses with allowed ranges, and conversion of Hydra's configs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contamination.core.errors import ConfigError, near_names, require
from contamination.core.stored_files import escape_interpolations

CONF = Path(__file__).resolve().parents[1] / "conf"
"""The folder of the configuration files."""


@dataclass(frozen=True)
class Range:
    """A predicate for the allowed values of a field, and the remedy for any other value."""

    allows: Callable[[Any], bool]
    remedy: str


FRACTION = Range(lambda value: 0 < value <= 1, "give a fraction above 0 and at most 1.")
PROPER_FRACTION = Range(lambda value: 0 < value < 1, "give a share above 0 and below 1.")
FRACTION_OR_ZERO = Range(lambda value: 0 <= value <= 1, "give a share between 0 and 1.")
POSITIVE = Range(lambda value: 0 < value < math.inf, "give a number above 0.")
DEVICE = Range(
    lambda name: name in ("auto", "cpu") or name.startswith("cuda"),
    "give auto, cpu, cuda or cuda:<n>.",
)


def at_least(low: float) -> Range:
    """Returns the range of finite numbers that are at least `low`."""
    return Range(lambda value: low <= value < math.inf, f"give {low} or more.")


def between(low: float, high: float) -> Range:
    """Returns the range of numbers from `low` to `high`, both included."""
    return Range(lambda value: low <= value <= high, f"give {low:,} to {high:,}.")


def one_of(names: Iterable[str]) -> Range:
    """Returns the range that consists of the given names."""
    choices = tuple(names)
    return Range(lambda value: value in choices, f"choose from {', '.join(choices)}.")


def ranged_field(default: Any, range_: Range | None, **metadata: Any) -> Any:
    """Returns a dataclass field with a default and a range; a list is copied for each object."""
    metadata["range"] = range_
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Ranged:
    """Base class of config dataclasses: a value outside its field's range raises a ConfigError.

    Optional fields may also be None.

    Args:
        node: the config node of the fields, for error messages.
    """

    node: ClassVar[str] = ""

    def __init_subclass__(cls, node: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.node = cls.node if node is None else node

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # a subclass is a dataclass
            value, range_ = getattr(self, field.name), field.metadata.get("range")
            is_optional = "None" in str(field.type)
            if range_ and not (is_optional and value is None):
                remedy = range_.remedy.removesuffix(".") + (", or null." if is_optional else ".")
                self.require(range_.allows(value), field.name, remedy)

    def require(self, condition: bool, name: str, remedy: str) -> None:
        """Raises a ConfigError with field, value and remedy unless `condition` is true."""
        require(condition, f"{self.node}.{name}".lstrip("."), getattr(self, name), remedy)


T = TypeVar("T")
PART_OF_NAME_UNLESS_DEFAULT = "unless default"


def runtime_field(default: Any, range_: Range | None = None) -> Any:
    """Returns a dataclass field that can't change results, so it is not part of folder names."""
    return ranged_field(default, range_, identity=False)


def field_naming_unless_default(default: Any, range_: Range | None = None) -> Any:
    """Returns a dataclass field that is part of a folder's name unless it has its default.

    It is meant for fields that are added later: the names of existing folders don't change.
    """
    return ranged_field(default, range_, identity=PART_OF_NAME_UNLESS_DEFAULT)


def register_schema(node: str, schema: type) -> None:
    """Registers `schema/<node>` for Hydra's defaults lists, which types the config node `<node>`.

    A field that is a dict of texts has keys of the user's own, so any may be given.
    """
    typed = copy.deepcopy(_schema_node(schema))
    for key in typed:
        if isinstance(inner := typed._get_node(key), DictConfig) and _holds_texts(inner):
            inner._set_flag("struct", False)
    ConfigStore.instance().store(group="schema", name=node, node=typed, package=node)


def _holds_texts(node: DictConfig) -> bool:
    return node._metadata.object_type is dict and node._metadata.element_type is str


def convert_config(config: DictConfig, schema: type[T]) -> T:
    """Returns the fields of `schema` from `config` as a checked plain dataclass.

    Fields may be plain values, dataclasses, and dicts or lists of dataclasses.

    Raises:
        ConfigError: a field is missing or unknown, or a value is not allowed.
    """
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    plain_values: dict[str, Any] = {}
    for field in dataclasses.fields(schema):  # type: ignore[arg-type]
        name, hint = field.name, hints[field.name]
        if name not in config:
            if field.default is field.default_factory is dataclasses.MISSING:
                raise ConfigError(f"{name} is missing: give it a value.")
            continue
        inner = next((a for a in typing.get_args(hint) if dataclasses.is_dataclass(a)), None)
        if dataclasses.is_dataclass(hint):
            values[name] = _node_to_dataclass(name, hint, config[name])
        elif inner and typing.get_origin(hint) is dict:
            nodes = _check_collection(name, config[name], DictConfig)
            values[name] = {
                str(k): _node_to_dataclass(f"{name}.{k}", inner, v) for k, v in nodes.items()
            }
        elif inner:
            nodes = _check_collection(name, config[name], ListConfig)
            values[name] = [
                _node_to_dataclass(f"{name}.{i}", inner, v) for i, v in enumerate(nodes)
            ]
        else:
            plain_values[name] = escape_interpolations(
                config[name]
            )  # interpolations are resolved only once
    return schema(**values, **_check_plain_values(schema, plain_values))


def _check_collection(field: str, node: Any, node_type: type) -> Any:
    if isinstance(node, node_type):
        return node
    example = f"{field}=[{{…}}]" if node_type is ListConfig else f"{field}={{name: {{…}}}}"
    raise ConfigError(f"{field} is {node!r}: give {example}. See the options with --cfg job.")


def _node_to_dataclass(field: str, schema: Any, node: Any) -> Any:
    field_names = [schema_field.name for schema_field in dataclasses.fields(schema)]
    for key in _check_collection(field, node, DictConfig):
        if key not in field_names:  # Hydra allows any name that is added with a +
            raise ConfigError(f"{field}.{key}: unknown field. {near_names(str(key), field_names)}")
    try:
        merged = OmegaConf.merge(_schema_node(schema), node)
        merged._set_parent(node._get_parent())  # an interpolation may name another node
        return OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(_describe_omegaconf_error(error, f"{field}.")) from error


def _check_plain_values(schema: type, values_by_field: dict[str, Any]) -> dict[str, Any]:
    try:
        merged = OmegaConf.to_container(
            OmegaConf.merge(_plain_schema_node(schema), values_by_field), resolve=True
        )
    except OmegaConfBaseException as error:
        raise ConfigError(_describe_omegaconf_error(error)) from error
    assert isinstance(merged, dict)
    return {name: merged[name] for name in values_by_field}


@functools.cache
def _schema_node(schema: Any) -> DictConfig:
    """The schema as a typed node that a merge may copy, even if the dataclass is frozen."""
    node = OmegaConf.structured(schema)
    _make_writable(node)
    return typing.cast(DictConfig, node)


@functools.cache
def _plain_schema_node(schema: Any) -> DictConfig:
    """The schema whose dataclasses are missing: without them a copy is quick.

    The default of a plain field can't refer to a part of a dataclass.
    """
    node = copy.deepcopy(_schema_node(schema))
    for key in node:
        inner = node._get_node(key)
        if isinstance(inner, DictConfig) and dataclasses.is_dataclass(inner._metadata.object_type):
            inner._set_value(MISSING)
    return node


def _make_writable(node: Any) -> None:
    if isinstance(node, DictConfig):
        OmegaConf.set_readonly(node, None)
        for key in node:  # has no keys if the node is None or missing
            _make_writable(node._get_node(key))


def identity_data(value: Any, name: str = "") -> Any:
    """Returns `value` as plain data, without the fields that don't change results.

    Args:
        value: a dataclass, a mapping, a list, or a leaf.
        name: the config field of the value, for error messages.

    Raises:
        ConfigError: a leaf or a key is NaN, or an object whose representation may differ between
            processes, such as a set or a function.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        value = {
            field.name: inner for field, inner in values.items() if is_part_of_name(field, inner)
        }
    if isinstance(value, Mapping):
        keys = {key: f"{name}.{_check_is_plain_value(key, name)}".lstrip(".") for key in value}
        return {str(key): identity_data(value[key], inner) for key, inner in keys.items()}
    if isinstance(value, list | tuple):
        return [identity_data(v, f"{name}.{i}".lstrip(".")) for i, v in enumerate(value)]
    return _check_is_plain_value(value, name)


def is_part_of_name(field: dataclasses.Field[Any], value: Any) -> bool:
    """Returns whether the field's value is part of the name of a run folder."""
    role = field.metadata.get("identity", True)
    if role != PART_OF_NAME_UNLESS_DEFAULT:
        return bool(role)
    factory = field.default_factory
    return bool(value != (field.default if factory is dataclasses.MISSING else factory()))


def _check_is_plain_value(leaf: Any, field: str) -> Any:
    if leaf is None or (isinstance(leaf, str | int | float) and leaf == leaf):
        return leaf
    raise ConfigError(
        f"{field or 'The configuration'} contains {leaf!r} ({type(leaf).__name__}), which can't be "
        "part of a run folder's name: give a string, a number, true, false, null, or lists and "
        "mappings of these."
    )


def _describe_omegaconf_error(error: OmegaConfBaseException, prefix: str = "") -> str:
    key = str(getattr(error, "full_key", None) or "")
    field = f"{key if key.startswith(prefix) else prefix + key}: " if key else ""
    first_line = str(error.msg or error).strip().splitlines()[0]
    return f"{field}{first_line}. See the options with --cfg job."


def instantiate_node(field: str, node: Mapping[str, Any]) -> Any:
    """Returns an object of the class that the node's `_target_` names; other keys are arguments.

    Raises:
        ConfigError: the class or an argument is unknown, or the class refuses a value.
    """
    from hydra.utils import instantiate

    if "_target_" not in node:
        raise ConfigError(f"{field} has no _target_: choose one of the files in conf/.")
    try:
        return instantiate(dict(node), _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ConfigError):
            raise ConfigError(f"{field}: {cause}") from error
        arguments = {key: value for key, value in node.items() if key != "_target_"}
        reason = str(cause or error).strip().splitlines()[0].rstrip(":")
        raise ConfigError(
            f"{field} can't be made from {node['_target_']} with {arguments}: {reason}. See "
            f"conf/{field.rpartition('.')[2]}/."
        ) from error
