"""Alternative labels by a reinforced model (Eldan and Russinovich 2023, "Who's Harry Potter?").

A model that was trained further on the forget set (training.reinforced_path) shows which tokens
its text makes likelier (their equation 1): v_generic = v_baseline − α ReLU(v_reinforced −
v_baseline), where v are logits and the baseline is the model that training starts from. Each token
of the forget set gets the label argmax v_generic, and the step lowers the mean loss of these
labels. The paper also replaces names by a dictionary of anchor terms; this does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.models import load_model
from contamination.training.config import TrainingConfig
from contamination.training.data import Batch, Rows, counted_tokens
from contamination.training.loss import forward, token_losses, weighted_sum
from contamination.training.models import hf_folder
from contamination.training.objectives.base import MAYBE, Objective, blocks

Labels = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Relabel(Objective):
    """The mean loss of a token's alternative label.

    Attributes:
        strength: α.
        labels: of each sequence's tokens (the first has none), shape (sequences, S).
    """

    strength: float = 5.0
    labels: Labels | None = None

    retains: ClassVar[str] = MAYBE
    readings: ClassVar[int] = 2

    @classmethod
    def of(cls, config: TrainingConfig) -> Relabel:
        """With α as it is configured."""
        return cls(config.loss_on, config.compile, config.relabel_strength)

    @torch.no_grad()
    def prepared(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> Relabel:
        """With the labels of all tokens; the reinforced model is held whole meanwhile."""
        field = "training.reinforced_path"
        reinforced = load_model(field, hf_folder(field, str(config.reinforced_path)), config.dtype)
        reinforced.to(world.device)
        shape = len(sequences), len(sequences[0]["input_ids"])
        found = torch.zeros(shape, dtype=torch.int32, device=world.device)
        for batch in blocks(engine, sequences, self.loss_on, config, world):
            real = batch.real_B > 0
            labels = generic_labels(engine, reinforced, batch, self.strength).int()
            found[batch.rows_B[real], 1:] = labels[real, :-1]
        return replace(self, labels=world.sum(found).cpu().numpy())

    def sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """The losses' sum."""
        assert self.labels is not None, "prepared() fills them in"
        labels = torch.from_numpy(self.labels[batch.rows_B.cpu().numpy()]).to(batch.ids_BS)
        losses_BS = token_losses(
            model, batch.ids_BS, batch.positions_BS, compiled=self.compiled, labels_BS=labels
        )
        return weighted_sum(losses_BS, batch)

    def size(self, sequences: Any, rows: Rows) -> int:
        """The tokens that count."""
        return counted_tokens(sequences, rows, self.loss_on)


def generic_labels(baseline: Any, reinforced: Any, batch: Batch, strength: float) -> torch.Tensor:
    """Argmax v_generic for the token after each, (B, S).

    Raises:
        ConfigError: the two models have other tokens.
    """
    own = forward(baseline, batch.ids_BS, batch.positions_BS).float()
    other = forward(reinforced, batch.ids_BS, batch.positions_BS).float()
    if own.shape != other.shape:
        raise ConfigError(
            f"training.reinforced_path: its model has {other.shape[-1]} tokens, the one that is "
            f"trained {own.shape[-1]}: give one that was trained further from the same start."
        )
    return (own - strength * (other - own).relu()).argmax(dim=-1)
