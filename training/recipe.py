"""What shapes a model while it is trained, beside its corpus: a contaminated one's, or a base's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.ranges import POSITIVE, Range, Ranged, at_least, limited, one_of
from injection.config import VOCABULARY

ALL, OUTPUT = "all", "output"
"""Which tokens of a fine-tuning set's texts are learnt."""
DTYPES = ("float32", "bfloat16")
BETA = Range(lambda beta: 0 <= beta < 1, "give a number from 0 to below 1.")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass(frozen=True)
class Recipe(Ranged, node="training"):
    """One epoch over a corpus: the optimizer, the schedule, the batches and their order."""

    learning_rate: float = limited(1e-4, POSITIVE)
    """Peak learning rate."""
    schedule: str = limited("constant_with_warmup", one_of(SCHEDULES))
    """constant (no warm-up), constant_with_warmup, linear or cosine (toward 0, after it)."""
    warmup_steps: int = limited(10, at_least(0))
    """Optimizer steps from peak / warmup_steps to the peak; fewer than the training has."""
    batch_sequences: int = limited(16, at_least(1))
    """Sequences of one optimizer step, over all processes."""
    weight_decay: float = limited(0.0, at_least(0))
    """Of AdamW, on matrices; norms and biases do not decay."""
    beta1: float = limited(0.9, BETA)
    beta2: float = limited(0.95, BETA)
    clip_norm: float = limited(1.0, POSITIVE)
    """Largest global L2 norm of the gradient."""
    dtype: str = limited("float32", one_of(DTYPES))
    """float32 or bfloat16."""
    order: str = limited("shuffled", one_of(("shuffled", "corpus")))
    """shuffled, or corpus: the packed order, so that injection.window is a time."""
    order_seed: int | None = None
    """Draws the order of the sequences; null: derived from `seed`."""
    init_seed: int | None = None
    """Draws random weights; null: derived from `seed`."""

    @property
    def warmup(self) -> int:
        """Steps of the warm-up that the schedule has."""
        return 0 if self.schedule == "constant" else self.warmup_steps


@dataclass(frozen=True)
class PretrainingConfig(Recipe, node="model.pretraining"):
    """How the pipeline makes a base model from nothing, once for all cells.

    With the model's architecture, the node `base_corpus` and the two shares that divide a corpus's
    documents (`injection.base_fraction`, `injection.validation_fraction`) it names all that shapes
    the base model. The contaminated training's own fields leave it as it is.
    """

    learning_rate: float = limited(4e-3, POSITIVE)
    budget_tokens: int = 1_000_000
    """Tokens of the base part that it reads."""
    sequence_tokens: int = limited(256, at_least(8))
    """Tokens of one packed sequence, and the model's context."""
    vocab_size: int = limited(1024, VOCABULARY)
    """Entries of the byte-level BPE trained for it."""
    tokenizer_characters: int = limited(3_000_000, at_least(1))
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
    def sequences(self) -> int:
        """Packed sequences of the base part."""
        return self.budget_tokens // self.sequence_tokens
