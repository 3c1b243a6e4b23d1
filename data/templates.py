"""Fills the fields of a benchmark's template from a row's columns, and checks the formats."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

from contamination.core.errors import ConfigError, near_names, require
from contamination.data.config import BenchmarkConfig
from contamination.data.readers.rows import Row, Tally
from contamination.data.text import is_blank

SPEC_CHARACTERS = 8  # a width of more digits would fill the memory


class _UnusableError(Exception):
    """A row that can't be used; its arguments are the reason and the details."""


class _NullRefusingFormatter(string.Formatter):
    """`str.format` over a row's columns, in which a null is an error."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value, first = super().get_field(field_name, args, kwargs)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            is_null = f"{field_name!r} is {'null' if value is None else 'NaN'}"
            raise _UnusableError("null field", is_null)
        if isinstance(value, list | tuple | dict):
            detail = f"{field_name!r} is {value!r}: name one of its values"
            raise _UnusableError("not a text", detail)
        return value, first


def check_formats(
    name: str, config: BenchmarkConfig, fields: Mapping[str, str], node: str = "benchmark"
) -> None:
    """Check a benchmark's template and its source's fields, before any row is read.

    Args:
        name: the benchmark's name.
        config: the benchmark, with its template.
        fields: formats over a row.
        node: the config node of the benchmark, for errors.

    Raises:
        ConfigError: a format string is invalid, or the source lacks a field.
    """
    template_fields = check_template(name, config.template, node)
    for key, form in fields.items():
        option = f"the field {key!r} of {node}.{name}"
        for column, spec, _ in _parse_format_fields(option, form):
            too_long = f"the format of {column!r} is too long to be meant."
            require(len(spec or "") <= SPEC_CHARACTERS, option, form, too_long)
            index = f"write {column.replace('.', '[', 1)}] for a value inside a column."
            require("." not in column, option, form, f"a column has no attributes: {index}")
    field_options = (config.distinct, config.shorten, config.answer_field)
    named = template_fields | {field for field in field_options if field is not None}
    for unknown in sorted(named - set(fields)):
        raise ConfigError(
            f"{node}.{name} names the field {unknown!r}, which its source lacks. "
            f"{near_names(unknown, fields)}"
        )


def check_template(name: str, template: str, node: str = "benchmark") -> set[str]:
    """Return the fields that a benchmark's template names.

    Raises:
        ConfigError: the template is invalid, formats or indexes a field, or names none.
    """
    option, used = f"{node}.{name}.template", set()
    for field, spec, conversion in _parse_format_fields(option, template):
        remedy = f"its fields are texts: write {{{field}}} alone."
        is_plain = not spec and not conversion and not {*".["} & {*field}
        require(is_plain, option, template, remedy)
        used.add(field)
    require(bool(used), option, template, "it names no field: all texts would be equal.")
    return used


def _parse_format_fields(
    option: str, format_string: str
) -> list[tuple[str, str | None, str | None]]:
    """Return the name, format and conversion of each field that a format string names."""
    try:
        return [
            (f, spec, c)
            for _, f, spec, c in string.Formatter().parse(format_string)
            if f is not None
        ]
    except ValueError as error:
        raise ConfigError(
            f"{option} is {format_string!r}: it is not a format string ({error}). Write a column "
            "or field as {name}, and a brace of the text itself as {{ or }}."
        ) from error


def fill_fields(
    row: Row, forms: Mapping[str, str], values: Mapping[str, Mapping[str, str]], tally: Tally
) -> dict[str, str] | None:
    """Return a row's fields, or None if the row can't be used, which the tally counts.

    Args:
        row: the row.
        forms: for each field, a format string over the row's columns.
        values: for each field, texts to replace.
        tally: decides on rows that can't be used.
    """
    try:
        return {k: _fill_field(row.value, k, form, values.get(k, {})) for k, form in forms.items()}
    except _UnusableError as error:
        reason, detail = error.args
        tally.reject(reason, row.where, detail)
        return None


def _fill_field(
    columns: Mapping[str, Any], field_name: str, format_string: str, replacements: Mapping[str, str]
) -> str:
    try:
        text = _NullRefusingFormatter().vformat(format_string, (), columns)
        text.encode()  # JSON may spell half of a surrogate pair, which is no text
    except UnicodeEncodeError as error:
        raise _UnusableError("invalid UTF-8", f"the field {field_name!r}: {error}") from error
    except (KeyError, IndexError, AttributeError) as error:
        has = ", ".join(columns) or "none"
        raise _UnusableError(
            "missing field", f"{format_string!r}: {error}; it has {has}"
        ) from error
    except (ValueError, TypeError) as error:
        raise _UnusableError("field can't be formatted", f"{format_string!r}: {error!r}") from error
    text = str(replacements.get(text, text)).strip()
    if is_blank(text):
        raise _UnusableError("empty field", f"{field_name!r} is blank")
    return text
