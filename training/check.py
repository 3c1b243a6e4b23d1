"""What can be known to be wrong with a training before it begins."""

from __future__ import annotations

from typing import Any

from contamination.training.config import ALL, TrainingConfig
from contamination.training.data import SequenceOrder
from contamination.training.engine import check_compile, check_dtype, check_warmup, zero_stage
from contamination.training.loop import export_steps
from contamination.training.objectives.choose import check_objective


def check_recipe(
    config: TrainingConfig,
    deepspeed: dict[str, Any],
    order: SequenceOrder,
    sequence_tokens: int,
    *,
    has_outputs: bool = False,
) -> None:
    """Raise a ConfigError where the recipe does not go with its engine or its corpus.

    Args:
        config: the training configuration.
        deepspeed: the engine's.
        order: over how many sequences, and how often.
        sequence_tokens: of one of them.
        has_outputs: whether they are a fine-tuning set's, which say what is output.
    """
    remedy = (
        "a packed corpus has no prompts and outputs: give a fine-tuning set (python -m injection "
        "finetuning), or training.loss_on=all."
    )
    config.require(has_outputs or config.loss_on == ALL, "loss_on", remedy)
    check_objective(config)
    zero_stage(deepspeed)
    check_dtype(config, deepspeed)
    check_compile(config, deepspeed)
    check_warmup(config, order.steps)
    export_steps(config, order, sequence_tokens)
