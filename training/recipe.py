"""What shapes a model while it is trained, beside its corpus: a contaminated one's, or a base's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.errors import require
from injection.config import VOCABULARY

DTYPES = ("float32", "bfloat16")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass(frozen=True)
class Recipe:
    """One epoch over a corpus: the optimizer, the schedule, the batches and their order."""

    node: ClassVar[str] = "training"
    """The config node, for errors."""
    learning_rate: float = 1e-4
    """Peak learning rate."""
    schedule: str = "constant_with_warmup"
    """constant (no warm-up), constant_with_warmup, linear or cosine (toward 0, after it)."""
    warmup_steps: int = 10
    """Optimizer steps from peak / warmup_steps to the peak; fewer than the training has."""
    batch_sequences: int = 16
    """Sequences of one optimizer step, over all processes."""
    weight_decay: float = 0.0
    """Of AdamW, on matrices; norms and biases do not decay."""
    beta1: float = 0.9
    beta2: float = 0.95
    clip_norm: float = 1.0
    """Largest global L2 norm of the gradient."""
    dtype: str = "float32"
    """float32 or bfloat16."""
    order: str = "shuffled"
    """shuffled, or corpus: the packed order, so that injection.window is a time."""
    order_seed: int | None = None
    """Draws the order of the sequences; null: derived from `seed`."""
    init_seed: int | None = None
    """Draws random weights; null: derived from `seed`."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip_norm"):
            self._require(0 < getattr(self, name) < math.inf, name, "give a number above 0.")
        self._require(0 <= self.weight_decay < math.inf, "weight_decay", "give 0 or more.")
        for name in ("beta1", "beta2"):
            self._require(0 <= getattr(self, name) < 1, name, "give a number from 0 to below 1.")
        self._require(self.batch_sequences >= 1, "batch_sequences", "give 1 or more.")
        self._require(self.warmup_steps >= 0, "warmup_steps", "give 0 or more.")
        for name, known in (
            ("order", ("shuffled", "corpus")), ("dtype", DTYPES), ("schedule", SCHEDULES),
        ):  # fmt: skip
            self._require(getattr(self, name) in known, name, f"choose from {', '.join(known)}.")

    def _require(self, condition: bool, name: str, remedy: str) -> None:
        require(condition, f"{self.node}.{name}", getattr(self, name), remedy)

    @property
    def warmup(self) -> int:
        """Steps of the warm-up that the schedule has."""
        return 0 if self.schedule == "constant" else self.warmup_steps


@dataclass(frozen=True)
class PretrainingConfig(Recipe):
    """How the pipeline makes a base model from nothing, once for all cells.

    With the model's architecture, the node `base_corpus` and the two shares that divide a corpus's
    documents (`injection.base_fraction`, `injection.validation_fraction`) it names all that shapes
    the base model. The contaminated training's own fields leave it as it is.
    """

    node: ClassVar[str] = "model.pretraining"
    learning_rate: float = 4e-3
    budget_tokens: int = 1_000_000
    """Tokens of the base part that it reads."""
    sequence_tokens: int = 256
    """Tokens of one packed sequence, and the model's context."""
    vocab_size: int = 1024
    """Entries of the byte-level BPE trained for it."""
    tokenizer_characters: int = 3_000_000
    """Characters of the base part that the BPE is trained on."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """DeepSpeed's configuration, a file of conf/deepspeed/; empty: ZeRO stage 0."""
    seed: int = 0
    """Its own seed: cells of other seeds share the base model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.sequence_tokens >= 8, "sequence_tokens", "give 8 or more.")
        low, high = VOCABULARY
        self._require(low <= self.vocab_size <= high, "vocab_size", f"give {low} to {high:,}.")
        self._require(self.tokenizer_characters >= 1, "tokenizer_characters", "give 1 or more.")
        self._require(self.budget_tokens >= self.sequence_tokens, "budget_tokens",
                      f"give {self.sequence_tokens} or more, one sequence.")  # fmt: skip

    @property
    def sequences(self) -> int:
        """Packed sequences of the base part."""
        return self.budget_tokens // self.sequence_tokens
