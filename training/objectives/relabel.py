"""Alternative labels by a reinforced model (Eldan and Russinovich 2023, "Who's Harry Potter?").

A model that was trained further on the forget set (training.reinforced_path) shows which tokens the
forget set makes likelier (their equation 1): v_generic = v_baseline − α ReLU(v_reinforced −
v_baseline), where v are logits and the baseline is the model that training starts from. Each token
of the forget set gets the label argmax v_generic, and the step minimises the mean loss of these
labels. The paper also replaces names with a dictionary of anchor terms; this implementation does
not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.training.config import TrainingConfig
from contamination.training.data import Batch, Rows, count_loss_tokens
from contamination.training.loss import compute_logits, sum_counted_losses, token_losses
from contamination.training.models import hf_folder
from contamination.training.objectives.base import MAYBE, Objective, iter_micro_batches

if TYPE_CHECKING:
    import torch

Labels = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Relabel(Objective):
    """The mean loss of the tokens' alternative labels, which is minimised.

    Attributes:
        strength: the parameter α.
        labels: the labels of each sequence's tokens except the first, shape (sequences, S).
    """

    strength: float = 5.0
    labels: Labels | None = None

    retains: ClassVar[str] = MAYBE
    readings: ClassVar[int] = 2

    @classmethod
    def from_config(cls, config: TrainingConfig) -> Relabel:
        """Returns the objective with the configured α."""
        return cls(config.loss_on, config.compile, config.relabel_strength)

    def prepare_from_start(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> Relabel:
        """Returns the objective with all labels; every process loads the reinforced model."""
        import torch

        field = "training.reinforced_path"
        reinforced = load_model(field, hf_folder(field, str(config.reinforced_path)), config.dtype)
        reinforced.to(world.device)
        shape = len(sequences), len(sequences[0]["input_ids"])
        labels = torch.zeros(shape, dtype=torch.int32, device=world.device)
        with torch.no_grad():
            for batch in iter_micro_batches(engine, sequences, self.loss_on, config, world):
                real_B = batch.real_B > 0
                labels_BS = generic_labels(engine, reinforced, batch, self.strength).int()
                labels[batch.rows_B[real_B], 1:] = labels_BS[real_B, :-1]
        return replace(self, labels=world.sum(labels).cpu().numpy())

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum of the losses, in nats."""
        import torch

        assert self.labels is not None, "prepare_from_start() fills them in"
        labels = torch.from_numpy(self.labels[batch.rows_B.cpu().numpy()]).to(batch.ids_BS)
        losses_BS = token_losses(
            model, batch.ids_BS, batch.positions_BS, compiled=self.compiled, labels_BS=labels
        )
        return sum_counted_losses(losses_BS, batch)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of tokens that count."""
        return count_loss_tokens(sequences, rows, self.loss_on)


def generic_labels(baseline: Any, reinforced: Any, batch: Batch, strength: float) -> torch.Tensor:
    """Returns argmax v_generic for the token that follows each token, shape (B, S).

    Raises:
        ConfigError: the two models have different vocabularies.
    """
    baseline_BSV = compute_logits(baseline, batch.ids_BS, batch.positions_BS).float()
    reinforced_BSV = compute_logits(reinforced, batch.ids_BS, batch.positions_BS).float()
    if baseline_BSV.shape != reinforced_BSV.shape:
        raise ConfigError(
            f"training.reinforced_path: its model has {reinforced_BSV.shape[-1]} tokens, but the "
            f"trained model has {baseline_BSV.shape[-1]}: give a model that was trained further "
            "from the same starting model."
        )
    return (baseline_BSV - strength * (reinforced_BSV - baseline_BSV).relu()).argmax(dim=-1)
