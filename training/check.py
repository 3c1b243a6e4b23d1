"""What can be known to be wrong with a training before it begins."""

from __future__ import annotations

from typing import Any

from training.config import TrainingConfig
from training.data import Order
from training.engine import check_compile, check_dtype, zero_stage
from training.loop import export_steps
from training.schedule import check_warmup


def check_recipe(
    config: TrainingConfig, deepspeed: dict[str, Any], order: Order, sequence_tokens: int
) -> None:
    """Raise a ConfigError where the recipe does not go with its engine or its corpus."""
    zero_stage(deepspeed)
    check_dtype(config, deepspeed)
    check_compile(config, deepspeed)
    check_warmup(config, order.steps)
    export_steps(config, order, sequence_tokens)
