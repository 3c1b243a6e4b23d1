"""The configuration of the analysis stage: what is measured and on which cells."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.config import register, runtime
from core.errors import require
from training.config import WandbConfig

MOST_DRAWS = 1_000_000


@dataclass(frozen=True)
class AnalysisConfig:
    """The node `analysis`: the metrics, their intervals and the blind baseline."""

    draws: int = 1000
    """Bootstrap resamples behind every interval."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    fpr: list[float] = field(default_factory=lambda: [0.001, 0.01, 0.05])
    """False-positive rates at which the true-positive rate is reported, where the non-members carry
    it (`core.metrics.rates.fewest_examples`)."""
    tpr: list[float] = field(default_factory=lambda: [0.95])
    """True-positive rates at which the false-positive rate is reported."""
    blind_folds: int = 5
    """Folds of the blind baseline: each example is scored by a classifier that never saw it."""

    def __post_init__(self) -> None:
        require(20 <= self.draws <= MOST_DRAWS, "analysis.draws", self.draws,
                f"give 20 to {MOST_DRAWS:,} resamples.")  # fmt: skip
        require(
            0.5 <= self.confidence < 1,
            "analysis.confidence",
            self.confidence,
            "give a coverage from 0.5 to below 1, such as 0.95.",
        )
        require(self.blind_folds >= 3, "analysis.blind_folds", self.blind_folds, "give at least 3.")
        _check_rates("analysis.fpr", self.fpr)
        _check_rates("analysis.tpr", self.tpr)


@dataclass(frozen=True)
class CellPaths:
    """One experiment cell: the folders of its artefacts.

    The paths say where to read; a report is named after what the artefacts hold.
    """

    corpus: str = runtime("")
    """The contaminated corpus (runs/corpus/…)."""
    model: str = runtime("")
    """The model trained on it (runs/model/…)."""
    clean: str = runtime("")
    """Scores of the model before that training (runs/scores/…): the control."""
    contaminated: str = runtime("")
    """Scores of the model after it (runs/scores/…)."""
    exports: list[str] = field(default_factory=list, metadata={"identity": False})
    """Scores of the model at earlier steps of it (runs/scores/…)."""

    def __post_init__(self) -> None:
        for name in ("corpus", "model", "clean", "contaminated"):
            value = getattr(self, name)
            require(bool(value), f"cells.{name}", value, "give the folder of that artefact.")


@dataclass(frozen=True)
class AnalysisStage:
    """Everything the analysis stage reads."""

    name: str
    """The experiment's name: the report's title and the column `experiment`."""
    seed: int
    runs: str = runtime("runs")
    cells: list[CellPaths] = field(default_factory=list)
    analysis: AnalysisConfig = field(default_factory=AnalysisConfig)
    wandb: WandbConfig = runtime(WandbConfig(mode="disabled"))

    def __post_init__(self) -> None:
        remedy = "give at least one: cells=[{corpus: …, model: …, clean: …, contaminated: …}]."
        require(bool(self.cells), "cells", self.cells, remedy)


@dataclass(frozen=True)
class WandbReport:
    """A report from what Weights & Biases holds: of a project online, or of a local record."""

    runs: str = runtime("runs")
    project: str | None = None
    entity: str | None = None
    """The project's owner; null: the default of whoever is logged in."""
    local: str | None = runtime(None)
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


def _check_rates(name: str, rates: list[float]) -> None:
    require(all(0 < rate < 1 for rate in rates), name, rates, "give rates between 0 and 1.")
    require(len(set(rates)) == len(rates), name, rates, "give each rate once.")


register("analysis", AnalysisConfig)
