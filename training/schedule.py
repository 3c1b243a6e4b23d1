"""The learning rate of each optimizer step, as a share of its peak."""

from __future__ import annotations

import math

from core.errors import ConfigError
from training.recipe import Recipe


def share_of_peak(config: Recipe, step: int, steps: int) -> float:
    """The share at optimizer step 1 to `steps`: above 0, so that every step learns what it sees.

    The warm-up is step / warmup and ends at the peak. `transformers.get_scheduler` has
    (step - 1) / warmup there, so its first step learns nothing. After the warm-up, and without
    one, both are the same.
    """
    if step <= config.warmup:
        return step / config.warmup
    left = (steps + 1 - step) / (steps - config.warmup)  # from 1 at the first step to 1 / n
    match config.schedule:
        case "linear":
            return left
        case "cosine":
            return math.sin(math.pi / 2 * left) ** 2
    return 1.0


def check_warmup(config: Recipe, steps: int) -> None:
    """Refuse a warm-up that leaves no step of the training after it."""
    if config.warmup >= steps:
        raise ConfigError(
            f"{config.node}.warmup_steps is {config.warmup_steps}, but the training has {steps} "
            f"steps of {config.batch_sequences} sequences: lower it, choose {config.node}.schedule="
            "constant, which has no warm-up, or enlarge the corpus."
        )
