"""Converts rows to texts, with checks of ids, labels and outputs, and digests of texts."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contamination.core.errors import DataError
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.data.config import ExamplesConfig
from contamination.data.readers.rows import Row, Tally, describe_skipped
from contamination.data.rows import fold_name, is_missing, rows_with_name_warnings, value_as_text
from contamination.data.templates import RowTemplate
from contamination.data.texts import Text, Texts

LABELS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "member"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "nonmember"), False),
    "": None,
}
NON_MEMBER = re.compile(r"non[\s_\u2010-\u2015-]+member")  # spellings of "non-member" in lower case
OUTPUT_START = "output_start"
FIELDS = ("id", "text", "label", "benchmark", OUTPUT_START, "cluster")
RESERVED_BENCHMARKS = {ALL_BENCHMARKS: "the mean over benchmarks", "pooled": "all texts together"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowLayout:
    """How rows are converted to texts.

    Attributes:
        template: see `ExamplesConfig.template`.
        columns: field → the column that contains it, if it is named differently.
        separator: see `ExamplesConfig.separator`.
        limit: the maximum number of texts; None: all are read.
    """

    template: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    separator: str = " "
    limit: int | None = None

    @classmethod
    def of(cls, examples: ExamplesConfig) -> RowLayout:
        """Returns the layout of rows that are not a labelled benchmark."""
        return cls(examples.template, examples.columns, examples.separator, examples.limit)


DEFAULT_LAYOUT = RowLayout()
"""The layout of rows with a `text`, or a `prompt` and an `output`, in the standard columns."""


def texts_of_rows(
    rows: Iterable[Row], tally: Tally, source: str, layout: RowLayout = DEFAULT_LAYOUT
) -> Texts:
    """Returns the rows' texts, in their order.

    A row has a `text` and may have an `id` (by default its number from 0), a `label`, a
    `benchmark`, a `cluster` (the unit to which it belongs, such as a book) and an `output_start`,
    the number of its output's first character. In place of `text` and `output_start` it may have a
    `prompt` and an `output`, or the columns of a template. Case and surrounding blanks of these
    names are ignored.

    Args:
        rows: the rows.
        tally: decides what happens with a row that can't be used.
        source: the name of their source in errors.
        layout: the template, and columns with other names.

    Raises:
        DataError: a row can't be used, an id occurs twice, a benchmark has a reserved name, there
            is no row, or the first row lacks a column that the layout names.
    """
    texts = _iter_texts_or_none(
        rows_with_name_warnings(_with_named_columns(rows, layout), source), tally, layout
    )
    examples = Texts.of(islice((text for text in texts if text is not None), layout.limit))
    if tally.skipped:
        log.warning("%s: %s", source, describe_skipped(tally.skipped))
    return check_ids_and_benchmarks(source, examples)


def examples_digest(examples: Sequence[Text]) -> str:
    """Returns the SHA-256 of ids and texts in any order.

    Labels are not included, so that the cells of a sweep share scores of the clean model.
    """
    texts = Texts.of(examples)
    ordered = texts.take(texts.sorting_indices("sha256", "example_id"))
    return lines_digest(f"{e.sha256} {e.example_id}" for e in ordered)


def texts_digest(texts: Sequence[Text]) -> str:
    """Returns the SHA-256 of the texts in the given order, without their ids."""
    return lines_digest(t.sha256 for t in texts)


def lines_digest(lines: Iterable[str]) -> str:
    """Returns the SHA-256 of the lines joined by newlines."""
    digest = hashlib.sha256()
    for number, line in enumerate(lines):
        digest.update((f"\n{line}" if number else line).encode())
    return digest.hexdigest()


def make_text(
    example_id: str,
    text: str,
    label: bool | None,
    benchmark: str,
    output_start: int | None = None,
) -> Text:
    """Returns a text with its SHA-256."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Text(example_id, text, sha256, label, benchmark, output_start)


def parse_label(value: Any) -> bool | None:
    """Returns whether a label means "member"; None if it is empty.

    Members are 1, true, yes and "member"; non-members are 0, false, no and "non-member", also
    written "non_member", "non member" or "nonmember". Case is ignored.

    Raises:
        ValueError: the label is anything else, including NaN.
    """
    if is_missing(value) and not isinstance(value, Real):
        return None
    if isinstance(value, str):
        name = NON_MEMBER.sub("nonmember", value.strip().lower())
        if name in LABELS:
            return LABELS[name]
    if isinstance(value, np.bool_ | Real) and value in (0, 1):
        return bool(value)
    raise ValueError(value)


def row_id(row: Row) -> str:
    """Returns the row's `id`, by default its number from 0."""
    named = {fold_name(name): value for name, value in row.value.items()}
    return value_as_text(named.get("id")) or str(row.number - 1)


def check_ids_and_benchmarks(source: str, examples: Texts) -> Texts:
    """Returns the texts after a check of their ids and their benchmarks' names.

    Raises:
        DataError: there is no text, an id occurs twice, or a benchmark has a reserved name.
    """
    if not examples:
        raise DataError(f"{source}: it has no example. Give at least one text.")
    ordered = examples.take(examples.sorting_indices("example_id"))
    ids = ordered.column("example_id").combine_chunks()
    duplicate_ids = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
    if len(duplicate_ids):
        raise DataError(
            f"{source}: the id {duplicate_ids[0].as_py()!r} occurs twice. Give each row its "
            "own `id`, or none: the id is then the row's number, from 0."
        )
    for name, meaning in RESERVED_BENCHMARKS.items():
        index = pc.index(examples.column("benchmark"), name).as_py()
        if index >= 0:
            raise DataError(
                f"{source}: the benchmark of {examples[index].example_id!r} is called {name!r}, "
                f"which is reserved for {meaning}. Give it another name."
            )
    _warn_of_both_labels(source, examples)
    return examples


def _warn_of_both_labels(source: str, examples: Texts) -> None:
    """Warns about texts that are both members and non-members, which no score can distinguish."""
    columns = {name: examples.column(name) for name in ("sha256", "label", "example_id")}
    labels_by_text = pa.table(columns).filter(pc.is_valid(columns["label"])).group_by("sha256")
    groups = labels_by_text.aggregate([("label", "min"), ("label", "max"), ("example_id", "list")])
    both = groups.filter(pc.not_equal(groups["label_min"], groups["label_max"]))
    if len(both):
        first, second, *_ = both["example_id_list"][0].as_py()
        log.warning(
            "%s: %d %s both as a member and as a non-member, such as %s and %s. No score can "
            "tell these apart, so every AUROC is nearer to 0.5. Remove them, or give both the same "
            "label.",
            *(source, len(both), "text occurs" if len(both) == 1 else "texts occur", first, second),
        )


def _with_named_columns(rows: Iterable[Row], layout: RowLayout) -> Iterator[Row]:
    """Yields the rows with the columns of `layout.columns` renamed to their fields."""
    rows = iter(rows)
    for first in islice(rows, 1):
        for name, column in layout.columns.items():
            if column not in first.value:
                raise DataError(
                    f"examples.columns.{name} is {column!r}: {first.where} has no such column, but "
                    f"{', '.join(map(str, first.value)) or 'none'}. Give one of these."
                )
        rows = chain([first], rows)
    for row in rows:
        named = {name: row.value.get(column) for name, column in layout.columns.items()}
        renamed = {column for name, column in layout.columns.items() if column != name}
        others = {
            key: value
            for key, value in row.value.items()
            if fold_name(key) not in named and key not in renamed
        }
        yield row._replace(value={**others, **named}) if named else row


def _iter_texts_or_none(
    rows: Iterable[Row], tally: Tally, layout: RowLayout
) -> Iterator[Text | None]:
    """Yields each row's text, or None if the row can't be used, which the tally counts."""
    template: RowTemplate | None = None
    for row in rows:
        if layout.template is not None:
            template = template or RowTemplate.of(
                layout.template, {str(name): value for name, value in row.value.items()}
            )
            if (filled := template.fill(row, tally)) is None:
                yield None
                continue
            row = _with_text(row, *filled)
        yield _make_text_of_row(row, tally, layout)


def _with_text(row: Row, text: str, start: int | None) -> Row:
    """Returns the row with its text and output replaced."""
    replaced = {"text", "prompt", "output", OUTPUT_START}
    others = {key: value for key, value in row.value.items() if fold_name(key) not in replaced}
    return row._replace(value={**others, "text": text, OUTPUT_START: start})


def _make_text_of_row(row: Row, tally: Tally, layout: RowLayout) -> Text | None:
    """Returns the row's text, or None if it can't be used, which the tally counts."""
    field_names = [*map(fold_name, row.value)]
    fields = dict(zip(field_names, row.value.values(), strict=True))
    if len(fields) < len(field_names) and any(field_names.count(name) > 1 for name in FIELDS):
        tally.reject("two fields of one name", row.where, _describe_fields(row))
        return None
    text, start = _text_and_output_start(fields, layout.separator)
    if not isinstance(text, str):
        problem = "it is missing or null" if is_missing(text) else f"a {type(text).__name__}"
        has = _describe_fields(row) + ("" if layout.template or "text" in fields else _hint(row))
        tally.reject("no string as its `text`", row.where, f"{problem}; {has}")
        return None
    for field_name in ("id", "benchmark", "cluster"):
        if isinstance(fields.get(field_name), list | dict | np.ndarray):
            type_name = type(fields[field_name]).__name__
            tally.reject(
                f"a nested `{field_name}`", row.where, f"a {type_name}; give a text or a number"
            )
            return None
    text_id = row_id(row)
    benchmark, cluster = (
        value_as_text(fields.get("benchmark")),
        value_as_text(fields.get("cluster")),
    )
    try:
        f"{text}{text_id}{benchmark}{cluster}".encode()  # JSON can encode lone surrogates
        example = make_text(text_id, text, None, benchmark, parse_output_start(start, text))
        return replace(example, label=parse_label(fields.get("label")), cluster=cluster)
    except UnicodeEncodeError as error:
        tally.reject("invalid UTF-8", row.where, str(error))
    except IndexError:
        remedy = f"give a whole number from 0 to {len(text)}, the number of characters of its text"
        tally.reject(f"output_start is {start!r}", row.where, remedy)
    except ValueError as error:
        remedy = "give 1, true, yes or member; 0, false, no or non-member; or nothing"
        tally.reject(f"label is {error.args[0]!r}", row.where, remedy)
    return None


def _text_and_output_start(fields: Mapping[str, Any], separator: str) -> tuple[Any, Any]:
    """Returns a row's text and the start of its output, or those of its `prompt` and `output`.

    Prompt and output are never joined without white space or the separator between them.
    """
    prompt, output = fields.get("prompt"), fields.get("output")
    if fields.get("text") is None and isinstance(prompt, str) and isinstance(output, str):
        if prompt and output and not prompt[-1].isspace() and not output[0].isspace():
            prompt += separator
        return prompt + output, len(prompt)
    return fields.get("text"), fields.get(OUTPUT_START)


def parse_output_start(start: Any, text: str) -> int | None:
    """Returns the start of a text's output as a number, or None if the row has none.

    Raises:
        IndexError: it is not a position in the text.
    """
    if is_missing(start) or start == "":
        return None
    try:
        position = int(start)
        is_whole = not isinstance(start, bool) and position == float(start)
    except (TypeError, ValueError, OverflowError) as error:
        raise IndexError(start) from error
    if not is_whole or not 0 <= position <= len(text):
        raise IndexError(start)
    return position


def _hint(row: Row) -> str:
    """Says how the first columns that are no fields would become a text, if there are any."""
    others = [str(name) for name in row.value if fold_name(name) not in FIELDS]
    others.sort(key=lambda name: {"question": 0, "answer": 1}.get(fold_name(name), 2))
    template = "\\n".join(f"{{{name}}}" for name in others[:2])
    return f"; examples.template='{template}' would make a text of these" if others else ""


def _describe_fields(row: Row) -> str:
    return f"its fields are {', '.join(map(str, row.value)) or 'none'}"
