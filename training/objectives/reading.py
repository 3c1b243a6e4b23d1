"""All sequences read once by the model before its first step, shared among the processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from core.world import World
from training.config import TrainingConfig
from training.data import PADDING, Batch, read_batch


def blocks(
    engine: Any, sequences: Any, loss_on: str, config: TrainingConfig, world: World
) -> Iterator[Batch]:
    """This process's micro-batches, for a model that predicts meanwhile (dropout is off).

    All processes get equally many. A micro-batch holds the same sequences at any number of
    processes.
    """
    micro, count = config.micro_batch_sequences, len(sequences)
    at_once = micro * world.size
    rows = np.arange(-(-count // at_once) * at_once)
    rows[count:] = PADDING
    engine.eval()
    for part in rows.reshape(-1, world.size, micro):
        yield read_batch(sequences, part[world.rank], loss_on).to(world.device)
    engine.train()
