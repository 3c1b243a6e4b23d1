"""Documentation of configuration fields, collected from dataclasses and from `conf/`.

The descriptions are the string literals below the fields, or the comments in `conf/`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hydra.utils import get_class
from omegaconf import MISSING

from contamination.core.config import CONF, Range
from contamination.core.stored_files import read_yaml


@dataclass(frozen=True)
class FieldDoc:
    """The documentation of a field.

    Attributes:
        name: the field's name, without its node.
        type: the type as the dataclass declares it, such as `int | None`.
        default: the default as written on the command line; empty if the field is required.
        range: the allowed values in words; empty if all values of the type are allowed.
        text: what the field means; empty if it is not documented.
    """

    name: str
    type: str
    default: str
    range: str
    text: str


@dataclass(frozen=True)
class Schema:
    """The documentation of a config dataclass.

    Attributes:
        text: the first paragraph of its docstring.
        fields: the fields with plain values.
        nodes: the fields whose values are dataclasses: name → class.
    """

    text: str
    fields: tuple[FieldDoc, ...]
    nodes: Mapping[str, type]


def describe_dataclass(schema: type, comments: Mapping[str, str] | None = None) -> Schema:
    """Returns the documentation of a config dataclass.

    Args:
        schema: the dataclass.
        comments: descriptions for fields that have none in the dataclass: field → text.
    """
    hints, texts = get_type_hints(schema), {**(comments or {}), **_docstring_by_field(schema)}
    plain, nodes = [], {}
    for field in dataclasses.fields(schema):
        if not field.init or field.name.startswith("_"):
            continue
        node = _dataclass_in_hint(hints[field.name])
        if node is None:
            plain.append(_describe_field(field, texts.get(field.name, "")))
        else:
            nodes[field.name] = node
    text = _join_lines((schema.__doc__ or "").split("\n\n")[0])
    return Schema(text, tuple(plain), nodes)


@dataclass(frozen=True)
class ConfChoice:
    """A field whose value is the name of a file, or of several files, in a folder of conf/.

    Attributes:
        name: the name of the field.
        group: the folder in conf/, which often has the same name.
        default: the files that are chosen by default; empty if one must be given.
    """

    name: str
    group: str
    default: str

    @property
    def file_names(self) -> list[str]:
        """The names of the files that can be chosen."""
        folder = CONF / self.group
        return sorted(str(f.relative_to(folder).with_suffix("")) for f in folder.rglob("*.yaml"))

    @property
    def as_field_doc(self) -> FieldDoc:
        """The choice as a field, for tables of fields."""
        return FieldDoc(
            self.name, "choice", self.default, ", ".join(self.file_names), f"conf/{self.group}/"
        )

    def schema(self, file_name: str) -> Schema | None:
        """Returns the documentation of the class that a file names, with the file's values.

        Returns None if the file names no class.
        """
        path = CONF / self.group / f"{file_name}.yaml"
        config = _read_yaml_if_exists(path)
        config = config if "_target_" in config else config.get(path.stem) or {}
        if not isinstance(config, dict) or "_target_" not in config:
            return None
        schema = describe_dataclass(get_class(config["_target_"]), _comment_by_nested_key(path))
        fields = (
            dataclasses.replace(field, default=format_value(config[field.name]))
            if field.name in config
            else field
            for field in schema.fields
        )
        return dataclasses.replace(schema, fields=tuple(fields))


def _comment_by_nested_key(path: Path) -> dict[str, str]:
    keys_and_comments = re.findall(r"^\s*(\w+):[^#\n]*?#\s*(.*)$", path.read_text(), re.M)
    return dict(keys_and_comments)


def read_choices(file: str) -> list[ConfChoice]:
    """Returns the choices in the defaults list of conf/<file>.yaml."""
    choice_by_name: dict[str, ConfChoice] = {}
    for entry in read_yaml(CONF / f"{file}.yaml")["defaults"]:
        if isinstance(entry, str):
            if "defaults" in _read_yaml_if_exists(CONF / f"{entry}.yaml"):
                choice_by_name |= {choice.name: choice for choice in read_choices(entry)}
            continue
        ((key, default),) = entry.items()
        group, _, name = key.removeprefix("override ").partition("@")
        choice_by_name[name or group] = ConfChoice(
            name or group, group.strip("/"), format_value(default)
        )
    return [*choice_by_name.values()]


def _read_yaml_if_exists(path: Path) -> Mapping[str, Any]:
    return read_yaml(path) if path.is_file() else {}


def load_class(class_path: str) -> type:
    """Returns the class with this import path, which is relative to `contamination`."""
    module, _, name = class_path.rpartition(".")
    loaded = getattr(importlib.import_module(f"contamination.{module}"), name)
    assert isinstance(loaded, type)
    return loaded


def comment_by_field(path: Path) -> dict[str, str]:
    """Returns the comment after each top-level field of a file in conf/, over several lines."""
    comments: dict[str, str] = {}
    field = None
    for line in path.read_text().splitlines():
        if start := re.match(r"(\w+):[^#]*?#\s*(.*)", line):
            field = start.group(1)
            comments[field] = start.group(2)
        elif field and (more := re.match(r"\s+#\s*(.*)", line)):
            comments[field] += f" {more.group(1)}"
        else:
            field = None
    return comments


def _dataclass_in_hint(hint: Any) -> type | None:
    """The dataclass of a field that is a node, or a mapping or list of nodes."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def _describe_field(field: dataclasses.Field[Any], text: str) -> FieldDoc:
    range_ = field.metadata.get("range")
    type_text = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    return FieldDoc(
        field.name, type_text, _format_default(field), _format_range(range_), _join_lines(text)
    )


def _format_default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return format_value(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return format_value(field.default_factory())
    return ""


def format_value(value: Any) -> str:
    """Returns a value as written on the command line; empty if it is required."""
    if value == MISSING:
        return ""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value.isprintable() and value else repr(value).replace("'", '"')
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_value(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return str(value)


def _format_range(range_: Range | None) -> str:
    """The allowed values in words, derived from the remedy of the range."""
    if range_ is None:
        return ""
    return re.sub(r"^(give|choose from) ", "", range_.remedy).rstrip(".")


@cache
def _docstring_by_field(schema: type) -> dict[str, str]:
    """The string literal below each field of the class and its base classes."""
    texts: dict[str, str] = {}
    for parent_class in reversed(schema.__mro__):
        if dataclasses.is_dataclass(parent_class):
            texts |= _docstring_by_field_of_class(parent_class)
    return texts


def _docstring_by_field_of_class(schema: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(schema) or schema))
    bodies = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == schema.__name__
    ]
    texts = {}
    for body in bodies:
        for statement, below in zip(body, body[1:], strict=False):
            if not (
                isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            ):
                continue
            literal = below.value if isinstance(below, ast.Expr) else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                texts[statement.target.id] = literal.value
    return texts


def _join_lines(text: str) -> str:
    return " ".join(text.split())
