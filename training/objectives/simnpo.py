"""Simple negative preference optimisation (Fan et al. 2024, arXiv 2410.07163).

The paper's loss is E −(2/β) log σ(−(β/|y|) log π_θ(y|x) − γ) over the texts of the forget set,
where |y| is the number of a text's tokens that count: NPO with the mean instead of the sum of their
log-probabilities, and with a constant γ in place of the reference model.

The authors' code and open-unlearning multiply the margin by β as well, γ = β·δ, and so does this
module: −(2/β) log σ(β · (ℓ − δ)), where ℓ = −log π_θ(y|x) / |y| is the text's mean loss. A text
whose ℓ is far above δ no longer moves the weights.

open-unlearning counts a text's first token in |y| although it has no prediction; here |y| is the
number of predictions. Its configuration multiplies this loss by 0.125 (training.forget_weight).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from contamination.training.config import TrainingConfig
from contamination.training.data import Batch, Rows, count_texts
from contamination.training.loss import token_losses
from contamination.training.objectives.base import MAYBE, Objective

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SimNPO(Objective):
    """The mean over texts.

    Attributes:
        beta: β.
        delta: δ, in nats per token.
    """

    beta: float = 4.5
    delta: float = 0.0

    retains: ClassVar[str] = MAYBE

    @classmethod
    def from_config(cls, config: TrainingConfig) -> SimNPO:
        """Returns the objective with the configured β and δ."""
        return cls(config.loss_on, config.compile, config.simnpo_beta, config.simnpo_delta)

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the batch's texts."""
        from torch.nn import functional as F  # noqa: N812

        losses_BS = token_losses(model, batch.ids_BS, batch.positions_BS, compiled=self.compiled)
        losses_T = mean_by_text(losses_BS, batch)
        return (-2 / self.beta * F.logsigmoid(self.beta * (losses_T - self.delta))).sum()

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of texts in the rows."""
        return count_texts(sequences, rows)


def mean_by_text(values_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    """Returns the mean over each text's tokens that count, shape (T,).

    A product with a matrix of zeros and ones has the same order of summation each time, also on a
    GPU.

    Args:
        values_BS: a value for each token after the first, shape (B, S-1).
        batch: the texts' tokens.
    """
    import torch

    text_numbers_BS, is_counted_BS = batch.text_numbers_BS[:, 1:], batch.loss_mask_BS > 0
    numbers_T = torch.unique(text_numbers_BS[is_counted_BS])
    is_of_text_TN = (numbers_T[:, None] == text_numbers_BS[is_counted_BS]).to(values_BS.dtype)
    means_T: torch.Tensor = is_of_text_TN @ values_BS[is_counted_BS] / is_of_text_TN.sum(dim=1)
    return means_T
