"""The rows of a labelled benchmark, as `detection.examples` reads any: id, text, label, benchmark.

An id is `<benchmark>/<values of the part>/<the row's own id or its number>`, so that it is the same
whatever else is read, from the hub and from a file. The first two name the part: the row's
`benchmark`.
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
from contamination.core.hub import snapshot
from contamination.data.benchmark_parts import Part, chosen, known_of, parts_of, pieces, words
from contamination.data.config import AXES, ExamplesConfig, PlaceConfig, SourceConfig
from contamination.data.readers.files import FORMATS
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import folded, raw_rows, word
from contamination.data.texts import Texts

HUB = "hub"
"""What `examples.path` is where each source names its own data set."""
TEXT = "text"
NONE = "unknown"
"""The value of a row that says none."""
SIDES = {1: "member", 0: "non-member"}
MOST_NAMED = 10
RENAMED = ("id", "text", "label", "cluster")
ALONE = ", or take each text for itself by ~examples.columns.cluster"
SHARD = re.compile(r"-\d{5}-of-\d{5}(?=\.)|^\d{4}(?=\.parquet$)")
"""In the names of files that are one split: their rows are numbered through, as the hub's are."""
NO_SPLIT = re.compile(r"(Bad|Unknown) split|examples\.split is ")
"""What datasets says of a split that is not there, and we of a saved one."""
SAVED = ("dataset_dict.json", "state.json")
"""What shows that datasets' save_to_disk wrote a folder."""
log = logging.getLogger(__name__)


class MissingError(DataError):
    """A part of a benchmark that is not in a folder or a data set."""


def benchmark_rows(examples: ExamplesConfig, tally: Tally) -> Iterator[Row]:
    """The rows of the parts that are asked for.

    Raises:
        ConfigError: there is no such part.
        DataError: a file, a split or a column that is not there.
    """
    parts = parts_of(examples)
    if is_file(examples.path):
        only = parts[0].values if len(parts) == 1 else {}
        rows = raw_rows(_plain(examples), tally, bare=TEXT)
        yield from _of_part(rows, examples, parts, only, examples.sources)
        return
    missing: dict[str, DataError] = {}
    for part in parts:
        found = [_opened(source, part, examples, tally) for source in part.sources]
        errors = [opened for opened in found if isinstance(opened, MissingError)]
        if len(errors) == len(found):
            missing[words(part.values)] = errors[0]
            continue
        for source, opened in zip(part.sources, found, strict=True):
            if isinstance(opened, MissingError):  # of one side: the part is damaged
                raise opened
            yield from _of_part(opened, examples, [part], part.values, [source])
    if len(missing) == len(parts):
        raise next(iter(missing.values()))
    if missing:
        log.warning(
            "examples.path is %r: it has no %s. The tables are of the other parts alone.",
            examples.path, "; no ".join(missing),
        )  # fmt: skip


def _opened(
    source: SourceConfig, part: Part, examples: ExamplesConfig, tally: Tally
) -> Iterator[Row] | MissingError:
    """The raw rows of a part's source, or the error that says that it is not there."""
    rows = place_rows(placed(source, source, part, examples), examples, tally)
    try:
        first = [*islice(rows, 1)]
    except MissingError as error:
        return error
    return chain(first, rows)


def check_sides(examples: ExamplesConfig, texts: Texts) -> None:
    """Raise a DataError unless each part has members and non-members."""
    for name in texts.column("benchmark").unique().to_pylist():
        labels = texts.column("label").filter(pc.equal(texts.column("benchmark"), name))
        if {True, False} <= set(labels.unique().to_pylist()):
            continue
        counts = {str(c["values"]): c["counts"].as_py() for c in labels.value_counts()}
        known = {"True": "members", "False": "non-members", "None": "without a label"}
        has = ", ".join(f"{n} {known[value]}" for value, n in counts.items())
        raise DataError(
            f"examples.path is {examples.path!r}: {name} has {has}, and a benchmark needs members "
            f"and non-members. Look at its column {examples.columns.get('label', 'label')!r} (1 is "
            "a member), or score it without examples=…: examples.path alone."
        )


def placed(
    place: PlaceConfig, source: PlaceConfig, part: Part, examples: ExamplesConfig
) -> PlaceConfig:
    """A place of a source, with the part's values in it, and the path that the user gave."""

    def filled(text: str | None) -> str | None:
        return text and text.format_map(part.values)

    path = (place.path or source.path) if examples.path == HUB else examples.path
    filled_in = {name: filled(getattr(place, name)) for name in ("subset", "split", "files")}
    return PlaceConfig(path, **filled_in, converted=filled(place.converted), column=place.column)


def place_rows(place: PlaceConfig, examples: ExamplesConfig, tally: Tally) -> Iterator[Row]:
    """The raw rows of a place: of a data set's split, or of files in a folder."""
    folder = Path(place.path or "").expanduser()
    if not folder.is_dir() and (place.split is None):
        wanted = [f"*{place.files or ''}"]  # not `converted`, which stands in a branch of its own
        folder = snapshot("examples.path", str(place.path), wanted, kind="dataset")
    if not folder.is_dir() or any((folder / name).is_file() for name in SAVED):
        own = replace(_plain(examples), path=str(place.path), subset=place.subset)
        split = place.split or (place.converted or "").rpartition("/")[2] or examples.split
        with _missing_split():
            yield from raw_rows(replace(own, split=split), tally)
        return
    files = _files(folder, place)
    numbered = count() if len({SHARD.sub("", file.name) for file in files}) == 1 else None
    for file in files:
        kind = next(FORMATS[s] for s in reversed(file.suffixes) if s in FORMATS)
        own = replace(_plain(examples), path=str(file), format=kind)  # the hub's are links to blobs
        for row in raw_rows(own, tally, bare=TEXT):
            own_name = f"{file.name}-{row.number - 1}" if numbered is None else str(next(numbered))
            name = {examples.columns.get("id") or "id": own_name}
            yield row if len(files) == 1 else row._replace(value={**name, **row.value})


def _plain(examples: ExamplesConfig) -> ExamplesConfig:
    """The same reading of what is no benchmark."""
    return ExamplesConfig(examples.path, examples.format, on_error=examples.on_error)


@contextmanager
def _missing_split() -> Iterator[None]:
    """A data set's error that it has no such split is a MissingError."""
    try:
        yield
    except DataError as error:
        if NO_SPLIT.search(str(error)):
            raise MissingError(str(error)) from error
        raise


def _files(folder: Path, place: PlaceConfig) -> list[Path]:
    """The folder's files of that name, at any depth, or those that the hub made of them.

    Raises:
        MissingError: there is none.
    """
    pattern = place.files or "*"
    kinds = {suffix for suffix, kind in FORMATS.items() if kind != "text"}
    known = [p for p in sorted(folder.rglob("*")) if kinds & {*p.suffixes} and p.is_file()]
    names = {path: path.relative_to(folder).as_posix() for path in known}
    found: list[Path] = []
    for wanted in [pattern] + [f"{place.converted}/*.parquet"] * (place.converted is not None):
        match = f"*/{wanted}"
        found = found or [path for path, name in names.items() if fnmatchcase(f"/{name}", match)]
    if not found:
        some = ", ".join([*names.values()][:MOST_NAMED]) or "no file of a known kind"
        raise MissingError(
            f"examples.path is {str(folder)!r}: it has no file {pattern}. It has {some}"
            f"{' …' * (len(known) > MOST_NAMED)}."
        )
    return found


def is_file(path: str) -> bool:
    """Whether the rows come from one file, or from a stream."""
    source = Path(path).expanduser()
    return path == "-" or source.is_file() or source.is_fifo()


def _of_part(
    rows: Iterable[Row],
    examples: ExamplesConfig,
    parts: Sequence[Part],
    values: Mapping[str, str],
    sources: Sequence[SourceConfig],
) -> Iterator[Row]:
    """The rows that are asked for, of a part with these values.

    A row's own column goes before them where it may: in one file, where its value is one that the
    benchmark has. A WikiMIA file's `length` may as well be the number of words of each row.

    Raises:
        ConfigError: a row of a file of several parts does not say of which it is.
        DataError: a column that is not there, or no row that is asked for.
    """
    asked, known = chosen(examples), known_of(examples)
    left = {axis: Counter[str]() for axis in asked}
    taken = 0
    for row, label in _sides(_checked(rows, examples, sources), examples, sources):
        own = {axis: v for axis, v in _own(row).items() if not known or v in known.get(axis, ())}
        found = {**values, **own} if is_file(examples.path) else {**own, **values}
        if lacks := sorted(parts[0].values.keys() - found.keys()):
            choices = " ".join(f"examples.{axis}={asked[axis][0]}" for axis in lacks)
            raise ConfigError(
                f"examples.path is {examples.path!r}: one file is read as {len(parts)} parts of "
                f"{examples.name}, but a row has no column {', '.join(lacks)}. Say which part it "
                f"is, such as {choices}, or give the folder of all files."
            )
        others = [axis for axis, some in asked.items() if found.get(axis, NONE) not in some]
        for axis in others:
            left[axis][found.get(axis, NONE)] += 1
        if not others:
            taken += 1
            own_row = _renamed(row, examples, [found[a] for a in AXES if a in found], label)
            size = examples.label_words
            yield from pieces(own_row, size) if size else [own_row]
    _say(examples, taken, left)


def _say(examples: ExamplesConfig, taken: int, left: Mapping[str, Counter[str]]) -> None:
    """Say which rows were left out since others were asked for; a DataError if those are all."""
    seen = {axis: values for axis, values in left.items() if values}
    others = "; ".join(f"{axis} {', '.join(values)}" for axis, values in seen.items())
    if seen and not taken:
        asked = ", ".join(f"examples.{axis}={getattr(examples, axis)}" for axis in seen)
        raise DataError(
            f"{asked}: no row of examples.path={examples.path!r} is of that. They have {others}."
        )
    if seen:
        log.info("%s: rows of %s are left out.", examples.name, others)


def _sides(
    rows: Iterable[Row], examples: ExamplesConfig, sources: Sequence[SourceConfig]
) -> Iterator[tuple[Row, int | None]]:
    """Each row with the label that its source gives it; of one with both sides a row of each.

    One file of rows with a text each has no source of its own: they say their labels.
    """
    columns = {folded(source.column): source for source in sources if source.column}
    for row in rows:
        names = [name for name in row.value if folded(name) in columns]
        rest = {name: value for name, value in row.value.items() if name not in names}
        for name in names:
            if row.value[name] is not None:  # a side may have fewer texts
                text = {examples.columns.get("text") or "text": row.value[name]}
                yield row._replace(value={**rest, **text}), columns[folded(name)].label
        if not names:
            yield row, None if is_file(examples.path) else sources[0].label


def _checked(
    rows: Iterable[Row], examples: ExamplesConfig, sources: Sequence[SourceConfig]
) -> Iterator[Row]:
    """The rows; raises a DataError where the first lacks a column that is needed."""
    rows = iter(rows)
    for first in islice(rows, 1):
        found = [*map(folded, first.value)]
        named = [name for name in ("cluster",) if examples.columns.get(name)]
        wanted = ["text"]
        if is_file(examples.path) or sources[0].label is None:
            wanted += ["label"]
        if any(folded(source.column) in found for source in sources if source.column):
            wanted, named = [], []
        for name in wanted + named:
            column = examples.columns.get(name) or name
            if folded(column) not in found:
                if first.value.keys() == {TEXT} and isinstance(first.value[TEXT], list):
                    raise DataError(
                        f"{first.where}: it is a list, and not a row. Give JSON Lines: an object "
                        "a line, without brackets around them."
                    )
                raise DataError(
                    f"{first.where}: there is no column {column!r}, as {examples.name} calls the "
                    f"{name}; its columns are {', '.join(map(str, first.value)) or 'none'}. Name "
                    f"the right one by examples.columns.{name}=…{ALONE * (name == 'cluster')}."
                )
        yield first
    yield from rows


def _own(row: Row) -> dict[str, str]:
    """The row's own values of axes."""
    fields = {folded(name): value for name, value in row.value.items()}
    own = {axis: word(fields.get(axis)) for axis in AXES}
    return {axis: value for axis, value in own.items() if value}


def _renamed(row: Row, examples: ExamplesConfig, values: Sequence[str], label: int | None) -> Row:
    """The row with the fields that every row has, under their usual names."""
    fields = {folded(name): value for name, value in row.value.items()}
    columns = {name: examples.columns.get(name) or name for name in RENAMED}
    found = {name: fields.get(folded(column)) for name, column in columns.items()}
    name = "/".join([str(fields.get("benchmark") or examples.name), *values])
    own = row.number - 1 if found["id"] in (None, "") else found["id"]
    if label is not None:  # of a source of one side, whose numbers the other side has as well
        found["label"], own = label, f"{SIDES[label]}-{own}"
    return row._replace(value={**found, "id": f"{name}/{own}", "benchmark": name})
