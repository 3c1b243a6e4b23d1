"""The configuration of the analysis stage: what is measured and on which cells."""

from __future__ import annotations

from dataclasses import dataclass, field

from contamination.core.config import (
    PROPER_FRACTION,
    Range,
    Ranged,
    at_least,
    between,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import require
from contamination.training.config import WandbConfig

MOST_DRAWS = 1_000_000
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")
RATES = Range(
    lambda rates: all(map(PROPER_FRACTION.allows, rates)) and len(set(rates)) == len(rates),
    "give rates above 0 and below 1, each once.",
)
FOLDER = Range(bool, "give the folder of that artefact.")


@dataclass(frozen=True)
class AnalysisConfig(Ranged, node="analysis"):
    """The node `analysis`: the metrics, their intervals and the blind baseline."""

    draws: int = ranged_field(1000, between(20, MOST_DRAWS))
    """Bootstrap resamples behind every interval."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """Coverage of the intervals."""
    fpr: list[float] = ranged_field([0.001, 0.01, 0.05], RATES)
    """False-positive rates at which the true-positive rate is reported, if there are enough
    non-members (`core.statistics.metrics.fewest_examples`)."""
    tpr: list[float] = ranged_field([0.95], RATES)
    """True-positive rates at which the false-positive rate is reported."""
    blind_folds: int = ranged_field(5, at_least(3))
    """Folds of the blind baseline: each example is scored by a classifier that never saw it."""
    examples: int = ranged_field(0, at_least(0))
    """Members and non-members that each cell's page shows token by token; 0: no pages."""


@dataclass(frozen=True)
class CellPaths(Ranged, node="cells"):
    """One experiment cell: the folders of its artefacts.

    The paths say where to read; a report is named after the artefacts' contents.
    """

    corpus: str = runtime_field("", FOLDER)
    """The contaminated corpus (runs/corpus/…)."""
    model: str = runtime_field("", FOLDER)
    """The model trained on it (runs/model/…)."""
    clean: str = runtime_field("", FOLDER)
    """Scores of the model before that training (runs/scores/…): the control."""
    contaminated: str = runtime_field("", FOLDER)
    """Scores of the model after it (runs/scores/…)."""
    first: str | None = runtime_field(None)
    """Of a cell of two stages, the model that the fine-tuning started from (runs/model/…)."""
    finetuning: str | None = runtime_field(None)
    """Of a cell of two stages, its fine-tuning set (runs/finetuning/…)."""
    exports: list[str] = field(default_factory=list, metadata={"identity": False})
    """Scores of the model at earlier steps of it (runs/scores/…)."""
    seconds: float | None = runtime_field(None)
    """Wall time of its runs, as the launch recorded it; reused artefacts took none."""
    gpu_hours: float | None = runtime_field(None)
    """GPUs × hours of these runs."""

    @property
    def artifact_folders(self) -> list[str]:
        """The folders that the cell's results are read from."""
        named = self.corpus, self.model, self.clean, self.contaminated, self.first, self.finetuning
        return [path for path in named if path]


@dataclass(frozen=True)
class AnalysisStage:
    """Everything the analysis stage reads."""

    name: str
    """The experiment's name: the report's title and the column `experiment`."""
    seed: int
    runs: str = runtime_field("runs")
    cells: list[CellPaths] = field(default_factory=list)
    analysis: AnalysisConfig = field(default_factory=AnalysisConfig)
    wandb: WandbConfig = runtime_field(WandbConfig(mode="disabled"))

    def __post_init__(self) -> None:
        remedy = "give at least one: cells=[{corpus: …, model: …, clean: …, contaminated: …}]."
        require(bool(self.cells), "cells", self.cells, remedy)


@dataclass(frozen=True)
class WandbReport:
    """A report from Weights & Biases: from a project online, or from a local record."""

    runs: str = runtime_field("runs")
    project: str | None = None
    """The project to read."""
    entity: str | None = None
    """The project's owner; null: the default of whoever is logged in."""
    local: str | None = runtime_field(None)
    """A folder of offline runs, such as runs/wandb: read instead of a project."""
    experiment: str | None = None
    """Take this experiment's cells only; null: all."""

    def __post_init__(self) -> None:
        require(
            (self.project is None) != (self.local is None),
            "project",
            self.project,
            f"give either project=NAME or local=FOLDER (local is {self.local!r}).",
        )


register_schema("analysis", AnalysisConfig)
