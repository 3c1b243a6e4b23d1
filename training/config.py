"""The training stage's configuration: types, ranges and what each field means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from contamination.core.config import (
    POSITIVE,
    Range,
    Ranged,
    at_least,
    field_naming_unless_default,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.seeds import fill_in_seeds
from contamination.injection.config import VOCABULARY
from contamination.training.objectives import OBJECTIVES

ALL, OUTPUT = "all", "output"
"""Which tokens of a fine-tuning set's texts are learnt."""
DTYPES = ("float32", "bfloat16")
BETA = Range(lambda beta: 0 <= beta < 1, "give a number from 0 to below 1.")
RETAIN_LOSSES = NLL, KL, ACTIVATIONS = "nll", "kl", "activations"
"""Values of `training.retain_loss`."""
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass(frozen=True)
class Recipe(Ranged, node="training"):
    """One epoch over a corpus: the optimizer, the schedule, the batches and their order."""

    learning_rate: float = ranged_field(1e-4, POSITIVE)
    """Peak learning rate."""
    schedule: str = ranged_field("constant_with_warmup", one_of(SCHEDULES))
    """constant (no warm-up), constant_with_warmup, linear or cosine (toward 0, after it)."""
    warmup_steps: int = ranged_field(10, at_least(0))
    """Optimizer steps from peak / warmup_steps to the peak; fewer than the training has."""
    batch_sequences: int = ranged_field(16, at_least(1))
    """Sequences of one optimizer step, over all processes."""
    weight_decay: float = ranged_field(0.0, at_least(0))
    """Of AdamW, on matrices; norms and biases do not decay."""
    beta1: float = ranged_field(0.9, BETA)
    beta2: float = ranged_field(0.95, BETA)
    clip_norm: float = ranged_field(1.0, POSITIVE)
    """Largest global L2 norm of the gradient."""
    dtype: str = ranged_field("float32", one_of(DTYPES))
    """float32 or bfloat16."""
    order: str = ranged_field("shuffled", one_of(("shuffled", "corpus")))
    """shuffled, or corpus: the packed order, so that injection.window is a time."""
    order_seed: int | None = None
    """Draws the order of the sequences; null: derived from `seed`."""
    init_seed: int | None = None
    """Draws random weights; null: derived from `seed`."""

    @property
    def effective_warmup_steps(self) -> int:
        """Steps of the warm-up that the schedule has."""
        return 0 if self.schedule == "constant" else self.warmup_steps


@dataclass(frozen=True)
class PretrainingConfig(Recipe, node="model.pretraining"):
    """How the pipeline makes a base model from nothing, once for all cells.

    With the model's architecture, the node `base_corpus` and the two shares that divide a corpus's
    documents (`injection.base_fraction`, `injection.validation_fraction`) it names all that shapes
    the base model. The contaminated training's own fields leave it as it is.
    """

    learning_rate: float = ranged_field(4e-3, POSITIVE)
    budget_tokens: int = 1_000_000
    """Tokens of the base part that it reads."""
    sequence_tokens: int = ranged_field(256, at_least(8))
    """Tokens of one packed sequence, and the model's context."""
    vocab_size: int = ranged_field(1024, VOCABULARY)
    """Entries of the byte-level BPE trained for it."""
    tokenizer_characters: int = ranged_field(3_000_000, at_least(1))
    """Characters of the base part that the BPE is trained on."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """DeepSpeed's configuration, a file of conf/deepspeed/; empty: ZeRO stage 0."""
    seed: int = 0
    """Its own seed: cells of other seeds share the base model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"give {self.sequence_tokens} or more, one sequence."
        self.require(self.budget_tokens >= self.sequence_tokens, "budget_tokens", remedy)

    @property
    def n_sequences(self) -> int:
        """Packed sequences of the base part."""
        return self.budget_tokens // self.sequence_tokens


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

    name: str = ranged_field("tiny_llama", Range(bool, "give it a name."))
    """How results call it."""
    path: str | None = runtime_field(None)
    """Hugging Face folder, GGUF file or hub id; null: random weights of `architecture`."""
    architecture: dict[str, Any] | None = None
    """`model_type` and its Hugging Face config's fields, where `path` is null."""
    pretraining: PretrainingConfig | None = runtime_field(None)
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

    epochs: int = field_naming_unless_default(1, at_least(1))
    """How often each sequence is seen; each epoch has an order of its own."""
    loss_on: str = field_naming_unless_default(ALL, one_of((ALL, OUTPUT)))
    """Of a fine-tuning set's texts, what is learnt: `all` of them, or their `output` alone."""
    objective: str = field_naming_unless_default(LIKELIHOOD, one_of(OBJECTIVES))
    """likelihood: learn the corpus. The others unlearn it: ascent, difference, npo, simnpo, rmu,
    idk_dpo, relabel."""
    forget_weight: float = field_naming_unless_default(1.0, POSITIVE)
    """γ, of an unlearner's loss on the corpus (open-unlearning: 0.125 for SimNPO, otherwise 1)."""
    retain_folder: str | None = runtime_field(None)
    """Clean text that an unlearner keeps: runs/corpus/… (difference and rmu need it; npo, simnpo,
    idk_dpo and relabel may)."""
    retain_weight: float = field_naming_unless_default(1.0, POSITIVE)
    """λ, of the retained text's loss."""
    retain_loss: str | None = field_naming_unless_default(None, one_of(RETAIN_LOSSES))
    """Of the retained text: nll (its tokens), kl (from the start's predictions) or activations
    (of rmu's layer, from the start's); null: activations for rmu, otherwise nll."""
    npo_beta: float = field_naming_unless_default(0.1, POSITIVE)
    """β of npo."""
    simnpo_beta: float = field_naming_unless_default(4.5, POSITIVE)
    """β of simnpo; 2.5 to 5.5 are usual."""
    simnpo_delta: float = field_naming_unless_default(0.0, at_least(0))
    """δ of simnpo, nats per token: the loss per token below which a text is pushed hardest."""
    rmu_layer: int | None = field_naming_unless_default(None, at_least(0))
    """For rmu: the layer, from 0, whose output is steered (open-unlearning: 7, of 16 to 32)."""
    rmu_coefficient: float = field_naming_unless_default(2.0, POSITIVE)
    """c of rmu, the length of the vector that activations are steered to (2 to 300)."""
    idk_beta: float = field_naming_unless_default(0.1, POSITIVE)
    """β of idk_dpo."""
    idk_answers: str | None = runtime_field(None)
    """For idk_dpo: a text file with an answer such as "I don't know." per line."""
    relabel_strength: float = field_naming_unless_default(5.0, POSITIVE)
    """α of relabel."""
    reinforced_path: str | None = runtime_field(None)
    """For relabel: the start, trained further on the forget set; runs/model/…."""

    micro_batch_sequences: int = runtime_field(16, at_least(1))
    """Sequences of one forward pass of one process."""
    activation_checkpointing: bool = runtime_field(False)
    """Recompute activations in the backward pass, for less memory."""
    compile: bool = runtime_field(False)
    """Fuse the operations of each layer, and of the loss, with torch.compile: a minute at first,
    then faster on a GPU, with fewer copies of the logits. ZeRO stages 0 to 2."""
    checkpoint_every_steps: int = runtime_field(100, at_least(1))
    """Steps between checkpoints to resume from."""
    keep_checkpoints: int = runtime_field(2, at_least(1))
    """How many of them are kept."""
    export_steps: list[int] = ranged_field([], AT)
    """Optimizer steps after which the model is exported for detection, beside the last."""
    export_tokens: list[int] = ranged_field([], AT)
    """Numbers of tokens seen: an export after the first step that has seen so many."""
    evaluate_every_steps: int | None = runtime_field(None, POSITIVE)
    """Steps between evaluations of the losses of members, non-members and validation text."""
    evaluate_examples: int = runtime_field(64, at_least(1))
    """Members, and non-members, whose loss is evaluated."""
    evaluate_tokens: int = runtime_field(8_192, at_least(1))
    """Tokens of validation text that a pipeline packs for the evaluations."""
    peak_tflops: float | None = runtime_field(None, POSITIVE)
    """What one device can do in `dtype`, in TFLOP/s, for MFU; null: no MFU."""

    @property
    def batches_per_step(self) -> int:
        """How many times `batch_sequences` a step reads: of text that is retained as many more."""
        return 1 if self.retain_folder is None else 2


@dataclass(frozen=True)
class WandbConfig(Ranged, node="wandb"):
    """The mirror of the metrics in Weights & Biases."""

    mode: str = ranged_field("offline", one_of(WANDB_MODES))
    project: str = ranged_field("contamination-testbed", PROJECT)
    entity: str | None = None

    def check_login(self) -> None:
        """Raise a ConfigError, before any work, where the mirror is online and nobody logged in."""
        if self.mode != "online":
            return
        import wandb

        remedy = "nobody is logged in. Run `wandb login`, or choose wandb.mode=offline."
        self.require(wandb.login(prompt=False, verify=False), "mode", remedy)


@dataclass(frozen=True)
class TrainingNodes:
    """The nodes of a stage that trains a model, or plans to."""

    model: ModelConfig = field(default_factory=lambda: ModelConfig(architecture={}))
    deepspeed: dict[str, Any] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)


@dataclass(frozen=True)
class TrainingStage(TrainingNodes):
    """Everything that `training.run` needs."""

    runs: str = runtime_field("runs")
    seed: int = runtime_field(0)  # the derived seeds stand in for it
    name: str = runtime_field("run")
    corpus_folder: str = runtime_field("")
    validation_folder: str = runtime_field("")
    wandb: WandbConfig = runtime_field(WandbConfig())

    def resolved(self) -> TrainingStage:
        """This stage with all derived seeds, and no architecture beside a model's path."""
        training = fill_in_seeds(self.training, self.seed, ("order", "init"))
        model = self.model if self.model.path is None else replace(self.model, architecture=None)
        return replace(self, model=model, training=training)


register_schema("model", ModelConfig)
register_schema("training", TrainingConfig)


@dataclass(frozen=True)
class MemoryConfig(Ranged, node="memory"):
    """What the plan can't know from the training stage (node `memory`)."""

    sequence_tokens: int = ranged_field(2048, at_least(1))
    """T: tokens of a packed sequence."""
    host_gigabytes_per_device: float = ranged_field(250, POSITIVE)
    """The host's memory, divided by its devices: a DGX H100 has 2,000 GB for 8."""


@dataclass(frozen=True)
class MemoryStage(TrainingNodes):
    """Everything that `plan` needs."""

    memory: MemoryConfig = field(default_factory=MemoryConfig)


register_schema("memory", MemoryConfig)
