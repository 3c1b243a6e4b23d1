"""Reads YAML, JSON and file names from run folders as plain data, within limits.

A run folder may come from an untrusted source. Therefore YAML tags and aliases are not followed,
nothing is read without a limit, and every file name must be inside the folder. The functions raise
a ValueError that describes the problem; the caller adds the name of the file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import stat
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 2**26  # of a JSON file; a manifest needs about 250 bytes per file of its folder
MAX_YAML_BYTES = 2**24  # of a YAML file; a report's config needs about 1 kB per cell
MAX_NODES = 200_000
"""Values, keys, lists and mappings of a YAML file; a report's config needs about 25 per cell."""
MAX_DEPTH = 50  # of nested lists and mappings
LARGEST_NUMBER = "1.8e308"  # that a float can hold, about
MAX_CHARACTERS = 10**5  # of a YAML file's longest value
MAX_QUOTED_CHARACTERS = 200  # of a field's name in an error
BASE_60 = re.compile(r"[-+]?([1-9][\d_]*(:[0-5]?\d)+|\d[\d_]*(:[0-5]?\d)+\.[\d_]*)")
"""Matches YAML 1.1's numbers in base 60, which take quadratic time to parse. No stage writes one.

An integer does not begin with 0: `08:00:00` is a string, and is written without quotes.
"""
HYDRA_KEYS = frozenset({"_target_", "_args_", "_partial_", "_recursive_", "_convert_"})
"""Keys of a config node that name a class or determine how Hydra calls it."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Returns the text of a regular file of at most `max_bytes` bytes.

    Raises:
        ValueError: it is a device, a pipe or a folder, too large, or not UTF-8.
        OSError: it can't be read.
    """
    handle = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK
    )  # opening a pipe without a writer would block
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return content.decode()


def read_json(path: Path) -> Any:
    """Returns the value in a JSON file; raises as `read_text` and `parse_json` do."""
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Returns the value in a JSON text.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number, such as 1e400, that no
            float can hold (NaN and Infinity are read).
    """
    try:
        value = json.loads(text, parse_float=finite_float, parse_int=finite_int)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from error
    _check_json_depth(value)
    return value


class NumberTooLargeError(ValueError):
    """A number that is written as a finite one, but is beyond what a float can hold."""


def finite_float(text: str) -> float:
    """Returns the number in a JSON text; Python itself reads 1e400 as infinity.

    Raises:
        NumberTooLargeError: it is beyond the largest float, about 1.8e308.
    """
    value = float(text)
    if math.isinf(value):
        raise NumberTooLargeError(f"the number {text[:40]} is beyond {LARGEST_NUMBER}")
    return value


def finite_int(text: str) -> int:
    """Returns the whole number in a JSON text, which a float can hold at least roughly.

    Raises:
        NumberTooLargeError: it is beyond the largest float, about 1.8e308.
    """
    finite_float(text)
    return int(text)


def _check_json_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [item for item in level if isinstance(item, dict | list) and item]
        if not containers:
            return
        level = [
            inner
            for container in containers
            for inner in (container.values() if type(container) is dict else container)
        ]
    raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file; raises as `read_text` and `parse_yaml` do."""
    return parse_yaml(read_text(path, MAX_YAML_BYTES))


def parse_yaml(text: str) -> dict[str, Any]:
    """Returns the mapping in a YAML text.

    Raises:
        ValueError: `check_yaml` rejects it, or it is not a mapping whose keys are strings.
    """
    check_yaml(text, MAX_NODES)
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(_one_line_message(error)) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError("it is not a mapping of fields")
    return value


def check_yaml(text: str, max_nodes: int) -> None:
    """Checks a YAML text before it is loaded; it may have at most `max_nodes` nodes.

    Raises:
        ValueError: it is not YAML, has a tag, an alias or a second document, or exceeds a limit.
    """
    depth = n_nodes = n_documents = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            n_nodes += isinstance(event, yaml.NodeEvent)
            n_documents += isinstance(event, yaml.DocumentStartEvent)
            _check_yaml_event(event)
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
            if n_nodes > max_nodes:
                raise ValueError(f"it has more than {max_nodes:,} values")
            if n_documents > 1:
                raise ValueError("it has a second document (---)")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(_one_line_message(error)) from error


def check_yaml_limits(value: Any, max_nodes: int = MAX_NODES) -> None:
    """Checks that a value, written as YAML, stays within the limits of `check_yaml`.

    Raises:
        ValueError: it exceeds a limit; the message names the field and a remedy.
    """
    _check_depth_and_lengths(value, "", 1)
    if (count := count_nodes(value)) > max_nodes:
        field, field_count = _largest_field(value)
        raise ValueError(
            f"{field or 'the configuration'} has {field_count:,} of {count:,} values and names, "
            f"but at most {max_nodes:,} can be read: give fewer values, or a file with them"
        )


def _check_depth_and_lengths(value: Any, field: str, depth: int) -> None:
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise ValueError(
            f"{field[:MAX_QUOTED_CHARACTERS]} is {value[:40]!r}… of {len(value):,} characters, but "
            f"at most {MAX_CHARACTERS:,} can be read: give a shorter text, or a file with it"
        )
    if not isinstance(value, dict | list):
        return
    if depth > MAX_DEPTH:
        raise ValueError(
            f"{field[:MAX_QUOTED_CHARACTERS]} is nested more than {MAX_DEPTH} deep: give a flatter "
            "value"
        )
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        _check_depth_and_lengths(str(name), f"a name in {field}" if field else "a name", depth)
        _check_depth_and_lengths(inner, f"{field}.{name}".lstrip("."), depth + 1)


def _largest_field(value: Any) -> tuple[str, int]:
    """The innermost field with more than half of all nodes, and its number of nodes."""
    field, count = "", count_nodes(value)
    half = count / 2
    while isinstance(value, dict) and value:
        name = max(value, key=lambda name: count_nodes(value[name]))
        if (inner := count_nodes(value[name])) <= half:
            break
        field, value, count = f"{field}.{name}".lstrip("."), value[name], inner
    return field, count


def _check_yaml_event(event: yaml.Event) -> None:
    line = event.start_mark.line + 1 if event.start_mark else 0
    if isinstance(event, yaml.AliasEvent):
        raise ValueError(f"line {line} has the alias *{event.anchor}, which no stage writes")
    if tag := getattr(event, "tag", None):
        raise ValueError(f"line {line} has the tag {tag}, which no stage writes")
    if not isinstance(event, yaml.ScalarEvent):
        return
    if len(event.value) > MAX_CHARACTERS:
        raise ValueError(f"line {line} has a value of more than {MAX_CHARACTERS:,} characters")
    if not event.style and BASE_60.fullmatch(event.value):
        raise ValueError(
            f"line {line} has {event.value[:40]}, a number in base 60 in YAML. Put it in quotes if "
            "it is a string"
        )


def _one_line_message(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def check_name_inside_folder(name: str) -> None:
    """Checks that a file name in a manifest is a path inside the folder.

    Raises:
        ValueError: it is absolute, contains `..`, or has unusual characters.
    """
    is_plain = name.isprintable() and "\\" not in name
    if not is_plain or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"it lists {name!r}, which is not a file name inside the folder")


def is_inside(folder: Path, name: str) -> bool:
    """Returns whether the file is inside the folder after all links are resolved."""
    real_folder = os.path.realpath(folder)
    return os.path.realpath(folder / name).startswith(real_folder.rstrip(os.sep) + os.sep)


def hydra_keys_in(value: Any) -> list[str]:
    """Returns the keys in a nested value that select code for Hydra, such as `_target_`."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value if str(key) in HYDRA_KEYS]
        return keys + [key for inner in value.values() for key in hydra_keys_in(inner)]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [key for inner in value for key in hydra_keys_in(inner)]
    return []


def count_values(value: Any) -> int:
    """Returns the number of nested values, lists and mappings, including `value` itself."""
    inner = value.values() if isinstance(value, dict) else value
    return 1 + sum(map(count_values, inner)) if isinstance(value, dict | list) else 1


def count_nodes(value: Any) -> int:
    """Returns the number of YAML nodes: those of `count_values`, and keys."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count_nodes, value.values()))
    return 1 + sum(map(count_nodes, value)) if isinstance(value, list) else 1


def escape_interpolations(value: Any) -> Any:
    """Returns the value with every `${…}` in its strings escaped for OmegaConf."""
    if isinstance(value, dict):
        return {k: escape_interpolations(v) for k, v in value.items()}
    if isinstance(value, list):
        return [escape_interpolations(v) for v in value]
    return re.sub(r"(\\*)(\$\{)", r"\1\1\\\2", value) if isinstance(value, str) else value


def parse_typed(value: Any, hint: Any, name: str = "") -> Any:
    """Returns plain data converted to a type hint; mappings may become dataclasses.

    Args:
        value: a value from JSON.
        hint: a dataclass, a plain type, or a list, dict or union of these; `object` allows any
            value, and `Any` any value except NaN.
        name: the name of the value, for error messages.

    Raises:
        ValueError: a field is missing, unknown or of another type, or a number is NaN.
    """
    kind, inner_hints = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is object:
        return value
    if dataclasses.is_dataclass(kind) and type(value) is dict:
        return _parse_dataclass(value, kind, f"{name}." if name else "")
    if kind in (typing.Union, types.UnionType):
        for choice in inner_hints:
            with suppress(ValueError):
                return parse_typed(value, choice, name)
    elif kind is list and type(value) is list:
        return [parse_typed(item, inner_hints[0], f"{name}[{i}]") for i, item in enumerate(value)]
    elif kind is dict and type(value) is dict:
        return {
            key: parse_typed(item, inner_hints[1], f"{name}.{key}") for key, item in value.items()
        }
    allowed = {float: (float, int), Any: (type(value),)}.get(hint, (kind,))
    if type(value) in allowed and value == value:  # a NaN does not equal itself
        return value
    raise ValueError(f"{name or 'it'} is {json.dumps(value):.40}")


def _parse_dataclass(value: dict[str, Any], kind: Any, prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        is_required = field.default is field.default_factory is dataclasses.MISSING
        if field.name not in value and is_required:
            raise ValueError(f"{prefix}{field.name} is missing")
    for unknown in sorted(value.keys() - hints.keys())[:1]:
        raise ValueError(f"{prefix}{unknown} is unknown")
    return kind(**{n: parse_typed(inner, hints[n], f"{prefix}{n}") for n, inner in value.items()})
