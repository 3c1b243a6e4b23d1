"""The detection stage's artefact, as the later stages open it.

::

    runs/scores/<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── scores.parquet   one row an example, method and variant
    └── manifest.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa

from core.artifacts import Artifact, open_artifact
from core.errors import ArtifactError, DataError
from detection.collect import Copies
from detection.examples import Text
from detection.methods.base import Method
from detection.passes import Example, Pass
from detection.store import write_parquet

KIND = "scores"
FILE = "scores.parquet"
COLUMNS = pa.schema(
    [
        ("example_id", pa.string()),
        ("method", pa.string()),
        ("variant", pa.string()),
        ("checkpoint_step", pa.int64()),
        ("default", pa.bool_()),
        ("score", pa.float64()),
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
        variant has the method's own hyperparameters), score (higher = member).

        Raises:
            ArtifactError: an earlier version wrote it, without one of the columns.
        """
        found = pd.read_parquet(self.artifact.path / FILE)
        missing = [name for name in COLUMNS.names if name not in found]
        if missing:
            raise ArtifactError(
                f"{self.artifact.path / FILE} has no column {', '.join(missing)}: an earlier "
                "version wrote it. Score again: its passes are stored, so no model is run."
            )
        return found


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
) -> pd.DataFrame:
    """Every example's score by every method, sorted by method, variant and example id.

    Args:
        methods: by name and variant.
        examples: the texts, of any order.
        passes: for each pass that a method declares, the statistics by the text's SHA-256.
        step: the optimizer step of the scored checkpoint, -1 where it is unknown.

    Raises:
        DataError: a score is not finite.
    """
    rows = [
        (
            *(example.example_id, name, variant, step, method.is_default),
            score_text(method, example, passes),
        )
        for (name, variant), method in methods.items()
        for example in examples
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


def score_text(method: Method, text: Text, passes: Mapping[Pass, Copies]) -> float:
    """One text's score; the method sees the passes that it declares, and no others."""
    seen = {wanted: passes[wanted][text.sha256] for wanted in method.passes}
    return method.score(Example(text.example_id, text.text, seen))


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write `scores.parquet`; the same table gives the same bytes."""
    arrow = pa.Table.from_pandas(table, COLUMNS, preserve_index=False)
    write_parquet(path, arrow.replace_schema_metadata(None))
