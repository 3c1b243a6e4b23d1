"""Reads the table of items: correctness, membership score, whether an item is spiked, and more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.score.estimation import MEMBER, NONMEMBER, UNKNOWN, Items
from contamination.core.errors import ConfigError, DataError, near_names, require
from contamination.data.readers.files import find_shards
from contamination.data.readers.rows import ReadOptions, Row, Tally, read_file
from contamination.detection.scores import open_scores

FIELD = "audit.items"
CORRECT, SCORE, SPIKED, PREDICTED = "correct", "score", "spiked", "predicted"
CLUSTER, ID = "cluster", "id"
COLUMNS = (CORRECT, SCORE, SPIKED, PREDICTED, CLUSTER, ID)
"""The columns that `audit.columns` may name otherwise."""
ROLE_BY_TEXT = {
    **dict.fromkeys(("member", "true", "1", "1.0", "yes"), MEMBER),
    **dict.fromkeys(("non-member", "nonmember", "false", "0", "0.0", "no"), NONMEMBER),
    **dict.fromkeys(("unknown", "", "none", "null", "nan"), UNKNOWN),
}
NUMBER_BY_TEXT = {"true": 1.0, "false": 0.0}
LARGEST_SCORE = 1e100
"""The squares of larger scores overflow."""
FEWEST_KNOWN, FEWEST_UNKNOWN = 2, 10
"""The fewest known members, known non-members and items of unknown membership."""


@dataclass(frozen=True)
class TableFields:
    """The fields of the audit that say how the table is read."""

    columns: Mapping[str, str]
    references: Sequence[str]
    scores: Any
    method: str


def find_table(path: Any) -> Path:
    """Returns the file of the table.

    Raises:
        ConfigError: there is no such file.
    """
    file = Path(str(path)).expanduser()
    require(file.is_file(), FIELD, path, "give a CSV, TSV, JSONL or Parquet file.")
    return file


def read_items(file: Path, fields: TableFields) -> Items:
    """Returns the items of a table.

    Raises:
        ConfigError: a column is not there, or a field can't be used.
        DataError: a value can't be used, or there are too few items of a kind.
    """
    (shard,) = find_shards(str(file), "auto", FIELD)
    rows = [*read_file(shard, ReadOptions(Tally("stop", FIELD)))]
    if not rows:
        raise DataError(f"{FIELD}: {file} has no rows. Give a table with one row per item.")
    names = {name: fields.columns.get(name, name) for name in COLUMNS}
    known = {column for row in rows for column in row.value}
    required = [CORRECT, SPIKED, *([SCORE] if fields.scores is None else [ID])]
    given = [*required, *(name for name in fields.columns if name not in required)]
    for name in given:
        _require_column(f"audit.columns.{name}", names[name], known)
    for name in fields.references:
        _require_column("audit.references", name, known)
    scores = (
        _numbers(rows, names[SCORE])
        if fields.scores is None
        else _stored_scores(rows, names[ID], fields)
    )
    has_predicted, has_cluster = names[PREDICTED] in known, names[CLUSTER] in known
    references = [_shares(rows, name) for name in fields.references]
    if has_cluster:
        texts = [_named(row, names[CLUSTER]) for row in rows]
    else:
        texts = [str(row.number) for row in rows]
        if names[ID] in known:
            _require_distinct(rows, names[ID])
    items = Items(
        correct=_shares(rows, names[CORRECT]),
        score=scores,
        role=np.array([_role(row, names[SPIKED]) for row in rows]),
        clusters=np.unique(texts, return_inverse=True)[1],
        predicted=_shares(rows, names[PREDICTED]) if has_predicted else None,
        references=np.column_stack(references) if references else None,
    )
    for role, fewest in ((MEMBER, FEWEST_KNOWN), (NONMEMBER, FEWEST_KNOWN),
                         (UNKNOWN, FEWEST_UNKNOWN)):  # fmt: skip
        if items.count(role) < fewest:
            raise DataError(
                f"{FIELD}: {file} has {items.count(role)} items whose column {names[SPIKED]} is "
                f"{role}. Give {fewest} or more of each of member and non-member (spiked examples) "
                f"and {FEWEST_UNKNOWN} or more unknown (the benchmark)."
                if role != UNKNOWN
                else f"{FIELD}: {file} has {items.count(role)} items of unknown membership in the "
                f"column {names[SPIKED]}, whose score is corrected. Give {fewest} or more."
            )
        clusters = len(np.unique(items.clusters[items.role == role]))
        if clusters < FEWEST_KNOWN:
            raise DataError(
                f"{FIELD}: all {items.count(role)} {role} items of {file} are of one cluster in "
                f"the column {names[CLUSTER]}, so the scores have no interval. Give "
                f"{FEWEST_KNOWN} or more clusters of each kind of item, or no such column."
            )
    return items


def _named(row: Row, column: str) -> str:
    text = _text(row, column)
    if not text:
        raise DataError(
            f"{row.where}: {column} is empty. Name a cluster for each item (its own for an item "
            "that belongs to no other), or leave the column out."
        )
    return text


def _require_distinct(rows: Sequence[Row], column: str) -> None:
    """Raises a DataError if two rows are of one item, as their answers are no two trials."""
    seen: dict[str, str] = {}
    for row in rows:
        text = _text(row, column)
        if text and text in seen:
            raise DataError(
                f"{row.where}: {column} is {text!r}, as in {seen[text]}. Give each item once, or "
                "a column cluster with one name for the rows of an item."
            )
        seen[text] = row.where


def _require_column(field: str, column: str, known: set[str]) -> None:
    require(column in known, field, column, f"{FIELD} has no such column. "
            f"{near_names(column, sorted(known))}")  # fmt: skip


def _text(row: Row, column: str) -> str:
    value = row.value.get(column)
    return "" if value is None else str(value).strip()


def _role(row: Row, column: str) -> str:
    text = _text(row, column).lower()
    if text not in ROLE_BY_TEXT:
        raise DataError(
            f"{row.where}: {column} is {text!r}. Give member, non-member or unknown (or empty)."
        )
    return ROLE_BY_TEXT[text]


def _number(row: Row, column: str, allows: Callable[[float], bool], remedy: str) -> float:
    text = _text(row, column)
    try:
        value = NUMBER_BY_TEXT[text.lower()] if text.lower() in NUMBER_BY_TEXT else float(text)
    except ValueError:
        value = math.nan
    if not allows(value):
        raise DataError(f"{row.where}: {column} is {text!r}. {remedy}")
    return value


def _numbers(rows: Sequence[Row], column: str) -> np.ndarray[Any, Any]:
    remedy = f"Give a finite number up to {LARGEST_SCORE:g}; higher means member."
    return np.array(
        [_number(row, column, lambda v: abs(v) <= LARGEST_SCORE, remedy) for row in rows]
    )


def _shares(rows: Sequence[Row], column: str) -> np.ndarray[Any, Any]:
    remedy = "Give 0, 1 or a probability between them."
    return np.array([_number(row, column, lambda v: 0 <= v <= 1, remedy) for row in rows])


def _stored_scores(rows: Sequence[Row], id_column: str, fields: TableFields) -> Any:
    """The scores of a method in a folder of scores, by the items' ids."""
    table = open_scores(fields.scores).table
    methods = (table["method"] + " " + table["variant"]).str.strip()
    chosen = methods == fields.method
    if not chosen.any():
        chosen = (table["method"] == fields.method) & table["default"]
    if not chosen.any():
        hint = near_names(fields.method, sorted({*methods}))
        raise ConfigError(f"audit.method is {fields.method!r}: no such scores there. {hint}")
    table = table[chosen]
    table = table[table["checkpoint_step"] == table["checkpoint_step"].max()]
    table = table[table["ranked"]]
    score_by_id = pd.Series(table["score"].to_numpy(float), index=table["example_id"])
    if not score_by_id.index.is_unique:
        raise DataError(
            f"audit.scores: {fields.scores} has several scores of {fields.method} for one id. Name "
            "one variant in audit.method."
        )
    scores = []
    for row in rows:
        example_id = _text(row, id_column)
        if example_id not in score_by_id.index:
            raise DataError(
                f"{row.where}: {id_column} is {example_id!r}, for which audit.scores has no "
                "score that may be compared. Score the same items, with these ids."
            )
        scores.append(float(score_by_id[example_id]))
    return np.array(scores)
