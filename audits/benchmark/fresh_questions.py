"""`python -m audits fresh`: makes questions that cannot leak, to compare published ones with.

There are three ways. Each draws at random which questions are published, so that the audit's test
is exact: `hold_out` keeps a part of a file back; `generate` draws both parts from a generator of
the package `reasoning-gym`; `version` draws which of several versions of each question is
published. (Dated siblings come from `python -m detection build`.)
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from secrets import randbits
from shutil import rmtree
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.benchmark.config import FEWEST, GENERATE, HOLD_OUT, VERSION, FreshStage
from contamination.audits.benchmark.inputs import naming_fields_in_errors
from contamination.audits.benchmark.origin import FILES, RECORD, SEED_DRAWN
from contamination.core.errors import ConfigError, DataError, near_names, require
from contamination.core.files import hashed_json, temporary_path, write_text_atomically
from contamination.core.hashing import file_digest
from contamination.core.output_paths import check_has_disk, check_writable_folder
from contamination.core.seeds import derive_seed
from contamination.core.table_files import write_csv
from contamination.core.user_files import atomic_output_file
from contamination.data.config import ExamplesConfig
from contamination.data.near_duplicates import ComparedItem, NearDuplicateHasher
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import fold_name, raw_rows, value_as_text

PUBLISHED, FRESH, VERSIONS = "published", "fresh", "versions"
CLUSTER = "cluster"
log = logging.getLogger(__name__)


def make_fresh(stage: FreshStage) -> Path:
    """Writes the questions to publish and those to keep back; returns their folder.

    The folder appears when it is complete.

    Raises:
        ConfigError: a field is missing, or there is no such generator.
        DataError: the folder exists, or there are too few questions.
    """
    require(bool(stage.out.strip()), "out", stage.out, "give a folder that does not exist yet.")
    folder = Path(stage.out).expanduser()
    if folder.exists():
        raise DataError(f"out is {stage.out!r}, which exists: give a folder that does not.")
    check_has_disk("out", stage.out)
    check_writable_folder("out", stage.out)
    seed = "the seed"
    seed_drawn = stage.seed is None
    if seed_drawn:
        stage, seed = replace(stage, seed=randbits(63)), "the seed, drawn at random"
    if stage.way == GENERATE:
        files, source = _generate(stage)
    else:
        rows = _read_rows(stage)
        files = _hold_out(stage, rows) if stage.way == HOLD_OUT else _draw_version(stage, rows)
        source = {"questions_sha256": file_digest(Path(str(stage.questions)).expanduser())}
    suffix = ".csv" if str(stage.questions or "").endswith((".csv", ".tsv")) else ".jsonl"
    counts = {name: len(rows_of_file) for name, rows_of_file in files.items()}
    record: dict[str, Any] = {
        "way": stage.way, "seed": stage.seed, SEED_DRAWN: seed_drawn,
        "date": datetime.now(UTC).date().isoformat(), **source, **counts,
    }  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = temporary_path(folder)
    try:
        unfinished.mkdir()
        for name, rows_of_file in files.items():
            _write_rows(unfinished / f"{name}{suffix}", rows_of_file)
        record[FILES] = {path.name: file_digest(path) for path in sorted(unfinished.iterdir())}
        write_text_atomically(unfinished / RECORD, hashed_json(record))
        unfinished.rename(folder)
    finally:
        rmtree(unfinished, ignore_errors=True)
    private = [f"{name}{suffix}" for name in files if name != PUBLISHED]
    log.info("Keep %s private, and %s, which has %s.", " and ".join(private), RECORD, seed)
    return folder


def _read_rows(stage: FreshStage) -> list[Row]:
    remedy = "give the file of your questions (questions=FILE)."
    require(stage.questions is not None, "questions", None, remedy)
    path = str(stage.questions)
    if not Path(path).expanduser().is_file():
        remedy = "there is no such file. Give a CSV, TSV, JSONL or Parquet file."
        raise DataError(f"questions is {path!r}: {remedy}")
    with naming_fields_in_errors("questions"):
        return [*raw_rows(ExamplesConfig(path), Tally("stop", "on_error"))]


def _hold_out(stage: FreshStage, rows: Sequence[Row]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the rows to publish and those to keep back; what belongs together stays together.

    That is named by a column, which both files have as `cluster`, or found: equal texts and
    near-duplicates.
    """
    clusters = _clusters(stage, rows)
    groups = _groups(stage, rows, clusters)
    names = [*dict.fromkeys(groups)]
    rng = np.random.default_rng(derive_seed(_seed(stage), HOLD_OUT))
    kept_back = {names[i] for i in rng.permutation(len(names))[: round(stage.share * len(names))]}
    sizes, name_by_group = Counter(groups), dict[int, str]()
    for group, cluster, row in zip(groups, clusters, rows, strict=True):
        found = f"like row {row.number}" if sizes[group] > 1 else ""
        name_by_group[group] = name_by_group.get(group) or cluster or found
    sides: dict[str, list[Mapping[str, Any]]] = {PUBLISHED: [], FRESH: []}
    for row, group in zip(rows, groups, strict=True):
        values: Mapping[str, Any] = row.value
        if any(name_by_group.values()):
            others = {key: value for key, value in values.items() if fold_name(key) != CLUSTER}
            values = {**others, CLUSTER: name_by_group[group]}
        sides[FRESH if group in kept_back else PUBLISHED].append(values)
    _check_enough(FRESH, len(kept_back), len(sides[FRESH]))
    _check_enough(PUBLISHED, len(names) - len(kept_back), len(sides[PUBLISHED]))
    return sides


def _check_enough(name: str, units: int, rows: int) -> None:
    if units < FEWEST:
        together = f" (of {rows} rows: what belongs together counts as one)"
        raise DataError(
            f"{name}: {units} questions are too few{together if units < rows else ''}, since the "
            f"audit needs {FEWEST} on each side. Give more questions."
        )


def _groups(stage: FreshStage, rows: Sequence[Row], clusters: Sequence[str]) -> list[int]:
    """Returns the number of each row's group, by cluster, equal texts and near-duplicates.

    If near-duplicates join almost everything, as a form that many questions share does, only equal
    texts are kept together, and a warning says what remains.
    """
    no_text = {"id", "label", "benchmark", CLUSTER, fold_name(stage.cluster_column or CLUSTER)}
    columns = [name for name in rows[0].value if fold_name(name) not in no_text] if rows else []
    texts = [[value_as_text(row.value.get(name)) for name in columns] for row in rows]
    sizes = [sum(map(len, column)) for column in zip(*texts, strict=True)]
    longest = sizes.index(max(sizes)) if sizes else 0  # the question, or its passage
    joined = [" ".join(values) for values in texts]
    items = [
        ComparedItem([text], [text, *values[longest : longest + 1]])
        for text, values in zip(joined, texts, strict=True)
    ]
    hasher = NearDuplicateHasher(items)
    near = [hasher.of(item).tolist() for item in items]
    equal = [[" ".join(text.casefold().split())] for text in joined]
    named = [[("cluster", name)] * bool(name) for name in clusters]
    groups = _connected([[*a, *b, *c] for a, b, c in zip(near, equal, named, strict=True)])
    by_text = _connected([[*b, *c] for b, c in zip(equal, named, strict=True)])
    largest = max(Counter(groups).values(), default=0)
    if len({*groups}) < len({*by_text}) and (
        largest > len(rows) / 4 or len({*groups}) < 2 * FEWEST <= len({*by_text})
    ):
        log.warning(
            "%d questions share 13 words in a row with one another. They may be on both sides and "
            "leak together. If they belong together, name a column (cluster_column=COLUMN).",
            largest,
        )
        groups = by_text
    if (joined_rows := len({*_connected(named)}) - len({*groups})) > 0:
        log.info(
            "%d questions are equal, or nearly, to another one: they stay on its side, and the "
            "column `%s` says so.", joined_rows, CLUSTER,
        )  # fmt: skip
    return groups


def _connected(keys_by_row: Sequence[Sequence[Hashable]]) -> list[int]:
    """Returns each row's group: rows that have a key in common are in one, directly or not."""
    parents = [*range(len(keys_by_row))]

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    first_row: dict[Hashable, int] = {}
    for row, keys in enumerate(keys_by_row):
        for key in keys:
            low, high = sorted((root(row), root(first_row.setdefault(key, row))))
            parents[high] = low
    return [*map(root, parents)]


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
    for row, question in zip(rows, _clusters(stage, rows), strict=True):
        if not question:
            raise DataError(
                f"{row.where}: it has no {stage.cluster_column!r}. Give each version the id of its "
                "question."
            )
        plain = {k: v for k, v in row.value.items() if fold_name(k) not in ("id", CLUSTER)}
        versions.setdefault(question, []).append(plain)
    rng = np.random.default_rng(derive_seed(_seed(stage), VERSION))
    published: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for question, of_question in versions.items():
        _check_versions(question, of_question, str(stage.cluster_column))
        drawn = int(rng.integers(len(of_question)))
        for place, wording in enumerate(of_question):
            if place == drawn:
                published.append({"id": question, **wording})
            else:
                others.append({CLUSTER: question, **wording})
    _check_enough(PUBLISHED, len(published), len(published))
    return {PUBLISHED: published, VERSIONS: others}


def _check_versions(
    question: str, versions: Sequence[Mapping[str, Any]], cluster_column: str
) -> None:
    if len(versions) < 2:
        raise DataError(
            f"questions: {question!r} has one version. Give each question two or more, made in the "
            "same way."
        )
    texts = {
        " ".join(
            " ".join(value_as_text(value) for name, value in row.items() if name != cluster_column)
            .casefold()
            .split()
        )
        for row in versions
    }
    if len(texts) < len(versions):
        raise DataError(
            f"questions: {question!r} has two versions of the same text, which no model can tell "
            "apart. Leave one out, or word it differently."
        )


def _clusters(stage: FreshStage, rows: Sequence[Row]) -> list[str]:
    """Returns what each row belongs to, or "": the column that is named, or else `cluster`."""
    columns = rows[0].value if rows else {}
    named = next((name for name in columns if fold_name(name) == CLUSTER), None)
    column = stage.cluster_column or named
    if column is None:
        return [""] * len(rows)
    if named not in (None, column):
        raise DataError(
            f"cluster_column is {column!r}, and questions have a column {named!r} as well, which "
            "the audit reads. Leave one of them out."
        )
    for row in rows:
        if column not in row.value:
            raise DataError(
                f"cluster_column is {column!r}: {row.where} has no such column; its columns are "
                f"{', '.join(map(str, row.value))}."
            )
    ids = [value_as_text(row.value[column]).strip() for row in rows]
    if all(re.fullmatch(r"-?\d+\.0+", name) for name in ids if name):
        return [name.partition(".")[0] for name in ids]  # numbers with gaps, written by pandas
    return ids


def _seed(stage: FreshStage) -> int:
    assert stage.seed is not None
    return stage.seed


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
    remedy = "name a data set of reasoning-gym, such as generator=leg_counting."
    require(stage.generator is not None, "generator", None, remedy)
    if stage.generator not in names:
        raise ConfigError(
            f"generator is {stage.generator!r}: reasoning-gym has no such data set. "
            f"{near_names(str(stage.generator), names)}"
        )
    seed = derive_seed(_seed(stage), GENERATE)  # 63 bits, which nobody can try out
    try:
        answers = _draw_answers(gym, stage, seed)
    except ValueError:  # a generator that uses NumPy, which takes 32 bits
        answers = _draw_answers(gym, stage, seed % 2**32)
    questions = [{"question": q, "answer": a} for q, a in answers.items()]
    if len(questions) < 2 * stage.number:
        raise DataError(
            f"generator is {stage.generator!r}: of {4 * stage.number} questions {len(questions)} "
            f"are distinct, fewer than twice number={stage.number}. Lower number."
        )
    rng = np.random.default_rng(derive_seed(_seed(stage), "sides"))
    drawn = [questions[i] for i in rng.permutation(len(questions))[: 2 * stage.number]]
    files: dict[str, list[Mapping[str, Any]]] = {
        PUBLISHED: [*drawn[: stage.number]], FRESH: [*drawn[stage.number :]],
    }  # fmt: skip
    return files, {"generator": str(stage.generator), "reasoning_gym": version("reasoning-gym")}


def _draw_answers(gym: Any, stage: FreshStage, seed: int) -> dict[str, str]:
    data_set = gym.create_dataset(stage.generator, size=4 * stage.number, seed=seed)
    return {str(entry["question"]): str(entry["answer"]) for entry in data_set}


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    table = pd.DataFrame(rows)
    if path.suffix == ".csv":
        write_csv(path, table)
        return
    with atomic_output_file(path) as partial_file:
        table.to_json(partial_file, orient="records", lines=True, force_ascii=False)
