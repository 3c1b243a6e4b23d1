"""The base class of objectives, and the micro-batches that a model reads before training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.injection.corpus import PackedCorpus
from contamination.training.config import ALL_TOKENS, TrainingConfig
from contamination.training.data import PADDING, Batch, Rows, read_batch

if TYPE_CHECKING:
    import torch

NEVER, MAYBE, ALWAYS = "never", "maybe", "always"


@dataclass(frozen=True)
class Objective(ABC):
    """A mean over tokens or texts that a step minimises or maximises.

    Attributes:
        loss_on: for a fine-tuning set, which tokens count: `all` or those of the `output`.
        compiled: whether the loss is compiled.
    """

    loss_on: str = ALL_TOKENS
    compiled: bool = False

    weight: ClassVar[float] = 1.0
    """1: the mean is minimised; -1: it is maximised."""
    retains: ClassVar[str] = NEVER
    """Whether it uses retained text (training.retain_folder): NEVER, MAYBE or ALWAYS."""
    readings: ClassVar[int] = 0
    """The number of models that read all sequences before the first step."""

    @classmethod
    def from_config(cls, config: TrainingConfig) -> Objective:
        """Returns the objective that a configuration describes."""
        return cls(config.loss_on, config.compile)

    def with_inputs(self, corpus: PackedCorpus, config: TrainingConfig) -> Objective:
        """Returns the objective with what it reads besides the corpus's sequences."""
        return self

    def prepare_from_start(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> Any:
        """Returns the objective with values computed from the model before the first step.

        Every process has to call this.

        Args:
            engine: the DeepSpeed engine with the weights that training starts from.
            sequences: all sequences that will be trained on.
            config: the training configuration.
            world: this process's rank and device.
        """
        return self

    @abstractmethod
    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the counted tokens or texts of a micro-batch, in nats."""

    @abstractmethod
    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of counted tokens or texts in a step's rows, which divides the sum."""


def iter_micro_batches(
    engine: Any, sequences: Any, loss_on: str, config: TrainingConfig, world: World
) -> Iterator[Batch]:
    """Yields this process's micro-batches of all sequences, with the engine in evaluation mode.

    All processes get the same number. The sequences of a micro-batch do not depend on the number of
    processes.
    """
    micro, count = config.micro_batch_sequences, len(sequences)
    rows_per_pass = micro * world.size
    rows = np.arange(-(-count // rows_per_pass) * rows_per_pass)
    rows[count:] = PADDING
    engine.eval()
    for rows_of_ranks in rows.reshape(-1, world.size, micro):
        yield read_batch(sequences, rows_of_ranks[world.rank], loss_on).to(world.device)
    engine.train()
