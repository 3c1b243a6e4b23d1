"""The detection stage's artefact, as the later stages open it.

::

    runs/scores/<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── scores.parquet   one row an example, method and variant
    └── manifest.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from core.artifacts import Artifact, is_complete, open_artifact
from core.config import identity
from core.errors import ArtifactError, DataError
from detection.collect import Copies
from detection.config import DetectionConfig
from detection.examples import Text
from detection.flags import scored_tokens, unranked
from detection.methods.base import Method
from detection.passes import Example, Pass
from detection.store import write_parquet

KIND = "scores"
FILE = "scores.parquet"
INPUTS, SETTINGS = "inputs", "settings"
RECORDED = tuple(identity(DetectionConfig()))
"""The settings that can change a score, or whether it is ranked."""
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


def open_scores(path: Path | str) -> Scores:
    """Open a finished scores folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    return Scores(open_artifact(path, KIND))


def make_table(
    methods: Mapping[tuple[str, str], Method],
    examples: Sequence[Text],
    passes: Mapping[Pass, Copies],
    step: int,
    min_scored_tokens: int = 1,
) -> pd.DataFrame:
    """Every example's score by every method, sorted by method, variant and example id.

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
    scored = scored_tokens(passes)
    rows = [
        (
            *(e.example_id, name, variant, step, method.is_default),
            *judged(method, seen(method, e, passes), scored[e.sha256], min_scored_tokens),
        )
        for (name, variant), method in methods.items()
        for e in examples
    ]
    table = pd.DataFrame(rows, columns=COLUMNS.names)
    bad = table[~table["score"].abs().lt(float("inf"))]
    if len(bad):
        first = bad.iloc[0]
        raise DataError(
            f"text {first['example_id']}: {first['method']} ({first['variant'] or 'no variant'}) "
            f"gives {first['score']}. Leave the text out, or the method."
        )
    return table.sort_values(["method", "variant", "example_id"], ignore_index=True)


def seen(method: Method, text: Text, passes: Mapping[Pass, Copies]) -> Example:
    """One text as the method sees it: with the passes that it declares, and no others."""
    copies = {wanted: passes[wanted][text.sha256] for wanted in method.passes}
    return Example(text.example_id, text.text, copies)


def score_text(method: Method, text: Text, passes: Mapping[Pass, Copies]) -> float:
    """One text's score."""
    return method.score(seen(method, text, passes))


def judged(method: Method, example: Example, scored: int, least: int) -> tuple[float, str, bool]:
    """The score, its flag, and whether it is ranked.

    Args:
        method: what scores it.
        example: a text as the method sees it.
        scored: how many of its tokens the target scores.
        least: how many it takes to be ranked.
    """
    why_not = unranked(example.text, scored, least)
    return method.score(example), why_not or method.flag(example), not why_not


def read_table(path: Path) -> pd.DataFrame:
    """The table of `scores.parquet`.

    Raises:
        ArtifactError: an earlier version wrote it, without one of the columns.
    """
    found = pd.read_parquet(path)
    missing = [name for name in COLUMNS.names if name not in found]
    if missing:
        raise ArtifactError(
            f"{path} has no column {', '.join(missing)}: an earlier version wrote it. Score again: "
            "its passes are stored, so no model is run."
        )
    return found


@dataclass(frozen=True)
class Origin:
    """What scores were made of: the artefact's inputs, and the recorded settings (`detection`)."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def origin(artifact: Artifact) -> Origin:
    """That of a finished scores folder."""
    recorded = artifact.config().get("detection", {})
    return Origin(artifact.inputs, {n: recorded[n] for n in RECORDED if n in recorded})


def write_table(path: Path, table: pd.DataFrame, made_of: Origin | None = None) -> None:
    """Write `scores.parquet`; the same table gives the same bytes.

    `made_of` goes into the file itself, where no manifest is going to stand beside it.
    """
    arrow = pa.Table.from_pandas(table, COLUMNS, preserve_index=False)
    parts = {} if made_of is None else {INPUTS: made_of.inputs, SETTINGS: made_of.settings}
    texts = {name: json.dumps(dict(part), sort_keys=True) for name, part in parts.items()}
    write_parquet(path, arrow.replace_schema_metadata(texts or None))


def read_scores(folder: Path) -> tuple[pd.DataFrame, Origin]:
    """The table in a scores folder or in one that `out` wrote, and what it was made of.

    Raises:
        DataError: there is no such file.
        ArtifactError: an earlier version wrote it.
    """
    if is_complete(folder):
        found = open_scores(folder)
        return found.table, origin(found.artifact)
    file = folder / FILE
    if not file.is_file():
        raise DataError(f"scores is {str(folder)!r}: there is no {FILE} in it.")
    metadata = pq.read_schema(file).metadata or {}
    parts = (json.loads(metadata.get(name.encode(), b"{}")) for name in (INPUTS, SETTINGS))
    return read_table(file), Origin(*parts)
