"""The training stage's configuration: types, ranges and what each field means."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from core.config import register, runtime
from core.errors import require
from core.seeds import derive
from training.recipe import PretrainingConfig, Recipe

WANDB_MODES = ("online", "offline", "disabled")


@dataclass(frozen=True)
class ModelConfig:
    """The model that training starts from."""

    name: str = "tiny_llama"
    """How results call it."""
    path: str | None = runtime(None)
    """Hugging Face folder, GGUF file or hub id; null: random weights of `architecture`."""
    architecture: dict[str, Any] | None = None
    """`model_type` and its Hugging Face config's fields, where `path` is null."""
    pretraining: PretrainingConfig | None = runtime(None)
    """What the pipeline pretrains where `path` is null."""
    trust_remote_code: bool = False
    """Run the Python code that comes with the model at `path`, where it needs some."""

    def __post_init__(self) -> None:
        require(bool(self.name), "model.name", self.name, "give it a name.")
        require(self.path is not None or self.architecture is not None, "model.path", self.path,
                "give a Hugging Face folder or hub id, or a model.architecture.")  # fmt: skip


@dataclass(frozen=True)
class TrainingConfig(Recipe):
    """One epoch over the contaminated corpus: the recipe, how it runs, what is kept on the way."""

    micro_batch_sequences: int = runtime(16)
    """Sequences of one forward pass of one process."""
    activation_checkpointing: bool = runtime(False)
    """Recompute activations in the backward pass, for less memory."""
    checkpoint_every_steps: int = runtime(100)
    """Steps between checkpoints to resume from."""
    keep_checkpoints: int = runtime(2)
    """How many of them are kept."""
    export_steps: list[int] = field(default_factory=list)
    """Optimizer steps after which the model is exported for detection, beside the last."""
    export_tokens: list[int] = field(default_factory=list)
    """Numbers of tokens seen: an export after the first step that has seen so many."""
    evaluate_every_steps: int | None = runtime(None)
    """Steps between evaluations of the losses of members, non-members and validation text."""
    evaluate_examples: int = runtime(64)
    """Members, and non-members, whose loss is evaluated."""
    evaluate_tokens: int = runtime(8_192)
    """Tokens of validation text that a pipeline packs for the evaluations."""
    peak_tflops: float | None = runtime(None)
    """What one device can do in `dtype`, in TFLOP/s, for MFU; null: no MFU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ("micro_batch_sequences", "checkpoint_every_steps", "keep_checkpoints")
        for name in (*counts, "evaluate_examples", "evaluate_tokens"):
            self._require(getattr(self, name) >= 1, name, "give 1 or more.")
        for name in ("evaluate_every_steps", "peak_tflops"):
            value = getattr(self, name)
            valid = value is None or 0 < value < math.inf
            self._require(valid, name, "give a number above 0, or null.")
        for name in ("export_steps", "export_tokens"):
            valid = all(value >= 1 for value in getattr(self, name))
            self._require(valid, name, "give numbers of 1 or more.")


@dataclass(frozen=True)
class WandbConfig:
    """The mirror of the metrics in Weights & Biases."""

    mode: str = "offline"
    project: str = "contamination-testbed"
    entity: str | None = None

    def __post_init__(self) -> None:
        require(self.mode in WANDB_MODES, "wandb.mode", self.mode,
                f"choose from {', '.join(WANDB_MODES)}.")  # fmt: skip
        valid = re.fullmatch(r"[^/\\#?%:]{1,128}", self.project)
        require(bool(valid), "wandb.project", self.project,
                "give 1 to 128 characters, none of / \\ # ? % :.")  # fmt: skip

    def check_login(self) -> None:
        """Raise a ConfigError, before any work, where the mirror is online and nobody logged in."""
        if self.mode != "online":
            return
        import wandb

        require(wandb.login(prompt=False, verify=False), "wandb.mode", self.mode,
                "nobody is logged in here. Run `wandb login`, set WANDB_API_KEY, or choose "
                "wandb.mode=offline.")  # fmt: skip


@dataclass(frozen=True)
class TrainingStage:
    """Everything that `training.run` needs."""

    runs: str = runtime("runs")
    seed: int = runtime(0)  # the derived seeds stand in for it
    name: str = runtime("run")
    corpus_folder: str = runtime("")
    validation_folder: str = runtime("")
    model: ModelConfig = field(default_factory=lambda: ModelConfig(architecture={}))
    deepspeed: dict[str, Any] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    wandb: WandbConfig = runtime(WandbConfig())

    def resolved(self) -> TrainingStage:
        """This stage with all derived seeds, and no architecture beside a model's path."""
        own = self.training
        seeds: dict[str, Any] = {
            f"{purpose}_seed": derive(self.seed, purpose)
            for purpose in ("order", "init")
            if getattr(own, f"{purpose}_seed") is None
        }
        model = self.model if self.model.path is None else replace(self.model, architecture=None)
        return replace(self, model=model, training=replace(own, **seeds))


register("model", ModelConfig)
register("training", TrainingConfig)
