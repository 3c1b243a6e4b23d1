"""The objective of retained text that a configuration names, and the model that it starts from."""

from __future__ import annotations

from typing import Any

from contamination.core.errors import require
from contamination.training.config import (
    ACTIVATIONS,
    ALL_TOKENS,
    KL,
    NLL,
    ModelConfig,
    TrainingConfig,
)
from contamination.training.objectives.base import Objective
from contamination.training.objectives.frozen import frozen_copy
from contamination.training.objectives.kl_retain import RetainedKL
from contamination.training.objectives.likelihood import Likelihood
from contamination.training.objectives.rmu import RetainedActivations


def retain_loss_of(config: TrainingConfig) -> str:
    """Returns the loss of retained text: `training.retain_loss`, or the objective's own."""
    return config.retain_loss or (ACTIVATIONS if config.objective == "rmu" else NLL)


def make_retained_objective(config: TrainingConfig, engine: Any, *, has_outputs: bool) -> Objective:
    """Returns the objective of retained text; every process has to call this.

    Args:
        config: the training configuration.
        engine: the DeepSpeed engine with the weights that training starts from.
        has_outputs: whether the retained text is a fine-tuning set, which marks its outputs.
    """
    loss_on = config.loss_on if has_outputs else ALL_TOKENS
    match retain_loss_of(config):
        case "kl":
            return RetainedKL(loss_on, config.compile, frozen_copy(engine))
        case "activations":
            layer = config.rmu_layer or 0
            return RetainedActivations(loss_on, config.compile, layer, frozen_copy(engine))
    return Likelihood(loss_on, config.compile)


def check_reference(config: TrainingConfig, model: ModelConfig) -> None:
    """Raises a ConfigError if training starts from random weights that would be a reference."""
    compared = config.objective == "idk_dpo" or (
        config.retain_folder is not None and retain_loss_of(config) in (KL, ACTIVATIONS)
    )
    remedy = (
        f"training.objective={config.objective} with training.retain_loss={retain_loss_of(config)} "
        "compares with the model that training starts from, and random weights are no reference: "
        "give a trained model, runs/model/… or a Hugging Face folder."
    )
    require(model.path is not None or not compared, "model.path", model.path, remedy)
