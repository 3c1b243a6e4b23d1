"""One optimizer step: forward and backward over the micro-batches, clip, move the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.utils import clip_grad_norm_

from core.world import World
from training.config import TrainingConfig
from training.data import PADDING, Rows, micro_batches, read_batch
from training.objectives.base import Objective


@dataclass(frozen=True)
class Part:
    """Sequences that a step reads, and what it does with them.

    Attributes:
        sequences: of a corpus or a fine-tuning set.
        rows: those of the step, as `Order.rows` gives them; of every part equally many.
        objective: what is lowered.
        weight: its share of the step's loss; below 0 it is raised.
    """

    sequences: Any
    rows: Rows
    objective: Objective
    weight: float = 1.0

    @property
    def tokens(self) -> int:
        """Those that are read; what fills the last batch up is none."""
        return int((self.rows != PADDING).sum()) * len(self.sequences[0]["input_ids"])


class Moved(NamedTuple):
    """What a step found, before it moved the weights."""

    losses: list[float]
    """Each part's mean over all processes, in nats."""
    norm: float
    """The gradient's global L2 norm before clipping."""
    loss: float
    """What the step lowers: the sum of the means by their weights."""


def optimizer_step(
    engine: Any, parts: Sequence[Part], config: TrainingConfig, world: World, *, clip: bool
) -> Moved:
    """Forward, backward and one move of the weights.

    Args:
        engine: the DeepSpeed engine.
        parts: what the step reads; one, unless something else is kept or forgotten beside it.
        config: the training configuration.
        world: this process's place.
        clip: whether to clip here rather than in the engine.
    """
    micro, count = config.micro_batch_sequences, len(parts) * len(parts[0].rows)
    totals = torch.zeros(len(parts), dtype=torch.float64, device=world.device)
    sizes = [part.objective.size(part.sequences, part.rows) for part in parts]
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        # The engine averages over processes and micro-batches, those of all parts. So each
        # micro-batch's sum is multiplied by their number and divided by what counts of its part in
        # the step: that is the mean at any world size, also in a last batch that is not full.
        scale = count / micro / size * part.weight
        for rows in micro_batches(part.rows, world.rank, world.size, micro):
            summed = _sum(engine, part, rows, world)
            engine.backward(summed * scale)
            totals[number] += summed.detach().double()
            if not engine.is_gradient_accumulation_boundary():
                engine.step()  # counts the micro-batch; the optimizer moves at the boundary alone
    losses = [total / size for total, size in zip(world.sum(totals).tolist(), sizes, strict=True)]
    loss = sum(mean * part.weight for mean, part in zip(losses, parts, strict=True))
    norm = clip_grad_norm_(engine.module.parameters(), config.clip_norm) if clip else None
    engine.step()
    return Moved(losses, float(engine.get_global_grad_norm() if norm is None else norm), loss)


def _sum(engine: Any, part: Part, rows: Rows, world: World) -> torch.Tensor:
    batch = read_batch(part.sequences, rows, part.objective.loss_on).to(world.device)
    return part.objective.sum(engine, batch)
