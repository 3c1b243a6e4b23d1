"""The training stage's artefact as later stages open it.

::

    runs/model/<slug>-<hash>/     (of an adopted model: config.yaml, hf/ and manifest.json alone)
    ├── config.yaml         the resolved config
    ├── metrics.jsonl       one line a step (a record of the run: holds times, not in the digest)
    ├── evaluations.jsonl   validation, members' and non-members' losses, where they were asked for
    ├── exposures.parquet   the optimizer step at which each inserted copy was seen
    ├── checkpoints/        to resume from; only while the run is unfinished
    ├── exports/step-…/     the model at the chosen steps, Hugging Face folders
    ├── hf/                 the trained model and its tokenizer, a Hugging Face folder
    └── manifest.json
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from core.artifacts import Artifact, is_complete, open_artifact
from core.errors import require

KIND = "model"
HF = "hf"
EXPORTS = "exports"
EXPOSURES = "exposures.parquet"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"


@dataclass(frozen=True)
class Checkpoint:
    """A finished model folder."""

    artifact: Artifact

    @property
    def hf(self) -> Path:
        """The model and tokenizer as a Hugging Face folder."""
        return self.artifact.path / HF

    @property
    def exports(self) -> dict[int, Path]:
        """Optimizer step → the model's Hugging Face folder at it, in order; the last is not in."""
        inside = [name for name in self.artifact.files if name.startswith(f"{EXPORTS}/")]
        found = sorted({name.split("/")[1] for name in inside})
        place = self.artifact.path / EXPORTS
        return {int(step.removeprefix("step-")): place / step for step in found}

    @property
    def digest(self) -> str:
        """A hash of the weights, the tokenizer and the exposures."""
        return self.artifact.digest

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of the stage."""
        return self.artifact.config()

    @cached_property
    def exposures(self) -> pd.DataFrame:
        """The ledger with the optimizer step of each copy."""
        return self.artifact.table(EXPOSURES)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row a step: step, tokens, loss, learning_rate, grad_norm, tokens_per_second, mfu."""
        return self.artifact.lines(METRICS)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """One row an evaluation: step, tokens, loss_members, loss_nonmembers, loss_validation."""
        if EVALUATIONS not in self.artifact.records:
            return pd.DataFrame({"step": []})
        return self.artifact.lines(EVALUATIONS)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a finished model folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    return Checkpoint(open_artifact(path, KIND))


def open_trained(field: str, path: Path | str) -> Checkpoint:
    """Open a finished model folder that holds the record of a training.

    Args:
        field: the config field that holds `path`, for the error.
        path: the folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
        ConfigError: it is a model that was adopted, or one alone.
    """
    alone = (Path(path) / "config.json").is_file() and not is_complete(Path(path))
    told = "a model alone does not say which texts it saw when. Give a folder of a training."
    require(not alone, field, str(path), told)
    found = open_checkpoint(path)
    unknown = "this model was adopted, so nothing says which texts it saw when."
    remedy = f"{unknown} Give a folder that the training stage wrote."
    require(EXPOSURES in found.artifact.files, field, str(path), remedy)
    return found


def is_checkpoint(path: Path | str) -> bool:
    """Whether `path` is a finished folder of this stage (rather than a plain model folder)."""
    return is_complete(Path(path))


def is_export(path: Path | str) -> bool:
    """Whether `path` is the model at an earlier step, in a finished folder of this stage."""
    folder = Path(path).resolve()
    return folder.parent.name == EXPORTS and is_complete(folder.parent.parent)
