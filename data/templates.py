"""Fills templates from the columns of rows, and checks their format strings.

A benchmark has two levels: its source's `fields` are format strings over a row's columns, and its
template is a format string over these fields. A template for scoring (`examples.template`) is a
format string over the columns, or the name of a benchmark.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

from contamination.core.errors import ConfigError, DataError, near_names, require
from contamination.core.stored_files import read_yaml
from contamination.data.config import BenchmarkConfig, with_escapes
from contamination.data.readers.rows import Row, Tally
from contamination.data.words import is_blank

MAX_SPEC_CHARACTERS = 8  # a width with more digits would exhaust the memory


class _UnusableError(Exception):
    """A row that can't be used; its arguments are the reason and the details."""


class _NullRefusingFormatter(string.Formatter):
    """`str.format` over a row's columns, where null values are errors."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        column = _column_of(field_name)
        if "[" in field_name and isinstance(text := kwargs.get(column), str):
            detail = f"{field_name!r} is one letter of {text[:40]!r}: write only {{{column}}}"
            raise _UnusableError(f"the column {column!r} is a text, not a list", detail)
        value, first_key = super().get_field(field_name, args, kwargs)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            is_null = f"{field_name!r} is {'null' if value is None else 'NaN'}"
            raise _UnusableError("null field", is_null)
        if isinstance(value, list | tuple | dict):
            detail = f"{field_name!r} is {value!r}: name one of its values"
            raise _UnusableError("not a text", detail)
        return value, first_key


def check_formats(
    name: str, config: BenchmarkConfig, fields: Mapping[str, str], node: str = "benchmark"
) -> None:
    """Checks a benchmark's template and its source's fields, before any row is read.

    Args:
        name: the benchmark's name.
        config: the benchmark, with its template.
        fields: field → a format string over a row.
        node: the config node of the benchmark, for error messages.

    Raises:
        ConfigError: a format string is invalid, two fields of the template have nothing between
            them, or the source lacks a field.
    """
    template_fields = check_template(name, config.template, node)
    _check_fields_are_apart(f"{node}.{name}.template", config.template)
    for key, form in fields.items():
        option = f"the field {key!r} of {node}.{name}"
        for column, spec, _ in _parse_format_fields(option, form):
            too_long = f"the format of {column!r} is too long."
            require(len(spec or "") <= MAX_SPEC_CHARACTERS, option, form, too_long)
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
    """Returns the fields that a benchmark's template names.

    Raises:
        ConfigError: the template is invalid, formats or indexes a field, or names no field.
    """
    option, used = f"{node}.{name}.template", set()
    for field, spec, conversion in _parse_format_fields(option, template):
        remedy = f"its fields are texts: write only {{{field}}}."
        is_plain = not spec and not conversion and not {*".["} & {*field}
        require(is_plain, option, template, remedy)
        used.add(field)
    require(bool(used), option, template, "it names no field: all texts would be equal.")
    return used


def _parse_format_fields(
    option: str, format_string: str
) -> list[tuple[str, str | None, str | None]]:
    """Returns the name, format and conversion of each field in a format string."""
    try:
        return [
            (f, spec, c)
            for _, f, spec, c in string.Formatter().parse(format_string)
            if f is not None
        ]
    except ValueError as error:
        raise ConfigError(
            f"{option} is {format_string!r}: it is not a format string ({error}). Write a column "
            "or field as {name}, and a literal brace as {{ or }}."
        ) from error


def _check_fields_are_apart(option: str, template: str) -> None:
    """Raises a ConfigError if two fields follow one another: their words would be one."""
    names = [name for _, name, *_ in string.Formatter().parse(template)]
    literals = [literal for literal, *_ in string.Formatter().parse(template)]
    for first, literal, second in zip(names, literals[1:], names[1:], strict=False):
        remedy = f"write a blank or \\n between {{{first}}} and {{{second}}}."
        is_apart = bool(literal) or first is None or second is None
        require(is_apart, option, template, f"nothing separates these columns: {remedy}")


def fill_fields(
    row: Row, forms: Mapping[str, str], values: Mapping[str, Mapping[str, str]], tally: Tally
) -> dict[str, str] | None:
    """Returns a row's fields, or None if the row can't be used, which the tally counts.

    Args:
        row: the row.
        forms: field → a format string over the row's columns.
        values: field → texts to replace, with their replacements.
        tally: decides what happens with rows that can't be used.
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
        text.encode()  # JSON can encode lone surrogates
    except UnicodeEncodeError as error:
        raise _UnusableError("invalid UTF-8", f"the field {field_name!r}: {error}") from error
    except (KeyError, IndexError, AttributeError) as error:
        column_names = ", ".join(columns) or "none"
        raise _UnusableError(
            "missing field", f"{format_string!r}: {error}; it has {column_names}"
        ) from error
    except (ValueError, TypeError) as error:
        raise _UnusableError("field can't be formatted", f"{format_string!r}: {error!r}") from error
    text = str(replacements.get(text, text)).strip()
    if is_blank(text):
        raise _UnusableError("empty field", f"{field_name!r} is blank")
    return text


BENCHMARKS_FOLDER = Path(__file__).parents[1] / "conf" / "benchmark"
TEMPLATE_FIELD = "examples.template"


@dataclass(frozen=True)
class RowTemplate:
    """A template for scoring, for rows with the first row's columns.

    Attributes:
        template: a format string over the fields.
        forms: field → a format string over a row's columns.
        values: field → texts to replace, with their replacements.
    """

    template: str
    forms: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]] = dataclass_field(default_factory=dict)

    @classmethod
    def of(cls, template: str, row: Mapping[str, Any]) -> RowTemplate:
        """Returns the template of a format string or of a benchmark's name.

        Args:
            template: the value of `examples.template`.
            row: the first row.

        Raises:
            ConfigError: it is neither, names a column that there is not, or has nothing between
                two columns.
        """
        if re.fullmatch(r"\w+", template):
            return cls._of_benchmark(template, row)
        template = with_escapes(template)
        named = _parse_format_fields(TEMPLATE_FIELD, template)
        require(
            bool(named), TEMPLATE_FIELD, template, "it names no column: all texts would be equal."
        )
        for name, spec, conversion in named:
            require(
                not spec and not conversion, TEMPLATE_FIELD, template, f"write only {{{name}}}."
            )
        _check_fields_are_apart(TEMPLATE_FIELD, template)
        _check_columns(template, {TEMPLATE_FIELD: template}, [*row])
        return cls(template, {name: f"{{{name}}}" for name, _, _ in named})

    @classmethod
    def _of_benchmark(cls, name: str, row: Mapping[str, Any]) -> RowTemplate:
        """Takes the fields of the source whose columns the row has, or else these by their names.

        A source that takes one of several values of a column does not suit a column of texts.
        """
        names = sorted(path.stem for path in BENCHMARKS_FOLDER.glob("*.yaml"))
        remedy = "give a format string such as 'Question: {question}\\nAnswer: {answer}', or "
        require(name in names, TEMPLATE_FIELD, name, f"{remedy}a benchmark: {', '.join(names)}.")
        benchmark = read_yaml(BENCHMARKS_FOLDER / f"{name}.yaml")[name]
        template: str = benchmark["template"]
        sources = [source for source in benchmark["sources"].values() if "fields" in source]
        for source in sources:
            forms = source["fields"]
            if not _missing_columns(forms, [*row]) and not _indexes_a_text(forms, row):
                return cls(template, source["fields"], source.get("values") or {})
        fields = {key: f"{{{key}}}" for key, _, _ in _parse_format_fields(TEMPLATE_FIELD, template)}
        _check_columns(template, fields, [*row])
        return cls(template, fields)

    def fill(self, row: Row, tally: Tally) -> tuple[str, int | None] | None:
        """Returns a row's text, and the start of its last field if no text follows that field.

        Returns None if the row can't be used, which the tally counts.
        """
        fields = fill_fields(row, self.forms, self.values, tally)
        if fields is None:
            return None
        parts = [*string.Formatter().parse(self.template)]
        text = "".join(
            literal + ("" if name is None else fields[name]) for literal, name, _, _ in parts
        )
        last = parts[-1][1]
        return text, None if last is None or len(parts) < 2 else len(text) - len(fields[last])


def _named_in(forms: Mapping[str, str]) -> list[str]:
    named = {name for key, form in forms.items() for name, _, _ in _parse_format_fields(key, form)}
    return sorted(named)


def _column_of(name: str) -> str:
    return re.split(r"[.\[]", name)[0]


def _missing_columns(forms: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    return [name for name in _named_in(forms) if _column_of(name) not in columns]


def _indexes_a_text(forms: Mapping[str, str], row: Mapping[str, Any]) -> bool:
    indexed = [name for name in _named_in(forms) if "[" in name]
    return any(isinstance(row.get(_column_of(name)), str) for name in indexed)


def _advice_on_semicolons(columns: Sequence[str]) -> str:
    if len(columns) != 1 or ";" not in columns[0]:
        return ""
    return " If the file has semicolons between its columns, save it with commas."


def _check_columns(template: str, forms: Mapping[str, str], columns: Sequence[str]) -> None:
    for name in _missing_columns(forms, columns):
        raise DataError(
            f"{TEMPLATE_FIELD} is {template!r}: the rows have no column {name!r}, but "
            f"{', '.join(columns) or 'none'}. Use these in the template, or name the column with "
            f"examples.columns.{name}=COLUMN.{_advice_on_semicolons(columns)}"
        )
