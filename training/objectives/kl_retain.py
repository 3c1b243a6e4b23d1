"""The divergence on retained text from the start's predictions (Maini et al. 2024, "TOFU").

    L_retain = E_x 1/|x| Σ_t KL(p₀(· | x_<t) ‖ p_θ(· | x_<t))

p₀ are the predictions of the frozen model that training starts from. It can stand beside any forget
objective; beside gradient ascent (training.objective=difference) it is TOFU's "KL minimization".

The paper takes the mean over each text's tokens, and then over texts. TOFU's code and
open-unlearning take the mean over all positions of a batch, including those of prompts and of
padding; here it is the mean over all tokens that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contamination.training.data import Batch, Rows, count_loss_tokens
from contamination.training.loss import compute_logits, sum_counted_losses
from contamination.training.objectives.base import Objective

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RetainedKL(Objective):
    """The mean divergence per token, in nats.

    Attributes:
        start: the frozen model with p₀.
    """

    start: Any = None

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum of the tokens' divergences."""
        import torch

        with torch.no_grad():
            start_BSV = compute_logits(self.start, batch.ids_BS, batch.positions_BS)
        now_BSV = compute_logits(model, batch.ids_BS, batch.positions_BS)
        return sum_counted_losses(kl_divergences(start_BSV, now_BSV)[:, :-1], batch)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of tokens that count."""
        return count_loss_tokens(sequences, rows, self.loss_on)


def kl_divergences(start_BSV: torch.Tensor, now_BSV: torch.Tensor) -> torch.Tensor:  # noqa: N803
    """Returns KL(p₀ ‖ p_θ) at each position, shape (B, S), from logits."""
    from torch.nn import functional as F  # noqa: N812

    start_logprobs = F.log_softmax(start_BSV.float(), dim=-1)
    now_logprobs = F.log_softmax(now_BSV.float(), dim=-1)
    return F.kl_div(now_logprobs, start_logprobs, reduction="none", log_target=True).sum(dim=-1)
