"""The scores of the detection stage: computing, writing and reading them.

::

    runs/scores/<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── scores.parquet   one row per example, method and variant
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
from contamination.core.config import identity_data
from contamination.core.errors import ArtifactError, DataError
from contamination.core.hashing import file_digest
from contamination.core.integrity import errors_naming_file, errors_naming_folders
from contamination.core.stored_files import parse_json, parse_typed
from contamination.core.table_files import parquet_writer
from contamination.core.user_files import atomic_output_file
from contamination.data.texts import Text, Texts, release_memory
from contamination.detection.config import WHOLE, DetectionConfig
from contamination.detection.flags import (
    find_token_count_stats,
    reason_unranked,
    zero_probability_flag,
)
from contamination.detection.methods.base import Method
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import Example, Pass

KIND = "scores"
FILE = "scores.parquet"
HASH_FILE = "scores.parquet.sha256"
INPUTS, SETTINGS = "inputs", "settings"
RECORDED_SETTINGS = {**dict.fromkeys(identity_data(DetectionConfig()), "unknown"), "scope": WHOLE}
"""The settings that can change a score or its ranking, with the value if none is recorded."""
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
JUDGEMENT_DTYPE = np.dtype([("score", np.float64), ("flag", np.int32), ("ranked", np.bool_)])
"""A method's score of an example, the number of its flag, and whether it is ranked."""
pandas_string_type = {pa.string(): pd.ArrowDtype(pa.string())}.get
"""Returns the pandas type of a string column; Python objects would take many times the memory."""


@dataclass(frozen=True)
class Scores:
    """A finished scores folder."""

    artifact: Artifact

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per example, method and variant.

        Columns: example_id, method, variant, checkpoint_step (-1 if unknown), default (whether the
        variant has the method's default hyperparameters), score (higher means member), flag (a
        remark on an unusual score; mostly empty), ranked (whether the score may be compared: False
        if the text is blank or has too few tokens).

        Raises:
            ArtifactError: an earlier version wrote it, without one of the columns.
        """
        return read_score_table(self.artifact.path / FILE)

    def tables(self) -> Iterator[pd.DataFrame]:
        """Yields the table in parts, one per method and variant."""
        yield from read_tables(self.artifact.path / FILE)


def open_scores(path: Path | str) -> Scores:
    """Opens a finished scores folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    return Scores(open_artifact(path, KIND))


def score_tables(
    methods: Mapping[tuple[str, str], Method],
    examples: Sequence[Text],
    passes: Mapping[Pass, StatsByText],
    step: int,
    min_scored_tokens: int = 1,
) -> Iterator[pa.Table]:
    """Yields every example's scores, one table per method and variant, sorted by example id.

    The passes are read once, in their stored order, for all methods together.

    Args:
        methods: the methods by name and variant.
        examples: the texts, in any order.
        passes: the statistics, by the text's SHA-256, of each declared pass and of one that counts
            the target's scored tokens (`flags.with_token_count_pass`).
        step: the optimizer step of the scored checkpoint; -1 if unknown.
        min_scored_tokens: a text with fewer scored tokens is not ranked.

    Raises:
        DataError: a score is not finite.
    """
    token_counts = find_token_count_stats(passes)
    judgements = {key: np.empty(len(examples), JUDGEMENT_DTYPE) for key in sorted(methods)}
    flags: dict[str, int] = {}  # the number of each distinct flag
    texts = Texts.of(examples)
    indices = texts.sorting_indices("sha256")
    for index, text in zip(indices, texts.take(indices), strict=True):
        unranked_reason = reason_unranked(
            text.text, token_counts[text.sha256][0].scored_tokens(), min_scored_tokens
        )
        for key, column in judgements.items():
            score, flag = score_and_flag(
                methods[key], example_seen_by(methods[key], text, passes), unranked_reason
            )
            column[index] = score, flags.setdefault(flag, len(flags)), not unranked_reason
    flag_texts, order = pa.array([*flags], pa.string()), texts.sorting_indices("example_id")
    ids = texts.take(order).column("example_id").combine_chunks()
    for (name, variant), column in judgements.items():
        ordered = column[order]
        _check_finite(name, variant, ids, ordered["score"])
        columns = {
            "example_id": ids,
            "method": pa.repeat(name, len(ids)),
            "variant": pa.repeat(variant, len(ids)),
            "checkpoint_step": pa.repeat(step, len(ids)),
            "default": pa.repeat(methods[name, variant].is_default, len(ids)),
            "score": pa.array(ordered["score"]),
            "flag": flag_texts.take(pa.array(ordered["flag"])),
            "ranked": pa.array(ordered["ranked"]),
        }
        yield pa.table(columns, COLUMNS)


def _check_finite(method_name: str, variant: str, ids: pa.Array, scores: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise DataError(
            f"text {ids[bad[0]]}: {method_name} ({variant or 'no variant'}) gives "
            f"{scores[bad[0]]}. Leave the text out, or the method."
        )


def example_seen_by(method: Method, text: Text, passes: Mapping[Pass, StatsByText]) -> Example:
    """Returns a text as the method sees it, with only the passes that it declares."""
    copies = {wanted: passes[wanted][text.sha256] for wanted in method.passes}
    return Example(text.example_id, text.text, copies)


def score_and_flag(method: Method, example: Example, unranked_reason: str) -> tuple[float, str]:
    """Returns the score of an example and its flag.

    Args:
        method: the method.
        example: the example as the method sees it (`example_seen_by`).
        unranked_reason: why the text is not ranked (`flags.reason_unranked`); empty if it is.
    """
    flag = unranked_reason or method.flag(example) or zero_probability_flag(example)
    return method.score(example), flag


def read_score_table(path: Path) -> pd.DataFrame:
    """Reads the table of `scores.parquet`.

    Raises:
        ArtifactError: an earlier version wrote it, without one of the columns.
    """
    with errors_naming_file(path):
        table = pd.read_parquet(path, page_checksum_verification=True)
        _check_columns(path, table.columns)
        return table


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    missing = [name for name in COLUMNS.names if name not in set(columns)]
    if missing:
        raise ArtifactError(
            f"{path} has no column {', '.join(missing)}: an earlier version wrote it. Score again: "
            "its passes are stored, so no model is run."
        )


def read_tables(path: Path) -> Iterator[pd.DataFrame]:
    """Yields the table in parts, as they were written.

    Raises:
        ArtifactError: an earlier version wrote it, without one of the columns.
    """
    with ExitStack() as stack:
        with errors_naming_file(path):
            file = stack.enter_context(pq.ParquetFile(path, page_checksum_verification=True))
            _check_columns(path, file.schema_arrow.names)
        for group in range(file.metadata.num_row_groups):
            with errors_naming_file(path):
                row_group = file.read_row_group(group, use_threads=False)
                table = row_group.to_pandas(types_mapper=pandas_string_type)
            yield table
            release_memory()


@dataclass(frozen=True)
class Origin:
    """What scores were made from: the artefact's inputs, and the recorded `detection` settings."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def scores_origin(artifact: Artifact) -> Origin:
    """Returns what a finished scores folder was made from."""
    with errors_naming_folders(artifact.path):
        recorded = artifact.config().get("detection", {})
        return Origin(artifact.inputs, {n: recorded[n] for n in RECORDED_SETTINGS if n in recorded})


def write_score_tables(
    path: Path,
    tables: Iterable[pa.Table],
    origin: Origin | None = None,
    schema: pa.Schema = COLUMNS,
) -> None:
    """Writes `scores.parquet` in parts. Equal tables give equal bytes.

    Args:
        path: the file.
        tables: the parts.
        origin: the origin, for a file without a manifest. It is stored in the file's metadata, and
            the file's SHA-256 in a file next to it.
        schema: the columns.
    """
    records = {} if origin is None else {INPUTS: origin.inputs, SETTINGS: origin.settings}
    metadata = {name: json.dumps(dict(record), sort_keys=True) for name, record in records.items()}
    schema = schema.with_metadata(metadata or None)
    if origin is None:
        _write_parquet_parts(path, tables, schema)
        return
    with atomic_output_file(path) as partial_file:
        _write_parquet_parts(partial_file, tables, schema)
        line = _hash_line(partial_file, path.name)
    with atomic_output_file(path.with_name(HASH_FILE)) as partial_file:
        partial_file.write_text(line)


def _write_parquet_parts(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    with parquet_writer(path, schema) as writer:
        for table in tables:
            table = table.replace_schema_metadata(schema.metadata)
            writer.write_table(table, row_group_size=max(1, len(table)))
            release_memory()


def _hash_line(path: Path, file_name: str) -> str:
    """Returns the file's hash and name in one line, as `sha256sum` writes it."""
    return f"{file_digest(path, use_cache=False)}  {file_name}\n"


def to_arrow(table: pd.DataFrame, schema: pa.Schema = COLUMNS) -> pa.Table:
    """Converts the table to the types of the file."""
    return pa.Table.from_pandas(table, schema, preserve_index=False)


def read_scores(folder: Path) -> tuple[pd.DataFrame, Origin]:
    """Reads the table and the origin of scores from a scores folder or one that `out` wrote.

    Raises:
        DataError: there is no such file, or it is damaged.
        ArtifactError: an earlier version wrote it.
    """
    if is_complete(folder):
        scores = open_scores(folder)
        return scores.table, scores_origin(scores.artifact)
    file = folder / FILE
    if not file.is_file():
        raise DataError(f"scores is {str(folder)!r}: there is no {FILE} in it.")
    hash_file = folder / HASH_FILE
    if not hash_file.is_file() or hash_file.read_bytes() != _hash_line(file, FILE).encode():
        raise DataError(
            f"scores is {str(folder)!r}: its {FILE} is damaged (its hash is not that in "
            f"{HASH_FILE}). Write both again by `python -m detection out=…`: the passes are "
            "stored, so no model is run."
        )
    with errors_naming_file(file):
        metadata = pq.read_schema(file).metadata or {}
        texts = (metadata.get(name.encode(), b"{}").decode() for name in (INPUTS, SETTINGS))
        inputs, settings = (parse_typed(parse_json(text), dict[str, Any]) for text in texts)
    return read_score_table(file), Origin(inputs, settings)
