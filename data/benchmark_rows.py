"""Reads the rows of a labelled benchmark's parts, with the fields id, text, label and benchmark.

An id is `<benchmark>/<values of the part>/<the row's own id or number>`. It is the same whether the
row is read from the hub or from a file, and whichever other parts are read. The first two elements
name the part and are also the row's `benchmark`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, count, islice
from pathlib import Path

import pyarrow.compute as pc

from contamination.core.errors import ConfigError, DataError
from contamination.core.hub import download_snapshot
from contamination.data.benchmark_parts import (
    BenchmarkPart,
    available_values_by_axis,
    chosen_parts,
    chosen_values_by_axis,
    describe_part_values,
    split_by_labels,
)
from contamination.data.config import AXES, ExamplesConfig, PlaceConfig, SourceConfig
from contamination.data.readers.files import FORMAT_BY_SUFFIX
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import fold_name, raw_rows, value_as_text
from contamination.data.texts import Texts

HUB_PATH = "hub"  # the value of `examples.path` if each source names its own data set
TEXT_COLUMN = "text"
NO_AXIS_VALUE = "unknown"  # the value of an axis that a row does not have
SIDE_BY_LABEL = {1: "member", 0: "non-member"}
MAX_LISTED_FILES = 10
STANDARD_FIELDS = ("id", "text", "label", "cluster")
PARTS_OF_TEXT = ("prompt", "output")
"""The columns that together are the text, if `examples.columns` names them (TOFU)."""
CLUSTER_REMEDY = ", or make each text a cluster of its own by ~examples.columns.cluster"
SHARD_NUMBER = re.compile(r"-\d{5}-of-\d{5}(?=\.)|^\d{4}(?=\.parquet$)")
"""Matches the numbers of files of one split: their rows are numbered consecutively."""
MISSING_SPLIT = re.compile(r"(Bad|Unknown) split|examples\.split is ")
"""Matches the errors of `datasets` and of this project about a missing split."""
SAVE_TO_DISK_FILES = ("dataset_dict.json", "state.json")
"""Files that identify a folder written by datasets' `save_to_disk`."""
log = logging.getLogger(__name__)


class MissingPartError(DataError):
    """A folder or a data set does not have a part of a benchmark."""


def benchmark_rows(examples: ExamplesConfig, tally: Tally) -> Iterator[Row]:
    """Yields the rows of the chosen parts.

    Raises:
        ConfigError: there is no such part.
        DataError: a file, a split or a column is missing.
    """
    parts = chosen_parts(examples)
    if is_single_file_or_stream(examples.path):
        shared = set.intersection(*({*part.values.items()} for part in parts))
        rows = raw_rows(_plain_texts_config(examples), tally, bare=TEXT_COLUMN)
        yield from _choose_rows(rows, examples, parts, dict(shared), examples.sources)
        return
    missing: dict[str, DataError] = {}
    for part in parts:
        rows_by_source = [_open_source_rows(s, part, examples, tally) for s in part.sources]
        errors = [error for error in rows_by_source if isinstance(error, MissingPartError)]
        if len(errors) == len(rows_by_source):
            missing[describe_part_values(part.values)] = errors[0]
            continue
        for source, source_rows in zip(part.sources, rows_by_source, strict=True):
            if isinstance(source_rows, MissingPartError):  # another source of the part exists
                raise source_rows
            yield from _choose_rows(source_rows, examples, [part], part.values, [source])
    if len(missing) == len(parts):
        raise next(iter(missing.values()))
    if missing:
        log.warning(
            "examples.path is %r: it has no %s. The tables show the other parts only.",
            examples.path, "; no ".join(missing),
        )  # fmt: skip


def _open_source_rows(
    source: SourceConfig, part: BenchmarkPart, examples: ExamplesConfig, tally: Tally
) -> Iterator[Row] | MissingPartError:
    """Returns the raw rows of a part's source, or the error if the source is missing."""
    rows = read_place_rows(fill_axis_values(source, source, part, examples), examples, tally)
    try:
        first = [*islice(rows, 1)]
    except MissingPartError as error:
        return error
    return chain(first, rows)


def check_parts_have_both_labels(examples: ExamplesConfig, texts: Texts) -> None:
    """Raises a DataError unless each part has both members and non-members."""
    for name in texts.column("benchmark").unique().to_pylist():
        labels = texts.column("label").filter(pc.equal(texts.column("benchmark"), name))
        if {True, False} <= set(labels.unique().to_pylist()):
            continue
        counts = {str(c["values"]): c["counts"].as_py() for c in labels.value_counts()}
        names = {"True": "members", "False": "non-members", "None": "without a label"}
        counts_text = ", ".join(f"{n} {names[value]}" for value, n in counts.items())
        raise DataError(
            f"examples.path is {examples.path!r}: {name} has {counts_text}, but a benchmark needs "
            "members and non-members. Check its column "
            f"{examples.columns.get('label', 'label')!r} (1 is a member), or score it without "
            "examples=…: examples.path alone."
        )


def fill_axis_values(
    place: PlaceConfig, source: PlaceConfig, part: BenchmarkPart, examples: ExamplesConfig
) -> PlaceConfig:
    """Returns a place of a source with the part's values and the user's path filled in."""

    def fill(text: str | None) -> str | None:
        return text and text.format_map(part.values)

    path = fill(place.path or source.path) if examples.path == HUB_PATH else examples.path
    filled_in = {name: fill(getattr(place, name)) for name in ("subset", "split", "files")}
    return PlaceConfig(path, **filled_in, converted=fill(place.converted), column=place.column)


def read_place_rows(place: PlaceConfig, examples: ExamplesConfig, tally: Tally) -> Iterator[Row]:
    """Yields the raw rows of a place: of a data set's split, or of files in a folder."""
    folder = Path(place.path or "").expanduser()
    if not folder.is_dir() and (place.split is None):
        patterns = [f"*{place.files or ''}"]  # `converted` is on another branch
        folder = download_snapshot("examples.path", str(place.path), patterns, kind="dataset")
    if not folder.is_dir() or any((folder / name).is_file() for name in SAVE_TO_DISK_FILES):
        dataset = replace(_plain_texts_config(examples), path=str(place.path), subset=place.subset)
        split = place.split or (place.converted or "").rpartition("/")[2] or examples.split
        with _missing_split_as_missing_part():
            yield from raw_rows(replace(dataset, split=split), tally)
        return
    files = _matching_files(folder, place)
    numbered = count() if len({SHARD_NUMBER.sub("", file.name) for file in files}) == 1 else None
    for file in files:
        file_format = next(
            FORMAT_BY_SUFFIX[s] for s in reversed(file.suffixes) if s in FORMAT_BY_SUFFIX
        )
        # the format is given, since the hub's files are links to blobs without a suffix
        one_file = replace(_plain_texts_config(examples), path=str(file), format=file_format)
        for row in raw_rows(one_file, tally, bare=TEXT_COLUMN):
            row_id = f"{file.name}-{row.number - 1}" if numbered is None else str(next(numbered))
            id_field = {examples.columns.get("id") or "id": row_id}
            yield row if len(files) == 1 else row._replace(value={**id_field, **row.value})


def _plain_texts_config(examples: ExamplesConfig) -> ExamplesConfig:
    return ExamplesConfig(examples.path, examples.format, on_error=examples.on_error)


@contextmanager
def _missing_split_as_missing_part() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        if MISSING_SPLIT.search(str(error)):
            raise MissingPartError(str(error)) from error
        raise


def _matching_files(folder: Path, place: PlaceConfig) -> list[Path]:
    """Returns the folder's files that match the place, or those that the hub converted.

    Raises:
        MissingPartError: no file matches.
    """
    pattern = place.files or "*"
    kinds = {suffix for suffix, kind in FORMAT_BY_SUFFIX.items() if kind != "text"}
    candidates = [p for p in sorted(folder.rglob("*")) if kinds & {*p.suffixes} and p.is_file()]
    names = {path: path.relative_to(folder).as_posix() for path in candidates}
    converted = [f"{place.converted}/*.parquet"] if place.converted is not None else []
    files: list[Path] = []
    for name_pattern in [pattern, *converted]:
        files = files or [
            path for path, name in names.items() if fnmatchcase(f"/{name}", f"*/{name_pattern}")
        ]
    if not files:
        examples_of_names = (
            ", ".join([*names.values()][:MAX_LISTED_FILES]) or "no file of a known kind"
        )
        raise MissingPartError(
            f"examples.path is {str(folder)!r}: it has no file {pattern}. It has "
            f"{examples_of_names}{' …' * (len(candidates) > MAX_LISTED_FILES)}."
        )
    return files


def is_single_file_or_stream(path: str) -> bool:
    """Returns whether the rows come from one file or from a stream."""
    source = Path(path).expanduser()
    return path == "-" or source.is_file() or source.is_fifo()


def _choose_rows(
    rows: Iterable[Row],
    examples: ExamplesConfig,
    parts: Sequence[BenchmarkPart],
    part_values: Mapping[str, str],
    sources: Sequence[SourceConfig],
) -> Iterator[Row]:
    """Yields the chosen rows of the parts with the standard names of fields.

    In a single file, a row's own column for an axis takes precedence over `part_values` if the
    benchmark has the column's value. (The `length` in a WikiMIA file may instead be the row's
    number of words.)

    Raises:
        ConfigError: the file has several parts, and a row does not say to which part it belongs.
        DataError: a column is missing, or no row is chosen.
    """
    chosen_values, available = chosen_values_by_axis(examples), available_values_by_axis(examples)
    left_out = {axis: Counter[str]() for axis in chosen_values}
    n_chosen = 0
    for row, label in _rows_with_source_labels(
        _rows_after_column_check(rows, examples, sources), examples, sources
    ):
        row_values = {
            axis: value
            for axis, value in _axis_values_of_row(row).items()
            if not available or value in available.get(axis, ())
        }
        in_one_file = is_single_file_or_stream(examples.path)
        all_values = {**part_values, **row_values} if in_one_file else {**row_values, **part_values}
        if missing := sorted(parts[0].values.keys() - all_values.keys()):
            choices = " ".join(f"examples.{axis}={chosen_values[axis][0]}" for axis in missing)
            raise ConfigError(
                f"examples.path is {examples.path!r}: one file is read as {len(parts)} parts of "
                f"{examples.name}, but a row has no column {', '.join(missing)}. Say which part it "
                f"is, such as {choices}, or give the folder of all files."
            )
        not_chosen = [
            axis
            for axis, values in chosen_values.items()
            if all_values.get(axis, NO_AXIS_VALUE) not in values
        ]
        for axis in not_chosen:
            left_out[axis][all_values.get(axis, NO_AXIS_VALUE)] += 1
        if not not_chosen:
            n_chosen += 1
            ordered = [all_values[axis] for axis in AXES if axis in all_values]
            standard_row = _with_standard_fields(row, examples, ordered, label)
            size = examples.label_words
            yield from split_by_labels(standard_row, size) if size else [standard_row]
    _log_left_out(examples, n_chosen, left_out)


def _log_left_out(
    examples: ExamplesConfig, n_chosen: int, left_out: Mapping[str, Counter[str]]
) -> None:
    """Logs the values of rows that were not chosen; raises a DataError if none was chosen."""
    left_out = {axis: values for axis, values in left_out.items() if values}
    description = "; ".join(f"{axis} {', '.join(values)}" for axis, values in left_out.items())
    if left_out and not n_chosen:
        fields = ", ".join(f"examples.{axis}={getattr(examples, axis)}" for axis in left_out)
        raise DataError(
            f"{fields}: no row of examples.path={examples.path!r} matches. They have {description}."
        )
    if left_out:
        log.info("%s: rows of %s are left out.", examples.name, description)


def _rows_with_source_labels(
    rows: Iterable[Row], examples: ExamplesConfig, sources: Sequence[SourceConfig]
) -> Iterator[tuple[Row, int | None]]:
    """Yields each row with the label of its source; a row with texts of both labels becomes two.

    The rows of a single file have no source: each has its own label.
    """
    columns = {fold_name(source.column): source for source in sources if source.column}
    for row in rows:
        names = [name for name in row.value if fold_name(name) in columns]
        other_columns = {name: value for name, value in row.value.items() if name not in names}
        for name in names:
            if row.value[name] is not None:  # there may be fewer members or non-members
                text = {examples.columns.get("text") or "text": row.value[name]}
                yield row._replace(value={**other_columns, **text}), columns[fold_name(name)].label
        if not names:
            yield row, None if is_single_file_or_stream(examples.path) else sources[0].label


def _rows_after_column_check(
    rows: Iterable[Row], examples: ExamplesConfig, sources: Sequence[SourceConfig]
) -> Iterator[Row]:
    """Yields the rows; raises a DataError if the first row lacks a required column."""
    rows = iter(rows)
    for first in islice(rows, 1):
        columns = [*map(fold_name, first.value)]
        required = _names_of_text(examples)
        if is_single_file_or_stream(examples.path) or sources[0].label is None:
            required += ["label"]
        if examples.columns.get("cluster"):
            required += ["cluster"]
        if any(fold_name(source.column) in columns for source in sources if source.column):
            required = []
        for name in required:
            column = examples.columns.get(name) or name
            if fold_name(column) not in columns:
                if first.value.keys() == {TEXT_COLUMN} and isinstance(
                    first.value[TEXT_COLUMN], list
                ):
                    raise DataError(
                        f"{first.where}: it is a list, not a row. Give JSON Lines: one object per "
                        "line, without brackets around them."
                    )
                remedy = f"examples.columns.{name}=…{CLUSTER_REMEDY if name == 'cluster' else ''}"
                raise DataError(
                    f"{first.where}: there is no column {column!r} for the {name} of "
                    f"{examples.name}; its columns are "
                    f"{', '.join(map(str, first.value)) or 'none'}. Name the right column with "
                    f"{remedy}."
                )
        yield first
    yield from rows


def _names_of_text(examples: ExamplesConfig) -> list[str]:
    """Returns the fields that make up a row's text: `text`, or a prompt and an output."""
    return [*PARTS_OF_TEXT] if PARTS_OF_TEXT[0] in examples.columns else ["text"]


def _axis_values_of_row(row: Row) -> dict[str, str]:
    fields = {fold_name(name): value for name, value in row.value.items()}
    values = {axis: value_as_text(fields.get(axis)) for axis in AXES}
    return {axis: value for axis, value in values.items() if value}


def _with_standard_fields(
    row: Row, examples: ExamplesConfig, part_values: Sequence[str], label: int | None
) -> Row:
    """Returns the row with STANDARD_FIELDS under these names, and the name of its part."""
    fields = {fold_name(name): value for name, value in row.value.items()}
    names = dict.fromkeys([*STANDARD_FIELDS, *_names_of_text(examples)])
    columns = {name: examples.columns.get(name) or name for name in names}
    if "prompt" in columns:
        del columns["text"]
    renamed = {name: fields.get(fold_name(column)) for name, column in columns.items()}
    part_name = "/".join([str(fields.get("benchmark") or examples.name), *part_values])
    row_id = row.number - 1 if renamed["id"] in (None, "") else renamed["id"]
    if label is not None:  # members and non-members have the same numbers
        renamed["label"], row_id = label, f"{SIDE_BY_LABEL[label]}-{row_id}"
    return row._replace(value={**renamed, "id": f"{part_name}/{row_id}", "benchmark": part_name})
