"""The texts to score: a corpus's examples, or rows of a file, a data set or standard input."""

from __future__ import annotations

import hashlib
import logging
import math
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from core.artifacts import is_complete
from core.errors import DataError
from core.estimates import ALL
from detection.config import ExamplesConfig
from detection.texts import Text, Texts
from injection.sources.files import find_shards
from injection.sources.hub import HubRows
from injection.sources.reading import Reading, Row, Shard, read
from injection.sources.tally import Tally, skips

STANDARD_INPUT = "-"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LABELS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "member"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "non-member", "nonmember"), False),
    "": None,
}
RESERVED = {ALL: "the mean over benchmarks", "pooled": "all texts together"}
log = logging.getLogger(__name__)


def open_examples(examples: ExamplesConfig) -> Texts:
    """The examples of a corpus folder or of other rows, in their order.

    A row has a `text` and may have an `id` (else its number from 0 is its id), a `label` and a
    `benchmark`.

    Raises:
        DataError: nothing is there, a row that can't be used, an id twice, a benchmark called
            "all", or no row at all.
        ArtifactError: the corpus folder is unfinished.
    """
    source, tally = Path(examples.path).expanduser(), Tally(examples.on_error, "examples.on_error")
    if is_complete(source) or (source / "examples.parquet").is_file():
        return _checked(examples.path, Texts.of(_corpus_rows(source)))
    texts = (_text(row, tally) for row in _rows(examples, source, tally))
    found = Texts.of(text for text in texts if text is not None)
    if tally.skipped:
        log.warning("%s: %s", examples.path, skips(tally.skipped))
    return _checked(examples.path, found)


def examples_digest(examples: Sequence[Text]) -> str:
    """A hash of the ids and texts in any order: not of membership, so cells share clean scores."""
    texts = Texts.of(examples)
    ordered = texts.take(texts.order("sha256", "example_id"))
    return lines_digest(f"{e.sha256} {e.example_id}" for e in ordered)


def texts_digest(texts: Sequence[Text]) -> str:
    """A hash of the texts alone, in the given order."""
    return lines_digest(t.sha256 for t in texts)


def lines_digest(lines: Iterable[str]) -> str:
    """A hash of the lines, with a newline between them."""
    found = hashlib.sha256()
    for number, line in enumerate(lines):
        found.update((f"\n{line}" if number else line).encode())
    return found.hexdigest()


def make_text(example_id: str, text: str, label: bool | None, benchmark: str) -> Text:
    """An example with its text's hash."""
    return Text(example_id, text, hashlib.sha256(text.encode()).hexdigest(), label, benchmark)


def label_of(value: Any) -> bool | None:
    """Whether it names a member: 1, true, yes, "member" in any case; None where it is empty.

    Raises:
        ValueError: it names neither a member nor a non-member.
    """
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and value.strip().lower() in LABELS:
        return LABELS[value.strip().lower()]
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise ValueError(value)


def _checked(path: str, examples: Texts) -> Texts:
    if not examples:
        raise DataError(f"examples.path is {path!r}: it has no example. Give at least one text.")
    ids = examples.take(examples.order("example_id")).column("example_id").combine_chunks()
    twice = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
    if len(twice):
        raise DataError(
            f"examples.path is {path!r}: the id {twice[0].as_py()!r} is there twice. Give "
            "each row its own `id`, or none (the row's number, from 0, is then its id)."
        )
    for name, means in RESERVED.items():
        place = pc.index(examples.column("benchmark"), name).as_py()
        if place >= 0:
            raise DataError(
                f"examples.path is {path!r}: {examples[place].example_id!r} is of a benchmark "
                f"called {name!r}, which names {means}. Give it another name."
            )
    return examples


def _corpus_rows(folder: Path) -> Iterator[Text]:
    import injection

    for row in injection.open_corpus(folder).examples.itertuples():
        unexposed = row.member and row.occurrences == 0  # drawn as a member, inserted no time
        label = None if unexposed else bool(row.member)
        yield make_text(str(row.example_id), row.text, label, row.benchmark)


def _rows(examples: ExamplesConfig, source: Path, tally: Tally) -> Iterator[Row]:
    """The raw rows, wherever they come from."""
    path = examples.path
    if path == STANDARD_INPUT:
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(_standard_input())
            file.flush()
            yield from read(Shard(Path(file.name), "standard input", "jsonl"), Reading(tally))
    elif source.is_file():
        for shard in find_shards(path, examples.format, "examples.path"):
            yield from read(shard, Reading(tally))
    elif source.is_dir():
        yield from _saved_rows(source, examples.split)
    elif HUB_ID.fullmatch(path) and not Path(path.split("/")[0]).exists():
        yield from HubRows(path, [examples.split], examples.subset).rows(tally)
    else:
        raise DataError(
            f"examples.path is {path!r}: there is no such file or folder. Give a corpus folder, a "
            "JSONL, CSV, TSV or Parquet file with a `text` in each row, a folder that "
            "datasets' save_to_disk wrote, a hub id such as OWNER/NAME, or - for standard input."
        )


@cache
def _standard_input() -> bytes:
    """All of it; it is read once, however often it is asked for."""
    return sys.stdin.buffer.read()


def _saved_rows(folder: Path, split: str) -> Iterator[Row]:
    """The rows of a data set that `save_to_disk` wrote, of one split where it has several."""
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except (FileNotFoundError, OSError, ValueError) as error:
        raise DataError(
            f"examples.path is {str(folder)!r}: the folder is no finished corpus, and no data set "
            f"that save_to_disk wrote ({str(error).splitlines()[0]}). Give one of these, or a file."
        ) from error
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            raise DataError(f"examples.split is {split!r}: the data set has {', '.join(found)}.")
        found = found[split]
    shard = Shard(folder, split, "saved")
    return (Row(shard, number, row) for number, row in enumerate(named_labels(found), 1))


def named_labels(rows: Any) -> Iterator[Mapping[str, Any]]:
    """A data set's rows; a label that is the number of a class is that class's name."""
    feature = rows.features.get("label")
    for row in rows:
        known = hasattr(feature, "int2str") and row["label"] is not None
        yield {**row, "label": feature.int2str(row["label"])} if known else row


def _text(row: Row, tally: Tally) -> Text | None:
    """The row's example; None once the tally has it."""
    text, known = row.value.get("text"), ", ".join(map(str, row.value)) or "none"
    if not isinstance(text, str):
        given = "no `text`" if text is None else f"a {type(text).__name__}"
        tally.bad("no string as its `text`", row.where, f"{given}; its fields are {known}")
        return None
    identity, benchmark = row.value.get("id"), row.value.get("benchmark")
    name = str(row.number - 1) if identity in (None, "") else str(identity)
    try:
        f"{text}{name}{benchmark}".encode()  # JSON may spell half of a surrogate pair
        return make_text(name, text, label_of(row.value.get("label")), str(benchmark or ""))
    except UnicodeEncodeError as error:
        tally.bad("invalid UTF-8", row.where, str(error))
    except ValueError as error:
        said = "give 1, true, yes or member; 0, false, no or non-member; or nothing"
        tally.bad(f"label is {error.args[0]!r}", row.where, said)
    return None
