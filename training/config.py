"""The training stage's configuration: types, ranges and what each field means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from core.config import named_where_set, register, runtime
from core.ranges import POSITIVE, Range, Ranged, at_least, limited, one_of
from core.seeds import with_seeds
from training.objectives import OBJECTIVES
from training.recipe import ALL, OUTPUT, PretrainingConfig, Recipe

LIKELIHOOD = OBJECTIVES[0]
WANDB_MODES = ("online", "offline", "disabled")
AT = Range(lambda counts: all(count >= 1 for count in counts), "give numbers of 1 or more.")
PROJECT = Range(
    lambda name: re.fullmatch(r"[^/\\#?%:]{1,128}", name) is not None,
    "give 1 to 128 characters, none of / \\ # ? % :.",
)


@dataclass(frozen=True)
class ModelConfig(Ranged, node="model"):
    """The model that training starts from."""

    name: str = limited("tiny_llama", Range(bool, "give it a name."))
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
        super().__post_init__()
        remedy = "give a Hugging Face folder or hub id, or a model.architecture."
        self.require(self.path is not None or self.architecture is not None, "path", remedy)


@dataclass(frozen=True)
class TrainingConfig(Recipe):
    """Epochs over a corpus or a fine-tuning set: the recipe, how it runs, what is kept."""

    epochs: int = named_where_set(1, at_least(1))
    """How often each sequence is seen; each epoch has an order of its own."""
    loss_on: str = named_where_set(ALL, one_of((ALL, OUTPUT)))
    """Of a fine-tuning set's texts, what is learnt: `all` of them, or their `output` alone."""
    objective: str = named_where_set(LIKELIHOOD, one_of(OBJECTIVES))
    """likelihood: learn the corpus. The others unlearn it: ascent, difference, npo, relabel."""
    retain_folder: str | None = runtime(None)
    """Clean text that an unlearner keeps: runs/corpus/… (difference needs it; npo, relabel may)."""
    retain_weight: float = named_where_set(1.0, POSITIVE)
    """λ, of the retained text's loss."""
    npo_beta: float = named_where_set(0.1, POSITIVE)
    """β of npo."""
    relabel_strength: float = named_where_set(5.0, POSITIVE)
    """α of relabel."""
    reinforced_path: str | None = runtime(None)
    """For relabel: the start, trained further on the forget set; runs/model/…."""

    micro_batch_sequences: int = runtime(16, at_least(1))
    """Sequences of one forward pass of one process."""
    activation_checkpointing: bool = runtime(False)
    """Recompute activations in the backward pass, for less memory."""
    compile: bool = runtime(False)
    """Fuse the operations of each layer, and of the loss, with torch.compile: a minute at first,
    then faster on a GPU, with fewer copies of the logits. ZeRO stages 0 to 2."""
    checkpoint_every_steps: int = runtime(100, at_least(1))
    """Steps between checkpoints to resume from."""
    keep_checkpoints: int = runtime(2, at_least(1))
    """How many of them are kept."""
    export_steps: list[int] = limited([], AT)
    """Optimizer steps after which the model is exported for detection, beside the last."""
    export_tokens: list[int] = limited([], AT)
    """Numbers of tokens seen: an export after the first step that has seen so many."""
    evaluate_every_steps: int | None = runtime(None, POSITIVE)
    """Steps between evaluations of the losses of members, non-members and validation text."""
    evaluate_examples: int = runtime(64, at_least(1))
    """Members, and non-members, whose loss is evaluated."""
    evaluate_tokens: int = runtime(8_192, at_least(1))
    """Tokens of validation text that a pipeline packs for the evaluations."""
    peak_tflops: float | None = runtime(None, POSITIVE)
    """What one device can do in `dtype`, in TFLOP/s, for MFU; null: no MFU."""

    @property
    def parts(self) -> int:
        """How many times `batch_sequences` a step reads: of text that is retained as many more."""
        return 1 if self.retain_folder is None else 2


@dataclass(frozen=True)
class WandbConfig(Ranged, node="wandb"):
    """The mirror of the metrics in Weights & Biases."""

    mode: str = limited("offline", one_of(WANDB_MODES))
    project: str = limited("contamination-testbed", PROJECT)
    entity: str | None = None

    def check_login(self) -> None:
        """Raise a ConfigError, before any work, where the mirror is online and nobody logged in."""
        if self.mode != "online":
            return
        import wandb

        remedy = "nobody is logged in. Run `wandb login`, or choose wandb.mode=offline."
        self.require(wandb.login(prompt=False, verify=False), "mode", remedy)


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
        training = with_seeds(self.training, self.seed, ("order", "init"))
        model = self.model if self.model.path is None else replace(self.model, architecture=None)
        return replace(self, model=model, training=training)


register("model", ModelConfig)
register("training", TrainingConfig)
