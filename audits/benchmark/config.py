"""The configuration of fresh questions, and the sizes that the audit needs."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import PROPER_FRACTION, Ranged, at_least, one_of, ranged_field

FEWEST = 10
"""The fewest questions, and comparison texts: fewer could show only enormous effects."""
HOLD_OUT, GENERATE, VERSION = "hold_out", "generate", "version"


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
    it stays on one side; for version it is required. null: a column `cluster`, if there is one."""
    generator: str | None = None
    """For generate: the name of a data set of `reasoning-gym`."""
    number: int = ranged_field(200, at_least(FEWEST))
    """For generate: the questions of each file."""
    name: str = "run"
    seed: int | None = None
    """Determines what is drawn. Keep it as secret as the fresh questions; null: a random one. With
    one that is given the audit's verdict keeps its condition."""
