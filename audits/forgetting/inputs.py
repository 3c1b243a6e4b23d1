"""Reads cells with exports: the scores at each step, and how long ago each member was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.statistics.groups import ANY
from contamination.audits.cells import AuditedCell
from contamination.core.artifacts import is_complete
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.hashing import combined_digest
from contamination.core.integrity import errors_naming_folders
from contamination.core.statistics.forgetting_curve import share_left_by_weight_decay
from contamination.detection.scores import Scores, open_scores
from contamination.training.config import TrainingConfig
from contamination.training.schedules import weight_decay_of_step
from contamination.training.trained_model import (
    EXPORTS,
    Checkpoint,
    open_checkpoint,
    open_trained,
)

Floats = NDArray[np.float64]
FEWEST_EXPORTS = 3
"""Scored models after the last exposure that are compared, the final one included."""


@dataclass(frozen=True)
class ScoredStep:
    """The model after one optimizer step, scored.

    Attributes:
        step: the step.
        model: its folder.
        scores: its scores, examples × (method, variant), in the order of the cell's examples.
        digest: that of the scores.
    """

    step: int
    model: Path
    scores: pd.DataFrame
    digest: str


@dataclass(frozen=True)
class ForgettingCell:
    """A cell whose members were all seen before the first of its scored steps.

    Attributes:
        cell: the cell.
        model: its training.
        steps: its scored steps after the last exposure, the final one included, in order.
        steps_before: how many scored steps were left out, as some member was not fully seen.
    """

    cell: AuditedCell
    model: Checkpoint
    steps: Sequence[ScoredStep]
    steps_before: int

    @property
    def doses(self) -> NDArray[np.int64]:
        """How often each example was inserted, shape (examples,)."""
        return self.cell.doses

    @cached_property
    def last_exposures(self) -> NDArray[np.int64]:
        """The step that saw each example last; 0 for non-members. Shape (examples,)."""
        ids = self.cell.cell.examples["example_id"]
        lasts = _last_exposures(self.model).reindex(ids, fill_value=0)
        steps: NDArray[np.int64] = lasts.to_numpy(np.int64)
        return steps

    @cached_property
    def tokens_by_step(self) -> Floats:
        """The tokens read by the end of steps 0, 1, …, shape (steps + 1,)."""
        return np.concatenate([[0.0], self.model.metrics["tokens"].to_numpy(np.float64)])

    @cached_property
    def learning_rates(self) -> Floats:
        """η of steps 1, 2, …, shape (steps,)."""
        rates: Floats = self.model.metrics["learning_rate"].to_numpy(np.float64)
        return rates

    @cached_property
    def weight_decays(self) -> Floats:
        """λ of steps 1, 2, …, shape (steps,)."""
        config = _recorded_training(self.model)
        count = len(self.learning_rates)
        return np.array([weight_decay_of_step(config, step) for step in range(1, count + 1)])

    @cached_property
    def tokens_before(self) -> float:
        """Tokens that the starting model was trained on; NaN if its training is not at hand."""
        path, digest = self.model.config["model"].get("path"), self.model.artifact.inputs["model"]
        if not isinstance(path, str) or not is_complete(Path(path)):
            return float("nan")
        start = open_checkpoint(path).artifact
        tokens = start.counts.get("tokens")
        return float(tokens) if start.digest == digest and tokens else float("nan")

    def since(self, step: int, group: NDArray[np.bool_]) -> dict[str, float]:
        """Returns what happened between the last exposures of some members and a step.

        Args:
            step: the step.
            group: the members, shape (examples,).

        Returns:
            tokens_since (the mean over the members, as are the others), tokens_since_low and
            tokens_since_high (the extremes), decay_since (Σλη) and share_left (Π(1 − λη)).
        """
        lasts, counts = np.unique(self.last_exposures[group], return_counts=True)
        tokens = self.tokens_by_step[step] - self.tokens_by_step[lasts]
        products = self.learning_rates * self.weight_decays
        sums = np.array([products[last:step].sum() for last in lasts])
        rates, decays = self.learning_rates, self.weight_decays
        left = [share_left_by_weight_decay(rates[n:step], decays[n:step]) for n in lasts]
        return {
            "tokens_since": float(np.average(tokens, weights=counts)),
            "tokens_since_low": float(tokens.min()),
            "tokens_since_high": float(tokens.max()),
            "decay_since": float(np.average(sums, weights=counts)),
            "share_left": float(np.average(left, weights=counts)),
        }


def read_cells(field: str, cells: Sequence[AuditedCell]) -> list[ForgettingCell]:
    """Returns the cells with their scored steps.

    Raises:
        ConfigError: a cell has too few scored steps after its last exposure, or a second stage.
        ArtifactError: scores are not of an export of the cell's training.
    """
    return [_read_cell(field, cell) for cell in cells]


def _read_cell(field: str, cell: AuditedCell) -> ForgettingCell:
    if cell.cell.stage is not None:
        raise ConfigError(
            f"{field}: {cell.name} has a second stage, whose exports are not of the training that "
            "saw the members first. Give cells of one training."
        )
    folders = [cell.paths.contaminated, *cell.paths.exports]
    with errors_naming_folders(*cell.paths.artifact_folders, *cell.paths.exports):
        model = open_trained(f"{field}.model", cell.paths.model)
        digests = _step_by_digest(model)
        steps = sorted(
            (_read_step(field, cell, model, digests, folder) for folder in folders),
            key=lambda scored: scored.step,
        )
        last = int(_last_exposures(model).max()) if len(model.exposures) else 0
    after = [scored for scored in steps if scored.step >= last]
    if len(after) < FEWEST_EXPORTS or last == 0:
        raise ConfigError(
            f"{field}: {cell.name} has {len(after)} scored models after the last member was seen, "
            f"at step {last}, and the audit needs {FEWEST_EXPORTS}. Insert the members early "
            "(injection.token_window, training.order=corpus), and export the model more often "
            "(training.export_steps)."
        )
    return ForgettingCell(cell, model, after, len(steps) - len(after))


def _read_step(
    field: str, cell: AuditedCell, model: Checkpoint, step_by_digest: dict[str, int], folder: str
) -> ScoredStep:
    scores = open_scores(folder)
    step = step_by_digest.get(_scored_digest(scores))
    if step is None:
        raise ArtifactError(
            f"{field}: {folder} has the scores of a model that is not an export of "
            f"{model.artifact.path}. Give the scores of the cell's own exports."
        )
    path = model.exports.get(step, model.artifact.path)
    table = scores.table
    wide = table.pivot(index="example_id", columns=["method", "variant"], values="score")
    wide = wide.reindex(cell.cell.examples["example_id"])
    if not np.isfinite(wide.to_numpy(np.float64)).all():
        raise ArtifactError(f"{folder}: an example of {cell.name} has no score. Score it again.")
    return ScoredStep(step, path, wide, scores.artifact.digest)


def _step_by_digest(model: Checkpoint) -> dict[str, int]:
    """Returns the step of each stored model of a training, by the digest that scores record."""
    steps = {model.digest: int(model.artifact.counts["steps"])}
    for step, path in model.exports.items():
        prefix = f"{EXPORTS}/{path.name}/"
        files = model.artifact.files.items()
        steps[combined_digest({n[len(prefix) :]: d for n, d in files if n.startswith(prefix)})] = (
            step
        )
    return steps


def _scored_digest(scores: Scores) -> str:
    from contamination.detection.models.hf_model import CODE_SUFFIX

    return scores.artifact.inputs["target"].removesuffix(CODE_SUFFIX)


def _last_exposures(model: Checkpoint) -> pd.Series[Any]:
    """Returns the step that saw each member last, by its id."""
    return model.exposures.groupby("example_id")["step"].max()


def _recorded_training(model: Checkpoint) -> TrainingConfig:
    """Returns the fields of a training's recorded configuration that its weight decay needs."""
    recorded = model.config["training"]
    names = ("learning_rate", "weight_decay", "tail_after_steps", "tail_learning_rate",
             "tail_weight_decay")  # fmt: skip
    return TrainingConfig(**{name: recorded[name] for name in names if name in recorded})


def groups_of(cell: ForgettingCell) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yields all members as "any", then those of each number of occurrences if there are several.

    Each is a name and a mask, shape (examples,).
    """
    doses = cell.doses
    yield ANY, doses > 0
    levels = np.unique(doses[doses > 0])
    for level in levels if len(levels) > 1 else ():
        yield str(level), doses == level
