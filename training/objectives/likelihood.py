"""Likelihood objectives: −1/n Σ_t log p(x_t | x_<t) over the n counted tokens, and its reverse.

With loss_on=output these are the tokens of y given x, else those of z = x ∪ y (Ye et al. 2024,
section 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from contamination.training.data import Batch, Rows, count_loss_tokens
from contamination.training.loss import token_loss_sum
from contamination.training.objectives.base import ALWAYS, Objective

if TYPE_CHECKING:
    import torch


class Likelihood(Objective):
    """Pretraining and supervised fine-tuning: the mean loss per token is minimised."""

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum of the losses."""
        return token_loss_sum(model, batch, compiled=self.compiled)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of tokens that count."""
        return count_loss_tokens(sequences, rows, self.loss_on)


class GradientAscent(Likelihood):
    """Gradient ascent (Jang et al. 2023, equation 1).

    The step minimises 1/n Σ_t log p(x_t | x_<t) on the forget set, so the mean loss per token
    rises. There is no minimum, so the training has to be short: few epochs, a small learning rate,
    and intermediate exports.

    The paper is "Knowledge unlearning for mitigating privacy risks in language models".
    """

    weight: ClassVar[float] = -1.0


class GradientDifference(GradientAscent):
    """Gradient difference (Liu et al. 2022, "Continual learning and private unlearning").

    Ascent on the forget set with descent on retained text (section 4): −L(forget) + λ L(retain),
    where L is the mean loss per token and λ is training.retain_weight (1 in Maini et al. 2024,
    "TOFU", section 4.1).
    """

    retains: ClassVar[str] = ALWAYS
