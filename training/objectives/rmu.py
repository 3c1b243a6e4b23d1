"""Representation misdirection for unlearning (RMU; Li et al. 2024, "WMDP", arXiv 2403.03218).

On the forget set the output h_t of one layer is steered to a random direction, and on retained text
it is kept where the frozen start M₀ had it:

    L_forget = E_x 1/|x| Σ_t ‖h_t − c·u‖²        L_retain = E_x 1/|x| Σ_t ‖h_t − h_t(M₀)‖²

u is a vector of length 1 whose entries were drawn uniformly from [0, 1), so that all are positive.
The step lowers γ L_forget + λ L_retain (training.forget_weight, training.retain_weight).

The authors' code and open-unlearning divide both squares by the width of the layer (a mean over its
D entries), and so does this module. t runs over the tokens whose loss counts. The authors update
three matrices alone; open-unlearning's default is to update all weights, and so does this module.
open-unlearning draws u anew for each run without a seed; here training.init_seed draws it. In a
batch its code divides each text's sum by the length of every text, here by the text's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.core.seeds import derive_seed
from contamination.training.config import TrainingConfig
from contamination.training.data import Batch, Rows, count_texts
from contamination.training.objectives.base import ALWAYS, Objective
from contamination.training.objectives.frozen import find_layer, layer_output, module_of
from contamination.training.objectives.simnpo import mean_by_text

if TYPE_CHECKING:
    import torch

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class RMU(Objective):
    """The mean over texts of the mean over their tokens.

    Attributes:
        layer: the layer whose output is steered, from 0.
        coefficient: c.
        direction: u, shape (D,).
    """

    layer: int = 0
    coefficient: float = 2.0
    direction: Vector | None = None

    retains: ClassVar[str] = ALWAYS

    @classmethod
    def from_config(cls, config: TrainingConfig) -> RMU:
        """Returns the objective with the configured layer and c."""
        layer = 0 if config.rmu_layer is None else config.rmu_layer
        return cls(config.loss_on, config.compile, layer, config.rmu_coefficient)

    def prepare_from_start(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> RMU:
        """Returns the objective with u.

        Raises:
            ConfigError: the model has no such layer.
        """
        model = module_of(engine)
        find_layer(model, self.layer)
        width = model.config.get_text_config(decoder=True).hidden_size
        entries = np.random.default_rng(derive_seed(config.init_seed or 0, "rmu")).random(width)
        return replace(self, direction=entries / np.linalg.norm(entries))

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the batch's texts."""
        import torch

        assert self.direction is not None, "prepare_from_start() fills it in"
        output_BSD, logits_BSV = layer_output(model, self.layer, batch)
        target_D = torch.from_numpy(self.coefficient * self.direction).to(output_BSD)
        return mean_squares_sum(output_BSD - target_D, logits_BSV, batch)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of texts in the rows."""
        return count_texts(sequences, rows)


@dataclass(frozen=True)
class RetainedActivations(Objective):
    """L_retain: the mean over texts of the mean over their tokens.

    Attributes:
        layer: the layer, from 0.
        start: M₀, frozen.
    """

    layer: int = 0
    start: Any = None

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the batch's texts."""
        import torch

        with torch.no_grad():
            start_BSD, _ = layer_output(self.start, self.layer, batch)
        output_BSD, logits_BSV = layer_output(model, self.layer, batch)
        return mean_squares_sum(output_BSD - start_BSD, logits_BSV, batch)

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of texts in the rows."""
        return count_texts(sequences, rows)


def mean_squares_sum(
    differences_BSD: torch.Tensor,  # noqa: N803
    logits_BSV: torch.Tensor,  # noqa: N803
    batch: Batch,
) -> torch.Tensor:
    """Returns the sum over texts of the mean square over tokens that count and over entries.

    The logits are added with a weight of 0, so that the weights above the layer get gradients of 0:
    the engine waits for a gradient of every weight.
    """
    squares_BS = differences_BSD.float().square().mean(dim=-1)
    return mean_by_text(squares_BS[:, 1:], batch).sum() + 0.0 * logits_BSV.sum()
