"""`python -m audits fresh`: makes questions that cannot leak, to compare published ones with.

There are three ways. Each draws at random which questions are published, so that the audit's test
is exact: `hold_out` keeps a part of a file back; `generate` draws both parts from a generator of
the package `reasoning-gym`; `version` draws which of several versions of each question is
published. (Dated siblings come from `python -m detection build`.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.benchmark.comparison import FEWEST
from contamination.core.config import PROPER_FRACTION, Ranged, at_least, one_of, ranged_field
from contamination.core.errors import ConfigError, DataError, near_names, require
from contamination.core.files import hashed_json, write_text_atomically
from contamination.core.hashing import file_digest
from contamination.core.seeds import derive_seed
from contamination.core.table_files import write_csv
from contamination.core.user_files import atomic_output_file
from contamination.data.config import ExamplesConfig
from contamination.data.near_duplicates import (
    ComparedItem,
    NearDuplicateHasher,
    duplicates_on_other_side,
)
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import fold_name, raw_rows, value_as_text

HOLD_OUT, GENERATE, VERSION = "hold_out", "generate", "version"
PUBLISHED, FRESH, VERSIONS, RECORD = "published", "fresh", "versions", "drawn.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreshStage(Ranged):
    """The configuration of `python -m audits fresh`."""

    way: str = ranged_field(HOLD_OUT, one_of((HOLD_OUT, GENERATE, VERSION)))
    """How the comparison is made: hold_out, generate or version."""
    out: str = "fresh"
    """The folder of the files, which must not exist yet."""
    questions: str | None = None
    """For hold_out and version: a CSV, TSV, JSONL or Parquet file."""
    share: float = ranged_field(0.5, PROPER_FRACTION)
    """For hold_out: the share of the questions that is kept back."""
    cluster_column: str | None = None
    """The column of what belongs together (one passage, the versions of one question): for hold_out
    it stays on one side; for version it is required. null: each question by itself."""
    generator: str | None = None
    """For generate: the name of a data set of `reasoning-gym`."""
    number: int = ranged_field(200, at_least(FEWEST))
    """For generate: the questions of each file."""
    name: str = "run"
    seed: int = 0
    """Determines what is drawn. Keep it as secret as the fresh questions."""


def make_fresh(stage: FreshStage) -> Path:
    """Writes the questions to publish and those to keep back; returns their folder.

    Raises:
        ConfigError: a field is missing, or there is no such generator.
        DataError: the folder exists, or there are too few questions.
    """
    folder = Path(stage.out).expanduser()
    if folder.exists():
        raise DataError(f"out is {stage.out!r}, which exists: give a folder that does not.")
    if stage.way == GENERATE:
        files, source = _generate(stage)
    else:
        remedy = "give the file of your questions (questions=FILE)."
        require(stage.questions is not None, "questions", None, remedy)
        rows = _read_rows(str(stage.questions))
        files = _hold_out(stage, rows) if stage.way == HOLD_OUT else _draw_version(stage, rows)
        source = {"questions_sha256": file_digest(Path(str(stage.questions)).expanduser())}
    for name, rows_of_file in files.items():
        if len(rows_of_file) < FEWEST:
            raise DataError(
                f"{name}: {len(rows_of_file)} questions are too few, since the audit needs "
                f"{FEWEST} on each side. Give more questions."
            )
    folder.mkdir(parents=True)
    suffix = ".csv" if str(stage.questions or "").endswith((".csv", ".tsv")) else ".jsonl"
    for name, rows_of_file in files.items():
        _write_rows(folder / f"{name}{suffix}", rows_of_file)
    counts = {name: len(rows_of_file) for name, rows_of_file in files.items()}
    record = {"way": stage.way, "seed": stage.seed, **source, **counts}
    write_text_atomically(folder / RECORD, hashed_json(record))
    return folder


def _read_rows(path: str) -> list[Row]:
    return [*raw_rows(ExamplesConfig(path), Tally("stop", "questions"))]


def _hold_out(stage: FreshStage, rows: Sequence[Row]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the rows to publish and those to keep back; clusters stay whole."""
    clusters = [_cluster_of(stage, row) or f"\0{row.number}" for row in rows]
    names = [*dict.fromkeys(clusters)]
    rng = np.random.default_rng(derive_seed(stage.seed, HOLD_OUT))
    kept_back = {names[i] for i in rng.permutation(len(names))[: round(stage.share * len(names))]}
    sides: dict[str, list[Mapping[str, Any]]] = {PUBLISHED: [], FRESH: []}
    for row, cluster in zip(rows, clusters, strict=True):
        sides[FRESH if cluster in kept_back else PUBLISHED].append(row.value)
    _warn_of_near_duplicates(sides)
    return sides


def _warn_of_near_duplicates(sides: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Logs how many fresh questions share much text with a published one."""
    texts = [
        (side, " ".join(map(value_as_text, row.values()))) for side in sides for row in sides[side]
    ]
    items = [ComparedItem([text], [text]) for _, text in texts]
    is_published = [side == PUBLISHED for side, _ in texts]
    found = duplicates_on_other_side(items, is_published, NearDuplicateHasher(items))
    if number := sum(not is_published[i] for i in found):
        log.warning(
            "%d of %d fresh questions share much text with a published one, so they would leak "
            "with it. Name the column of what belongs together (cluster_column=COLUMN).",
            *(number, len(sides[FRESH])),
        )


def _draw_version(stage: FreshStage, rows: Sequence[Row]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns one version of each question, drawn at random, and the others.

    Both get the columns `id` (of a published one) and `cluster` (of the others) that the audit
    reads.
    """
    remedy = (
        "name the column with the question's id, which its versions share (cluster_column=COLUMN)."
    )
    require(stage.cluster_column is not None, "cluster_column", None, remedy)
    versions: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        versions.setdefault(_cluster_of(stage, row), []).append(row.value)
    rng = np.random.default_rng(derive_seed(stage.seed, VERSION))
    published: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for question, of_question in versions.items():
        if len(of_question) < 2:
            raise DataError(
                f"questions: {question!r} has one version. Give each question two or more, made in "
                "the same way."
            )
        drawn = int(rng.integers(len(of_question)))
        for place, values in enumerate(of_question):
            plain = {k: v for k, v in values.items() if fold_name(k) not in ("id", "cluster")}
            if place == drawn:
                published.append({"id": question, **plain})
            else:
                others.append({"cluster": question, **plain})
    return {PUBLISHED: published, VERSIONS: others}


def _cluster_of(stage: FreshStage, row: Row) -> str:
    if stage.cluster_column is None:
        return ""
    if stage.cluster_column not in row.value:
        remedy = f"its columns are {', '.join(map(str, row.value))}."
        raise DataError(
            f"cluster_column is {stage.cluster_column!r}: {row.where} has no such column; {remedy}"
        )
    return value_as_text(row.value[stage.cluster_column])


def _generate(
    stage: FreshStage,
) -> tuple[dict[str, list[Mapping[str, Any]]], dict[str, str]]:
    """Returns distinct questions of a generator, divided at random, and the generator."""
    try:
        gym = import_module("reasoning_gym")
    except ImportError as error:
        raise ConfigError(
            "way=generate needs the package reasoning-gym: run "
            "pip install 'contamination-testbed[generators]'."
        ) from error
    names = sorted(gym.factory.DATASETS)
    if stage.generator not in names:
        raise ConfigError(
            f"generator is {stage.generator!r}: reasoning-gym has no such data set. "
            f"{near_names(str(stage.generator), names)}"
        )
    data_set = gym.create_dataset(
        stage.generator, size=4 * stage.number, seed=derive_seed(stage.seed, GENERATE) % 2**32
    )
    answers = {str(entry["question"]): str(entry["answer"]) for entry in data_set}
    questions = [{"question": q, "answer": a} for q, a in answers.items()]
    if len(questions) < 2 * stage.number:
        raise DataError(
            f"generator is {stage.generator!r}: of {4 * stage.number} questions {len(questions)} "
            f"are distinct, fewer than twice number={stage.number}. Lower number."
        )
    rng = np.random.default_rng(derive_seed(stage.seed, "sides"))
    drawn = [questions[i] for i in rng.permutation(len(questions))[: 2 * stage.number]]
    files: dict[str, list[Mapping[str, Any]]] = {
        PUBLISHED: [*drawn[: stage.number]], FRESH: [*drawn[stage.number :]],
    }  # fmt: skip
    return files, {"generator": str(stage.generator), "reasoning_gym": version("reasoning-gym")}


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    table = pd.DataFrame(rows)
    if path.suffix == ".csv":
        write_csv(path, table)
        return
    with atomic_output_file(path) as partial_file:
        table.to_json(partial_file, orient="records", lines=True, force_ascii=False)
