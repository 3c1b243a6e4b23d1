"""Checks a training's configuration before it begins."""

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
    """Raise a ConfigError if the recipe does not fit its engine or its corpus.

    Args:
        config: the training configuration.
        deepspeed: the engine's configuration.
        order: the number of sequences, batches and epochs.
        sequence_tokens: tokens of one sequence.
        has_outputs: whether the sequences are a fine-tuning set's, which mark the outputs.
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
