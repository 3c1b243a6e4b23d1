"""The objective that a configuration names, and the fields that it requires."""

from __future__ import annotations

from collections.abc import Mapping

from contamination.training.config import ACTIVATIONS, LIKELIHOOD, NLL, TrainingConfig
from contamination.training.objectives.base import ALWAYS, NEVER, Objective
from contamination.training.objectives.idk_dpo import IdkDPO
from contamination.training.objectives.likelihood import (
    GradientAscent,
    GradientDifference,
    Likelihood,
)
from contamination.training.objectives.npo import NPO
from contamination.training.objectives.relabel import Relabel
from contamination.training.objectives.retained import retain_loss_of
from contamination.training.objectives.rmu import RMU
from contamination.training.objectives.simnpo import SimNPO

OBJECTIVE_CLASSES: Mapping[str, type[Objective]] = {
    "likelihood": Likelihood,
    "ascent": GradientAscent,
    "difference": GradientDifference,
    "npo": NPO,
    "simnpo": SimNPO,
    "rmu": RMU,
    "idk_dpo": IdkDPO,
    "relabel": Relabel,
}


def make_objective(config: TrainingConfig) -> Objective:
    """Returns the objective that `training.objective` names."""
    return OBJECTIVE_CLASSES[config.objective].from_config(config)


def check_objective(config: TrainingConfig, *, has_outputs: bool = True) -> None:
    """Raises a ConfigError if the objective lacks an input, or a field is given that it ignores.

    Args:
        config: the training configuration.
        has_outputs: whether the corpus is a fine-tuning set, which marks its outputs.
    """
    _check_retained_text(config)
    _check_rmu(config)
    _check_answers(config, has_outputs=has_outputs)
    _check_field_belongs_to(
        config,
        "reinforced_path",
        "relabel",
        "needs a model that was trained further on the forget set: train one with "
        "training.objective=likelihood and give its folder, runs/model/….",
    )
    remedy = "training.objective=likelihood forgets nothing: leave it out, or choose an unlearner."
    weighted = config.forget_weight != 1
    config.require(not weighted or config.objective != LIKELIHOOD, "forget_weight", remedy)


def _check_retained_text(config: TrainingConfig) -> None:
    retains = OBJECTIVE_CLASSES[config.objective].retains
    has_retained = config.retain_folder is not None
    remedy = (
        f"training.objective is {config.objective!r}, which learns nothing beside the corpus: "
        "leave it out, or choose difference."
    )
    config.require(not has_retained or retains != NEVER, "retain_folder", remedy)
    remedy = (
        f"training.objective={config.objective} keeps text: give a packed clean corpus, "
        "runs/corpus/…."
    )
    config.require(has_retained or retains != ALWAYS, "retain_folder", remedy)
    remedy = "there is no retained text: give training.retain_folder, or leave it out."
    config.require(has_retained or config.retain_loss in (None, NLL), "retain_loss", remedy)


def _check_rmu(config: TrainingConfig) -> None:
    steers = config.objective == "rmu"
    keeps = config.retain_folder is not None and retain_loss_of(config) == ACTIVATIONS
    _check_field_belongs_to(
        config,
        "rmu_layer",
        "rmu",
        "steers the output of one layer: give its number, from 0 (a middle layer; 7 in models of "
        "7 billion weights).",
    )
    remedy = "only training.objective=rmu names a layer: choose nll or kl."
    config.require(steers or not keeps, "retain_loss", remedy)
    remedy = "training.objective=rmu reads a layer's output, which is fused away: choose false."
    config.require(not (config.compile and steers), "compile", remedy)


def _check_answers(config: TrainingConfig, *, has_outputs: bool) -> None:
    answers = config.objective == "idk_dpo"
    remedy = (
        "a packed corpus has no prompts to answer: give a fine-tuning set of prompts and outputs "
        "(python -m injection finetuning), or choose simnpo."
    )
    config.require(has_outputs or not answers, "objective", remedy)
    _check_field_belongs_to(
        config,
        "idk_answers",
        "idk_dpo",
        "prefers other answers to the forget set's: give a text file with one per line, such as "
        '"I don\'t know.".',
    )


def _check_field_belongs_to(config: TrainingConfig, field: str, objective: str, need: str) -> None:
    """Checks that `field` is given with `objective` and with no other one."""
    chosen, given = config.objective == objective, getattr(config, field) is not None
    config.require(given or not chosen, field, f"training.objective={objective} {need}")
    remedy = f"training.objective is {config.objective!r}: leave it out, or choose {objective}."
    config.require(chosen or not given, field, remedy)
