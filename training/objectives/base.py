"""What an objective is: a sum over a batch, and what the sum over a whole step is divided by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.training.config import ALL, TrainingConfig
from contamination.training.data import PADDING, Batch, Rows, read_batch

if TYPE_CHECKING:
    import torch

NEVER, MAYBE, ALWAYS = "never", "maybe", "always"


@dataclass(frozen=True)
class Objective(ABC):
    """A mean that a step moves, over the tokens or the texts that count.

    Attributes:
        loss_on: of a fine-tuning set, which tokens count: `all` or those of the `output`.
        compiled: whether the loss is compiled.
    """

    loss_on: str = ALL
    compiled: bool = False

    weight: ClassVar[float] = 1.0
    """1: the mean is lowered; -1: it is raised."""
    retains: ClassVar[str] = NEVER
    """Whether text that is to be kept is learnt beside it (training.retain_folder)."""
    readings: ClassVar[int] = 0
    """How many models read all sequences before the first step."""

    @classmethod
    def of(cls, config: TrainingConfig) -> Objective:
        """The objective that a configuration describes."""
        return cls(config.loss_on, config.compile)

    def prepared(self, engine: Any, sequences: Any, config: TrainingConfig, world: World) -> Any:
        """The same with what it takes from the model before its first step; every process calls it.

        Args:
            engine: the DeepSpeed engine with the weights that training starts from.
            sequences: all that will be trained on.
            config: the training configuration.
            world: this process's place.
        """
        return self

    @abstractmethod
    def sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """The sum over what counts in a micro-batch, in nats."""

    @abstractmethod
    def size(self, sequences: Any, rows: Rows) -> int:
        """How much counts in a step's rows: what the step's sum is divided by."""


def blocks(
    engine: Any, sequences: Any, loss_on: str, config: TrainingConfig, world: World
) -> Iterator[Batch]:
    """This process's micro-batches, for a model that predicts meanwhile (dropout is off).

    All processes get equally many. A micro-batch holds the same sequences at any number of
    processes.
    """
    micro, count = config.micro_batch_sequences, len(sequences)
    at_once = micro * world.size
    rows = np.arange(-(-count // at_once) * at_once)
    rows[count:] = PADDING
    engine.eval()
    for part in rows.reshape(-1, world.size, micro):
        yield read_batch(sequences, part[world.rank], loss_on).to(world.device)
    engine.train()
