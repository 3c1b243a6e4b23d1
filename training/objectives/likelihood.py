"""Pretraining and supervised fine-tuning: −1/n Σ_t log p(x_t | x_<t) over the n tokens that count.

With loss_on=output these are the tokens of y given x, else those of z = x ∪ y (Ye et al. 2024,
section 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contamination.training.data import Batch, Rows, count_loss_tokens
from contamination.training.loss import token_loss_sum
from contamination.training.objectives.base import Objective

if TYPE_CHECKING:
    import torch


class Likelihood(Objective):
    """The mean loss per token, which is lowered."""

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Return the sum of the losses."""
        return token_loss_sum(model, batch, compiled=self.compiled)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Return the number of tokens that count."""
        return count_loss_tokens(sequences, rows, self.loss_on)
