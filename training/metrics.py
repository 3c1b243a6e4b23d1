"""The metrics of a training run: JSONL files, a progress bar, and a copy in Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contamination.core.config import identity_data
from contamination.core.files import write_text_atomically
from contamination.core.progress import progress_bar
from contamination.injection.corpus import open_corpus
from contamination.training.config import TrainingStage, WandbConfig
from contamination.training.trained_model import EVALUATIONS, METRICS

PRETRAIN, TRAIN = "pretrain", "train"
"""Job types in Weights & Biases: pretraining of a base model, or training of a study."""


class TrainingRecord:
    """Writes each step's values to `metrics.jsonl`, the progress bar and Weights & Biases."""

    def __init__(
        self,
        stage: TrainingStage,
        folder: Path,
        first_step: int,
        steps: int,
        inputs: Mapping[str, str],
        *,
        first_tokens: int = 0,
    ) -> None:
        """Opens the files, the bar and the run in Weights & Biases.

        Args:
            stage: the configuration.
            folder: the model folder.
            first_step: the number of optimizer steps that an earlier run has done.
            steps: the number of optimizer steps of the whole training.
            inputs: the digests of the training's inputs.
            first_tokens: the number of tokens that an earlier run has read.
        """
        self._steps = MetricsFile(folder / METRICS, first_step)
        self._evaluations = MetricsFile(folder / EVALUATIONS, first_step)
        self._first_tokens = first_tokens
        options = {"total": steps, "initial": first_step, "unit": "step"}
        self._bar = progress_bar(desc=stage.model.name, stage="train", **options)
        self._wandb = _start_wandb(stage, folder, inputs)

    def record_step(self, row: dict[str, Any]) -> None:
        """Records the values of one step."""
        self._steps.append_row(row)
        speed = (row["tokens"] - self._first_tokens) / self._bar.format_dict["elapsed"]
        self._bar.set_postfix(loss=f"{row['loss']:.3f}", tok_s=f"{speed:,.0f}", refresh=False)
        self._bar.update()
        self._log_to_wandb("train", row)

    def record_evaluation(self, row: dict[str, Any]) -> None:
        """Records the losses of an evaluation."""
        self._evaluations.append_row(row)
        self._log_to_wandb("eval", row)

    def close(self) -> None:
        """Closes the bar, the files and the run in Weights & Biases."""
        self._bar.close()
        self._steps.close()
        self._evaluations.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _log_to_wandb(self, group: str, row: dict[str, Any]) -> None:
        if self._wandb is not None:
            values = {f"{group}/{k}": v for k, v in row.items() if k != "step" and v is not None}
            self._wandb.log(values, step=row["step"])


class MetricsFile:
    """A JSONL file of one row per step, which a resumed run continues."""

    def __init__(self, path: Path, first_step: int) -> None:
        self._path = path
        self._drop_rows_after(first_step)
        self._stream = path.open("a", buffering=1)

    def append_row(self, row: dict[str, Any]) -> None:
        """Appends a row."""
        self._stream.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """Closes the file, and removes it if it is empty."""
        self._stream.close()
        if not self._path.stat().st_size:
            self._path.unlink()

    def _drop_rows_after(self, step: int) -> None:
        """Drops the rows of steps that will be repeated."""
        lines = self._path.read_text().splitlines() if step and self._path.exists() else []
        lines_to_keep = []
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break  # a killed process left an incomplete line
            if row["step"] <= step:
                lines_to_keep.append(line + "\n")
        write_text_atomically(self._path, "".join(lines_to_keep))


def _start_wandb(stage: TrainingStage, folder: Path, inputs: Mapping[str, str]) -> Any:
    """Starts a run whose id is the folder's hash, so that a resumed training continues it."""
    if stage.wandb.mode == "disabled":
        return None
    config = {**identity_data(stage), "inputs": dict(inputs), "folder": folder.name}
    run_fields = {"name": folder.name, "id": folder.name.rsplit("-", 1)[-1]}
    run_fields |= {"group": stage.name, "job_type": _wandb_job_type(stage)}
    return open_wandb_run(stage.wandb, Path(stage.runs), {}, **run_fields, config=config)


def open_wandb_run(
    wandb_config: WandbConfig, folder: Path, settings: Mapping[str, Any], **run: Any
) -> Any:
    """Returns a new run in Weights & Biases, or the continued run with the same id.

    Args:
        wandb_config: the project and the mode.
        folder: the folder for offline records.
        settings: further settings of wandb.
        run: the run's id, name, group, job type and config.
    """
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=wandb_config.project,
        entity=wandb_config.entity,
        mode=wandb_config.mode,  # type: ignore[arg-type]
        resume="allow",  # even offline, since otherwise a sync would replace the earlier record
        dir=str(folder),
        settings=wandb.Settings(silent=True, x_transaction_log_flush_interval=1, **settings),
        **run,
    )


def _wandb_job_type(stage: TrainingStage) -> str:
    """Returns the job type: pretraining for random weights on a corpus's base part."""
    part = open_corpus(stage.corpus_folder).config["injection"]["part"]
    return PRETRAIN if stage.model.path is None and part == "base" else TRAIN
