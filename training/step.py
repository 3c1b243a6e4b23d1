"""One optimizer step: forward and backward over the micro-batches, clip, move the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from core.world import World
from training.config import TrainingConfig
from training.data import Rows, micro_batches, read_batch
from training.loss import token_loss_sum


def optimizer_step(
    engine: Any, sequences: Any, rows: Rows, config: TrainingConfig, world: World, *, clip: bool
) -> tuple[float, float]:
    """Forward, backward and one move of the weights.

    Args:
        engine: the DeepSpeed engine.
        sequences: packed sequences (`input_ids` of equal length).
        rows: the sequences of the step, as `Order.rows` gives them.
        config: the training configuration.
        world: this process's place.
        clip: whether to clip here rather than in the engine.

    Returns:
        The mean loss of the step's tokens over all processes before the step, in nats, and the
        gradient's global L2 norm before clipping.
    """
    micro = config.micro_batch_sequences
    tokens = int((rows >= 0).sum()) * (len(sequences[0]["input_ids"]) - 1)
    # The engine averages over processes and micro-batches. So each micro-batch's sum is multiplied
    # by their number and divided by the step's tokens: that is the mean at any world size, also in
    # a last batch that is not full.
    scale = len(rows) / micro / tokens
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for part in micro_batches(rows, world.rank, world.size, micro):
        ids, weights = read_batch(sequences, part)
        ids, weights = ids.to(world.device), weights.to(world.device)
        summed = token_loss_sum(engine, ids, weights, compiled=config.compile)
        engine.backward(summed * scale)
        total += summed.detach().double()
        if not engine.is_gradient_accumulation_boundary():
            engine.step()  # counts the micro-batch; the optimizer moves at the boundary alone
    loss = float(world.sum(total)) / tokens
    norm = clip_grad_norm_(engine.module.parameters(), config.clip_norm) if clip else None
    engine.step()
    return loss, float(engine.get_global_grad_norm() if norm is None else norm)
