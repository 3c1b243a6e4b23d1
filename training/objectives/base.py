"""What an objective is: a sum over a batch, and what the sum over a whole step is divided by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from training.data import ALL, Batch, Rows


@dataclass(frozen=True)
class Objective(ABC):
    """A mean that a step lowers, over the tokens or the texts that count.

    Attributes:
        loss_on: of a fine-tuning set, which tokens count: `all` or those of the `output`.
        compiled: whether the loss is compiled.
    """

    loss_on: str = ALL
    compiled: bool = False

    @abstractmethod
    def sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """The sum over what counts in a micro-batch, in nats."""

    @abstractmethod
    def size(self, sequences: Any, rows: Rows) -> int:
        """How much counts in a step's rows: what the step's sum is divided by."""
