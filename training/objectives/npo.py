"""Negative preference optimisation (Zhang et al. 2024, arXiv 2404.05868, their loss L_NPO).

The step minimises (2/β) E log(1 + (π_θ(x) / π_ref(x))^β) over the texts x of the forget set, where
π is the probability of a text's counted tokens, and π_ref is the probability under the model that
training starts from. As β goes to 0, the gradient becomes that of gradient ascent; otherwise texts
that are already forgotten change the weights less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.training.config import TrainingConfig
from contamination.training.data import Batch, Rows, count_texts
from contamination.training.loss import token_losses
from contamination.training.objectives.base import MAYBE, Objective, iter_micro_batches

if TYPE_CHECKING:
    import torch

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class NPO(Objective):
    """The NPO loss, a mean over texts.

    Attributes:
        beta: the parameter β.
        reference: log π_ref of each text, indexed by its number, shape (texts,).
    """

    beta: float = 0.1
    reference: Numbers | None = None

    retains: ClassVar[str] = MAYBE
    readings: ClassVar[int] = 1

    @classmethod
    def from_config(cls, config: TrainingConfig) -> NPO:
        """Returns the objective with the configured β."""
        return cls(config.loss_on, config.compile, config.npo_beta)

    def prepare_from_start(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> NPO:
        """Returns the objective with the texts' log-probabilities by the starting model."""
        import torch

        reference = torch.zeros(count_texts(sequences), dtype=torch.float64, device=world.device)
        with torch.no_grad():
            for batch in iter_micro_batches(engine, sequences, self.loss_on, config, world):
                numbers, logprobs = text_logprobs(engine, batch)
                reference[numbers] = logprobs.double()
        return replace(self, reference=world.sum(reference).cpu().numpy())

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the batch's texts."""
        import torch
        from torch.nn import functional as F  # noqa: N812

        assert self.reference is not None, "prepare_from_start() fills it in"
        numbers, logprobs = text_logprobs(model, batch, compiled=self.compiled)
        reference = torch.from_numpy(self.reference)[numbers.cpu()].to(logprobs)
        return (2 / self.beta * F.softplus(self.beta * (logprobs - reference))).sum()

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of texts in the rows."""
        return count_texts(sequences, rows)


def text_logprobs(
    model: Any, batch: Batch, *, compiled: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the numbers of the batch's texts and their log-probabilities, both of shape (T,).

    The sum over a text's counted tokens is a product with a matrix of zeros and ones, whose order
    of summation is deterministic, even on a GPU.
    """
    import torch

    losses_BS = token_losses(model, batch.ids_BS, batch.positions_BS, compiled=compiled)
    text_numbers_BS, is_counted_BS = batch.text_numbers_BS[:, 1:], batch.loss_mask_BS > 0
    numbers: torch.Tensor = torch.unique(text_numbers_BS[is_counted_BS])
    is_of_text = (numbers[:, None] == text_numbers_BS[is_counted_BS]).to(losses_BS.dtype)
    return numbers, -(is_of_text @ losses_BS[is_counted_BS])
