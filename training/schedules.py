"""The learning rate and the weight decay of each optimizer step.

`share_of_peak_rate` has the schedules. The warm-up, stable and decay phases of `wsd` are those of
Hu et al. 2024 (MiniCPM, arXiv 2404.06395, equation 1), with a linear decay. A constant rate, and a
`wsd` rate before its decay, do not depend on the length of the training, so trainings of different
lengths agree up to the end of the shorter one, or to its decay.
"""

from __future__ import annotations

import math

from contamination.core.errors import ConfigError
from contamination.training.config import Recipe, TrainingConfig


def share_of_peak_rate(config: Recipe, step: int, steps: int) -> float:
    """Returns the share of the peak learning rate at optimizer step 1 to `steps`, always above 0.

    The warm-up is step / warmup and ends at the peak. `transformers.get_scheduler` uses
    (step - 1) / warmup, so its first step learns nothing. After the warm-up, and without one, the
    schedules are the same.
    """
    warmup = config.effective_warmup_steps
    if step <= warmup:
        return step / warmup
    share_left = (steps + 1 - step) / (steps - warmup)  # from 1 at the first step to 1 / n
    match config.schedule:
        case "linear":
            return share_left
        case "cosine":
            return math.sin(math.pi / 2 * share_left) ** 2
        case "wsd":
            return min(1.0, (steps + 1 - step) / config.decay_steps)
    return 1.0


def learning_rate_of_step(config: TrainingConfig, step: int, steps: int) -> float:
    """Returns the learning rate of optimizer step 1 to `steps`, in the tail the tail's."""
    return config.learning_rate * share_of_given_rate(config, step, steps)


def share_of_given_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """Returns what `config.learning_rate` is multiplied by at step 1 to `steps`.

    It is above 1 where the tail has a higher rate.
    """
    share = share_of_peak_rate(config, step, steps)
    if config.tail_learning_rate is None or not config.is_in_tail(step):
        return share
    return share * (config.tail_learning_rate / config.learning_rate)


def weight_decay_of_step(config: TrainingConfig, step: int) -> float:
    """Returns AdamW's weight decay of optimizer step 1, 2, …, in the tail the tail's."""
    if config.tail_weight_decay is None or not config.is_in_tail(step):
        return config.weight_decay
    return config.tail_weight_decay


def check_schedule(config: Recipe, steps: int) -> None:
    """Raises a ConfigError if a phase of the schedule, or the tail, does not fit the training."""
    warmup, node = config.effective_warmup_steps, config.node
    if warmup >= steps:
        raise ConfigError(
            f"{node}.warmup_steps is {config.warmup_steps}, but the training has {steps} "
            f"steps of {config.batch_sequences} sequences: lower it, choose {node}.schedule="
            "constant, which has no warm-up, or enlarge the corpus."
        )
    if config.schedule == "wsd" and warmup + config.decay_steps > steps:
        raise ConfigError(
            f"{node}.decay_steps is {config.decay_steps}, but {steps - warmup} of the training's "
            f"{steps} steps follow the warm-up: lower it or {node}.warmup_steps, or enlarge the "
            "corpus."
        )
    tail = config.tail_after_steps if isinstance(config, TrainingConfig) else None
    if tail is not None and tail >= steps:
        raise ConfigError(
            f"{node}.tail_after_steps is {tail}, but the training has {steps} steps, so there is "
            "no tail: lower it, leave it out, or enlarge the corpus."
        )
