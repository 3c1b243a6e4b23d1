"""The detection stage's artefact, as the later stages open it.

::

    runs/scores/<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── scores.parquet   one row an example, method and variant
    └── manifest.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.artifacts import Artifact, is_complete, open_artifact
from contamination.core.config import identity
from contamination.core.errors import ArtifactError, DataError
from contamination.core.hashing import file_digest
from contamination.core.integrity import parsing, reading
from contamination.core.stored_files import parse_json, typed
from contamination.core.table_files import writing
from contamination.core.user_files import output_file
from contamination.data.texts import Text, Texts, release
from contamination.detection.config import WHOLE, DetectionConfig
from contamination.detection.flags import token_count_pass, unranked, zero_probability_flag
from contamination.detection.methods.base import Method
from contamination.detection.pass_store import ByText
from contamination.detection.passes import Example, Pass

KIND = "scores"
FILE = "scores.parquet"
HASH = "scores.parquet.sha256"
INPUTS, SETTINGS = "inputs", "settings"
RECORDED = {**dict.fromkeys(identity(DetectionConfig()), "unknown"), "scope": WHOLE}
"""The settings that can change a score, or whether it is ranked; what it means where one lacks."""
COLUMNS = pa.schema(
    [
        ("example_id", pa.string()),
        ("method", pa.string()),
        ("variant", pa.string()),
        ("checkpoint_step", pa.int64()),
        ("default", pa.bool_()),
        ("score", pa.float64()),
        ("flag", pa.string()),
        ("ranked", pa.bool_()),
    ]
)
JUDGED = np.dtype([("score", np.float64), ("flag", np.int32), ("ranked", np.bool_)])
"""A method's judgement of an example; the flag by its number."""
STRINGS = {pa.string(): pd.ArrowDtype(pa.string())}.get
"""How a part of the table holds its strings: as objects they would take many times as much."""


@dataclass(frozen=True)
class Scores:
    """A finished scores folder."""

    artifact: Artifact

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row an example, method and variant.

        Columns: example_id, method, variant, checkpoint_step (-1: unknown), default (whether the
        variant has the method's own hyperparameters), score (higher = member), flag (what is out of
        the ordinary about the score; empty for most), ranked (whether it may be compared: not where
        the text is blank or of too few tokens).

        Raises:
            ArtifactError: an earlier version wrote it, without one of the columns.
        """
        return read_table(self.artifact.path / FILE)

    def tables(self) -> Iterator[pd.DataFrame]:
        """The table in parts: one a method and variant."""
        yield from read_tables(self.artifact.path / FILE)


def open_scores(path: Path | str) -> Scores:
    """Open a finished scores folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    return Scores(open_artifact(path, KIND))


def score_tables(
    methods: Mapping[tuple[str, str], Method],
    examples: Sequence[Text],
    passes: Mapping[Pass, ByText],
    step: int,
    min_scored_tokens: int = 1,
) -> Iterator[pa.Table]:
    """Every example's score: a part a method and variant, sorted by them and by example id.

    The passes are read once, in their own order, all methods together.

    Args:
        methods: by name and variant.
        examples: the texts, of any order.
        passes: for each pass that a method declares, the statistics by the text's SHA-256; one of
            them is the target's over the text itself (`flags.counting`).
        step: the optimizer step of the scored checkpoint, -1 where it is unknown.
        min_scored_tokens: a text of fewer is not ranked.

    Raises:
        DataError: a score is not finite.
    """
    scored = token_count_pass(passes)
    found = {key: np.empty(len(examples), JUDGED) for key in sorted(methods)}
    flags: dict[str, int] = {}  # in words → its number; there are few
    texts = Texts.of(examples)
    places = texts.order("sha256")
    for place, text in zip(places, texts.take(places), strict=True):
        why_not = unranked(text.text, scored[text.sha256][0].scored_tokens(), min_scored_tokens)
        for key, column in found.items():
            score, flag = judged(methods[key], seen(methods[key], text, passes), why_not)
            column[place] = score, flags.setdefault(flag, len(flags)), not why_not
    words, order = pa.array([*flags], pa.string()), texts.order("example_id")
    ids = texts.take(order).column("example_id").combine_chunks()
    for (name, variant), column in found.items():
        own = column[order]
        _check(name, variant, ids, own["score"])
        columns = {
            "example_id": ids,
            "method": pa.repeat(name, len(ids)),
            "variant": pa.repeat(variant, len(ids)),
            "checkpoint_step": pa.repeat(step, len(ids)),
            "default": pa.repeat(methods[name, variant].is_default, len(ids)),
            "score": pa.array(own["score"]),
            "flag": words.take(pa.array(own["flag"])),
            "ranked": pa.array(own["ranked"]),
        }
        yield pa.table(columns, COLUMNS)


def _check(name: str, variant: str, ids: pa.Array, scores: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise DataError(
            f"text {ids[bad[0]]}: {name} ({variant or 'no variant'}) gives {scores[bad[0]]}. "
            "Leave the text out, or the method."
        )


def seen(method: Method, text: Text, passes: Mapping[Pass, ByText]) -> Example:
    """One text as the method sees it: with the passes that it declares, and no others."""
    copies = {wanted: passes[wanted][text.sha256] for wanted in method.passes}
    return Example(text.example_id, text.text, copies)


def judged(method: Method, example: Example, why_not: str) -> tuple[float, str]:
    """The score and its flag, of an example as the method sees it.

    `why_not` is why its text is not ranked by any method (`flags.unranked`); empty: it is.
    """
    return method.score(example), why_not or method.flag(example) or zero_probability_flag(example)


def read_table(path: Path) -> pd.DataFrame:
    """The table of `scores.parquet`.

    Raises:
        ArtifactError: an earlier version wrote it, without one of the columns.
    """
    with parsing(path):
        found = pd.read_parquet(path, page_checksum_verification=True)
        _check_columns(path, found.columns)
        return found


def _check_columns(path: Path, found: Iterable[str]) -> None:
    missing = [name for name in COLUMNS.names if name not in set(found)]
    if missing:
        raise ArtifactError(
            f"{path} has no column {', '.join(missing)}: an earlier version wrote it. Score again: "
            "its passes are stored, so no model is run."
        )


def read_tables(path: Path) -> Iterator[pd.DataFrame]:
    """The table in parts, as they were written.

    Raises:
        ArtifactError: an earlier version wrote it, without one of the columns.
    """
    with ExitStack() as stack:
        with parsing(path):
            file = stack.enter_context(pq.ParquetFile(path, page_checksum_verification=True))
            _check_columns(path, file.schema_arrow.names)
        for group in range(file.metadata.num_row_groups):
            with parsing(path):
                part = file.read_row_group(group, use_threads=False)
                table = part.to_pandas(types_mapper=STRINGS)
            yield table
            release()


@dataclass(frozen=True)
class Origin:
    """What scores were made of: the artefact's inputs, and the recorded settings (`detection`)."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def origin(artifact: Artifact) -> Origin:
    """What a finished scores folder was made of."""
    with reading(artifact.path):
        recorded = artifact.config().get("detection", {})
        return Origin(artifact.inputs, {n: recorded[n] for n in RECORDED if n in recorded})


def write_tables(
    path: Path,
    tables: Iterable[pa.Table],
    made_of: Origin | None = None,
    schema: pa.Schema = COLUMNS,
) -> None:
    """Write `scores.parquet` in parts; the same tables give the same bytes.

    Where no manifest is going to stand beside it, `made_of` goes into the file itself, and its
    SHA-256 beside it.
    """
    parts = {} if made_of is None else {INPUTS: made_of.inputs, SETTINGS: made_of.settings}
    texts = {name: json.dumps(dict(part), sort_keys=True) for name, part in parts.items()}
    schema = schema.with_metadata(texts or None)
    if made_of is None:
        _write_parts(path, tables, schema)
        return
    with output_file(path) as part:
        _write_parts(part, tables, schema)
        line = _hash_line(part, path.name)
    with output_file(path.with_name(HASH)) as part:
        part.write_text(line)


def _write_parts(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    with writing(path, schema) as writer:
        for table in tables:
            whole = table.replace_schema_metadata(schema.metadata)
            writer.write_table(whole, row_group_size=max(1, len(table)))
            release()


def _hash_line(path: Path, name: str) -> str:
    """The file's hash and name, in one line as `sha256sum` writes it."""
    return f"{file_digest(path, remembered=False)}  {name}\n"


def to_arrow(table: pd.DataFrame, schema: pa.Schema = COLUMNS) -> pa.Table:
    """The table with a file's own types."""
    return pa.Table.from_pandas(table, schema, preserve_index=False)


def read_scores(folder: Path) -> tuple[pd.DataFrame, Origin]:
    """The table in a scores folder or in one that `out` wrote, and what it was made of.

    Raises:
        DataError: there is no such file, or it is damaged.
        ArtifactError: an earlier version wrote it.
    """
    if is_complete(folder):
        found = open_scores(folder)
        return found.table, origin(found.artifact)
    file = folder / FILE
    if not file.is_file():
        raise DataError(f"scores is {str(folder)!r}: there is no {FILE} in it.")
    beside = folder / HASH
    if not beside.is_file() or beside.read_bytes() != _hash_line(file, FILE).encode():
        raise DataError(
            f"scores is {str(folder)!r}: its {FILE} is damaged (it is not what {HASH} says). Write "
            "both again by `python -m detection out=…`: the passes are stored, so no model is run."
        )
    with parsing(file):
        metadata = pq.read_schema(file).metadata or {}
        texts = (metadata.get(name.encode(), b"{}").decode() for name in (INPUTS, SETTINGS))
        inputs, settings = (typed(parse_json(text), dict[str, Any]) for text in texts)
    return read_table(file), Origin(inputs, settings)
