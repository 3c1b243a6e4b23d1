"""The first steps of trainings that agree in them, trained once and continued by each.

Trainings may share their first steps and then go on with other text, another learning rate or
another weight decay. The first one stores its state after `training.shared_steps`, and those that
come later continue from it instead of repeating the steps. A prefix is named after everything that
can change the state: the tokens in the order they are read, the learning rate and weight decay of
each step, the starting model and how it is run. So a branch equals the training that was never
branched, bit for bit, and has its name.

::

    runs/training_prefix/<model>-step<n>-<hash>/
    ├── checkpoint/      the engine's state, as DeepSpeed writes it
    ├── exports/step-…/  the models exported on the way
    ├── metrics.jsonl    a line per step
    └── manifest.json
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    is_complete,
    open_artifact,
    run_folder,
)
from contamination.core.distributed import World
from contamination.core.errors import require
from contamination.core.hashing import digests_by_name
from contamination.core.integrity import damage_error
from contamination.injection.corpus import FinetuningSet, PackedCorpus
from contamination.training.checkpoints import MARKER, SavedCheckpoint, mark_complete
from contamination.training.config import TrainingConfig, TrainingStage
from contamination.training.data import PADDING, SequenceOrder
from contamination.training.loop import export_steps
from contamination.training.schedules import learning_rate_of_step, weight_decay_of_step
from contamination.training.trained_model import EXPORTS, METRICS

log = logging.getLogger(__name__)

KIND = "training_prefix"
CHECKPOINT = "checkpoint"
HOW_IT_IS_RUN = (
    *("batch_sequences", "beta1", "beta2", "clip_norm", "dtype", "micro_batch_sequences"),
    *("activation_checkpointing", "compile"),
)
"""Fields of `training` with which the steps are run, or that can change the last bits."""


@dataclass(frozen=True)
class TrainingPrefix:
    """The first steps of a training, which others may share.

    Attributes:
        folder: the run folder, finished or not.
        steps: the number of steps.
        settings: what the folder is named after, apart from its inputs.
        inputs: the digests of the inputs, by name.
    """

    folder: Path
    steps: int
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]

    def store(self, model_folder: Path, saved: SavedCheckpoint) -> None:
        """Stores a training's state after these steps, unless it is stored already."""

        def copy_files(folder: Path) -> WrittenFiles:
            copies = {
                f"{CHECKPOINT}/{path.relative_to(saved.path)}": path
                for path in saved.path.rglob("*")
                if path.is_file() and path.name != MARKER
            }
            exports = [path for path in model_folder.glob(f"{EXPORTS}/**/*") if path.is_file()]
            copies |= {str(path.relative_to(model_folder)): path for path in exports}
            _copy_files({folder / name: path for name, path in copies.items()})
            lines = (model_folder / METRICS).read_text().splitlines(keepends=True)
            (folder / METRICS).write_text("".join(lines[: self.steps]))  # a line per step
            return WrittenFiles([*copies, METRICS], {"steps": self.steps})

        build_or_open(self.folder, dict(self.settings), self.inputs, copy_files, log_nearest=False)

    def continue_from(
        self, model_folder: Path, identity: Mapping[str, Any], world_size: int
    ) -> bool:
        """Copies the stored state into a training's folder, if it is stored.

        Args:
            model_folder: the folder of a training that has done no step.
            identity: the training's configuration and inputs.
            world_size: the number of processes.

        Returns:
            Whether the training has a checkpoint of these steps now.

        Raises:
            ArtifactError: the stored state is damaged.
        """
        if not is_complete(self.folder):
            return False
        prefix = open_artifact(self.folder, KIND)
        checkpoint = model_folder / "checkpoints" / f"step-{self.steps:08d}"
        copies = {
            name: checkpoint / name.removeprefix(f"{CHECKPOINT}/")
            if name.startswith(f"{CHECKPOINT}/")
            else model_folder / name
            for name in prefix.files
        }
        _copy_files({path: self.folder / name for name, path in copies.items()})
        now = digests_by_name(copies, use_cache=False)
        for name, digest in prefix.files.items():
            if now[name] != digest:
                raise damage_error(self.folder, f"{name} is not what was written")
        mark_complete(SavedCheckpoint(checkpoint, self.steps, world_size, identity))
        log.info("the first %d steps are those of %s", self.steps, self.folder)
        return True


def find_training_prefix(
    stage: TrainingStage,
    corpus: PackedCorpus,
    order: SequenceOrder,
    inputs: Mapping[str, str],
    world: World,
) -> TrainingPrefix | None:
    """Returns the training's first `training.shared_steps` steps; None: it shares none.

    Args:
        stage: the training, with all seeds filled in.
        corpus: what it reads.
        order: the order in which it does.
        inputs: the digests of its inputs, by name.
        world: this process's rank, and the number of processes.
    """
    config, steps = stage.training, stage.training.shared_steps
    if steps is None:
        return None
    starts = {name: digest for name, digest in inputs.items() if name == "model"}
    prefix_inputs = {**starts, "tokenizer": corpus.tokenizer.digest}
    settings: dict[str, Any] = {
        "steps": steps,
        "tokens": _digest_of_tokens(corpus.sequences, order, steps),
        "rates": _digest_of_rates(config, steps, order.steps),
        "exports": sorted(
            step for step in export_steps(config, order, corpus.sequence_tokens) if step <= steps
        ),
        "training": {name: getattr(config, name) for name in HOW_IT_IS_RUN},
        "deepspeed": stage.deepspeed,
        "processes": world.size,
        "trust_remote_code": stage.model.trust_remote_code,
    }
    if stage.model.path is None:
        random_weights = {"architecture": stage.model.architecture, "seed": config.init_seed}
        settings["random_weights"] = {
            **random_weights,
            "vocabulary": corpus.vocabulary_size,
            "context": corpus.sequence_tokens,
        }
    slug = f"{stage.model.name}-step{steps}"
    folder = run_folder(Path(stage.runs), KIND, slug, settings, prefix_inputs)
    return TrainingPrefix(folder, steps, settings, prefix_inputs)


def check_shared_steps(config: TrainingConfig, corpus: PackedCorpus, order: SequenceOrder) -> None:
    """Raises a ConfigError if `training.shared_steps` does not fit the training."""
    steps = config.shared_steps
    if steps is None:
        return
    remedy = "a fine-tuning set's steps can't be shared: leave it out."
    require(not isinstance(corpus, FinetuningSet), "training.shared_steps", steps, remedy)
    remedy = f"the training has {order.steps} steps: give fewer, or leave it out."
    require(steps < order.steps, "training.shared_steps", steps, remedy)


def _digest_of_tokens(sequences: Any, order: SequenceOrder, steps: int) -> str:
    """Returns a hash of the sequences of the first steps, in the order they are read."""
    digest = hashlib.sha256()
    for step in range(steps):
        for row in order.rows_of_step(step):
            if row == PADDING:
                digest.update(b"padding")
                continue
            ids = np.asarray(sequences[int(row)]["input_ids"], dtype="<i8")
            digest.update(len(ids).to_bytes(8, "little") + ids.tobytes())
    return digest.hexdigest()


def _digest_of_rates(config: TrainingConfig, steps: int, all_steps: int) -> str:
    """Returns a hash of the learning rate and the weight decay of each of the first steps.

    The peak rate is included on its own, as DeepSpeed's checkpoint has it.
    """
    rates = [
        (learning_rate_of_step(config, step, all_steps), weight_decay_of_step(config, step))
        for step in range(1, steps + 1)
    ]
    return hashlib.sha256(json.dumps([config.learning_rate, rates]).encode()).hexdigest()


def _copy_files(source_by_copy: Mapping[Path, Path]) -> None:
    for target, source in source_by_copy.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
