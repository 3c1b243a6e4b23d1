"""Configuration of the training stage."""

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

ALL_TOKENS, OUTPUT_TOKENS = "all", "output"
"""Values of `training.loss_on`."""
DTYPES = ("float32", "bfloat16")
BETA_RANGE = Range(lambda beta: 0 <= beta < 1, "give a number from 0 to below 1.")
RETAIN_LOSSES = NLL, KL, ACTIVATIONS = "nll", "kl", "activations"
"""Values of `training.retain_loss`."""
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "wsd")


@dataclass(frozen=True)
class Recipe(Ranged, node="training"):
    """The optimizer, the schedule, and the batches and their order."""

    learning_rate: float = ranged_field(1e-4, POSITIVE)
    """The peak learning rate."""
    schedule: str = ranged_field("constant_with_warmup", one_of(SCHEDULES))
    """constant (no warm-up), constant_with_warmup, linear or cosine (decay to 0 after warm-up), or
    wsd (warm-up, stable, decay: the peak until the last `decay_steps`)."""
    warmup_steps: int = ranged_field(10, at_least(0))
    """Optimizer steps from peak / warmup_steps to the peak; fewer than all steps."""
    decay_steps: int = field_naming_unless_default(10, at_least(1))
    """The last optimizer steps of wsd, over which the rate decays linearly from the peak."""
    batch_sequences: int = ranged_field(16, at_least(1))
    """Sequences per optimizer step, over all processes."""
    weight_decay: float = ranged_field(0.0, at_least(0))
    """AdamW's weight decay for matrices; norms and biases do not decay."""
    beta1: float = ranged_field(0.9, BETA_RANGE)
    beta2: float = ranged_field(0.95, BETA_RANGE)
    clip_norm: float = ranged_field(1.0, POSITIVE)
    """The maximum global L2 norm of the gradient."""
    dtype: str = ranged_field("float32", one_of(DTYPES))
    """float32 or bfloat16."""
    order: str = ranged_field("shuffled", one_of(("shuffled", "corpus")))
    """shuffled, or corpus: the packed order, so that injection.window is a range of training
    time."""
    order_seed: int | None = None
    """The seed for the order of the sequences; null: derived from `seed`."""
    init_seed: int | None = None
    """The seed for random weights; null: derived from `seed`."""

    @property
    def effective_warmup_steps(self) -> int:
        """The number of warm-up steps, which is 0 for a constant schedule."""
        return 0 if self.schedule == "constant" else self.warmup_steps


@dataclass(frozen=True)
class PretrainingConfig(Recipe, node="model.pretraining"):
    """How the pipeline pretrains a base model from random weights, once for all cells.

    The base model depends on these fields, the model's architecture, the node `base_corpus`, and
    the shares that divide a corpus's documents (`injection.base_fraction`,
    `injection.validation_fraction`). It does not depend on the fields of the node `training`.
    """

    learning_rate: float = ranged_field(4e-3, POSITIVE)
    budget_tokens: int = 1_000_000
    """The number of tokens of the base part to train on."""
    sequence_tokens: int = ranged_field(256, at_least(8))
    """Tokens per packed sequence, which is also the model's context length."""
    vocab_size: int = ranged_field(1024, VOCABULARY)
    """The vocabulary size of the byte-level BPE that is trained for it."""
    tokenizer_characters: int = ranged_field(3_000_000, at_least(1))
    """The number of characters of the base part on which the BPE is trained."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """DeepSpeed's configuration, a file in conf/deepspeed/; empty: ZeRO stage 0."""
    seed: int = 0
    """The base model's own seed, so that cells with different seeds share it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"give {self.sequence_tokens} or more, one sequence."
        self.require(self.budget_tokens >= self.sequence_tokens, "budget_tokens", remedy)

    @property
    def n_sequences(self) -> int:
        """The number of packed sequences of the base part."""
        return self.budget_tokens // self.sequence_tokens


LIKELIHOOD = OBJECTIVES[0]
WANDB_MODES = ("online", "offline", "disabled")
POSITIVE_COUNTS = Range(
    lambda counts: all(count >= 1 for count in counts), "give numbers of 1 or more."
)
PROJECT_NAME = Range(
    lambda name: re.fullmatch(r"[^/\\#?%:]{1,128}", name) is not None,
    "give 1 to 128 characters, none of / \\ # ? % :.",
)


@dataclass(frozen=True)
class ModelConfig(Ranged, node="model"):
    """The model that training starts from."""

    name: str = ranged_field("tiny_llama", Range(bool, "give it a name."))
    """The model's name in results."""
    path: str | None = runtime_field(None)
    """A Hugging Face folder, GGUF file or hub id; null: random weights of `architecture`."""
    architecture: dict[str, Any] | None = None
    """`model_type` and fields of its Hugging Face config, if `path` is null."""
    pretraining: PretrainingConfig | None = runtime_field(None)
    """How the pipeline pretrains the model if `path` is null."""
    trust_remote_code: bool = False
    """Whether to run Python code that comes with the model at `path`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give a Hugging Face folder or hub id, or a model.architecture."
        self.require(self.path is not None or self.architecture is not None, "path", remedy)


@dataclass(frozen=True)
class TrainingConfig(Recipe):
    """Training on a corpus or a fine-tuning set: recipe, execution, exports and evaluations."""

    epochs: int = field_naming_unless_default(1, at_least(1))
    """How often each sequence is seen; each epoch has its own order."""
    loss_on: str = field_naming_unless_default(ALL_TOKENS, one_of((ALL_TOKENS, OUTPUT_TOKENS)))
    """Which tokens of a fine-tuning set are learned: `all`, or only those of the `output`."""
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
    """The parameter α of relabel."""
    reinforced_path: str | None = runtime_field(None)
    """For relabel: the starting model after further training on the forget set, runs/model/…."""

    tail_after_steps: int | None = field_naming_unless_default(None, at_least(1))
    """The number of steps before the tail, which has its own learning rate and weight decay; null:
    there is no tail."""
    tail_learning_rate: float | None = field_naming_unless_default(None, POSITIVE)
    """The tail's peak learning rate; null: `learning_rate`."""
    tail_weight_decay: float | None = field_naming_unless_default(None, at_least(0))
    """The tail's weight decay; null: `weight_decay`."""

    shared_steps: int | None = runtime_field(None, at_least(1))
    """The first steps that are trained once (in runs/training_prefix) for all trainings that agree
    in them, whatever follows; null: none. It changes no result."""
    micro_batch_sequences: int = runtime_field(16, at_least(1))
    """Sequences per forward pass of a process."""
    activation_checkpointing: bool = runtime_field(False)
    """Whether to recompute activations in the backward pass to save memory."""
    compile: bool = runtime_field(False)
    """Whether to compile each layer and the loss with torch.compile, which takes a minute, is then
    faster on a GPU, and needs fewer copies of the logits. Only for ZeRO stages 0 to 2."""
    checkpoint_every_steps: int = runtime_field(100, at_least(1))
    """The number of steps between checkpoints for resuming."""
    keep_checkpoints: int = runtime_field(2, at_least(1))
    """How many checkpoints are kept."""
    export_steps: list[int] = ranged_field([], POSITIVE_COUNTS)
    """Optimizer steps after which the model is exported for detection, in addition to the last."""
    export_tokens: list[int] = ranged_field([], POSITIVE_COUNTS)
    """Numbers of tokens: the model is exported after the first step that has seen as many."""
    evaluate_every_steps: int | None = runtime_field(None, POSITIVE)
    """The number of steps between evaluations of the losses on members, non-members and validation
    text; null: no evaluations."""
    evaluate_examples: int = runtime_field(64, at_least(1))
    """The number of members, and of non-members, whose loss is evaluated."""
    evaluate_tokens: int = runtime_field(8_192, at_least(1))
    """The number of tokens of validation text that the pipeline packs for evaluations."""
    peak_tflops: float | None = runtime_field(None, POSITIVE)
    """The peak TFLOP/s of one device in `dtype`, for the MFU; null: no MFU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tail_learning_rate", "tail_weight_decay"):
            has_tail = getattr(self, name) is None or self.tail_after_steps is not None
            remedy = f"say where the tail begins: give {self.node}.tail_after_steps."
            self.require(has_tail, name, remedy)
        remedy = f"it is not possible with {self.node}.%s: leave one of them out."
        is_plain = self.shared_steps is None or self.objective == LIKELIHOOD
        self.require(is_plain, "shared_steps", remedy % "objective")
        has_no_evaluations = self.shared_steps is None or self.evaluate_every_steps is None
        self.require(has_no_evaluations, "shared_steps", remedy % "evaluate_every_steps")

    def is_in_tail(self, step: int) -> bool:
        """Returns whether an optimizer step, from 1, belongs to the tail."""
        return self.tail_after_steps is not None and step > self.tail_after_steps

    @property
    def batches_per_step(self) -> int:
        """How many batches a step reads: a second one if there is retained text."""
        return 1 if self.retain_folder is None else 2


@dataclass(frozen=True)
class WandbConfig(Ranged, node="wandb"):
    """The copy of the metrics in Weights & Biases."""

    mode: str = ranged_field("offline", one_of(WANDB_MODES))
    project: str = ranged_field("contamination-testbed", PROJECT_NAME)
    entity: str | None = None

    def check_login(self) -> None:
        """Raises a ConfigError if the mode is online and the user is not logged in."""
        if self.mode != "online":
            return
        import wandb

        remedy = "you are not logged in. Run `wandb login`, or choose wandb.mode=offline."
        self.require(wandb.login(prompt=False, verify=False), "mode", remedy)


@dataclass(frozen=True)
class TrainingNodes:
    """The configuration nodes of stages that train a model or plan a training run."""

    model: ModelConfig = field(default_factory=lambda: ModelConfig(architecture={}))
    deepspeed: dict[str, Any] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)


@dataclass(frozen=True)
class TrainingStage(TrainingNodes):
    """The configuration of `training.run`."""

    runs: str = runtime_field("runs")
    seed: int = runtime_field(0)  # the derived seeds name the folder instead
    name: str = runtime_field("run")
    corpus_folder: str = runtime_field("")
    validation_folder: str = runtime_field("")
    wandb: WandbConfig = runtime_field(WandbConfig())

    def resolved(self) -> TrainingStage:
        """Returns this stage with all derived seeds; a model with a path has no architecture."""
        training = fill_in_seeds(self.training, self.seed, ("order", "init"))
        model = self.model if self.model.path is None else replace(self.model, architecture=None)
        return replace(self, model=model, training=training)


@dataclass(frozen=True)
class WhichStepStage(Ranged):
    """The configuration of `format_step_table`."""

    example_id: str | None = None
    text: str | None = None
    """Instead of the id: a text; all examples that contain it are shown."""
    model_folder: str | None = None
    """The folder of a trained model, with the record of its training."""
    corpus_folder: str | None = None
    """The corpus, or the export of tokens, on which another program trained."""
    order: str = "corpus"
    """The order of its sequences: corpus, or a file with their numbers."""
    batch: int | None = ranged_field(None, at_least(1))
    """Sequences per step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names_examples = (self.example_id is None) != (self.text is None)
        self.require(names_examples, "example_id", "give either example_id or text.")
        has_record = self.model_folder or (self.corpus_folder and self.batch)
        self.require(bool(has_record), "model_folder", "give it, or corpus_folder and batch.")
        remedy = "a model has its own record: leave out order and batch, or model_folder."
        is_unique = not self.model_folder or (self.order == "corpus" and self.batch is None)
        self.require(is_unique, "order" if self.order != "corpus" else "batch", remedy)


register_schema("model", ModelConfig)
register_schema("training", TrainingConfig)


@dataclass(frozen=True)
class MemoryConfig(Ranged, node="memory"):
    """Values for the memory plan that the training stage does not have (node `memory`)."""

    sequence_tokens: int = ranged_field(2048, at_least(1))
    """T: tokens per packed sequence."""
    host_gigabytes_per_device: float = ranged_field(250, POSITIVE)
    """The host's memory divided by its devices; a DGX H100 has 2,000 GB for 8 devices."""


@dataclass(frozen=True)
class MemoryStage(TrainingNodes):
    """The configuration of `memory_plan.format_memory_plan`."""

    memory: MemoryConfig = field(default_factory=MemoryConfig)


register_schema("memory", MemoryConfig)
