"""The objective that a configuration names, and the fields that it requires."""

from __future__ import annotations

from collections.abc import Mapping

from contamination.training.config import TrainingConfig
from contamination.training.objectives.base import ALWAYS, NEVER, Objective
from contamination.training.objectives.likelihood import (
    GradientAscent,
    GradientDifference,
    Likelihood,
)
from contamination.training.objectives.npo import NPO
from contamination.training.objectives.relabel import Relabel

OBJECTIVE_CLASSES: Mapping[str, type[Objective]] = {
    "likelihood": Likelihood,
    "ascent": GradientAscent,
    "difference": GradientDifference,
    "npo": NPO,
    "relabel": Relabel,
}


def make_objective(config: TrainingConfig) -> Objective:
    """Return the objective that `training.objective` names."""
    return OBJECTIVE_CLASSES[config.objective].from_config(config)


def check_objective(config: TrainingConfig) -> None:
    """Raise a ConfigError if a field that the objective needs is missing, or ignored if given."""
    retains, has_retained = (
        OBJECTIVE_CLASSES[config.objective].retains,
        config.retain_folder is not None,
    )
    remedy = (
        f"training.objective is {config.objective!r}, which uses no retained text: "
        "leave it out, or choose difference."
    )
    config.require(not has_retained or retains != NEVER, "retain_folder", remedy)
    remedy = "training.objective=difference retains text: give a clean corpus, runs/corpus/…."
    config.require(has_retained or retains != ALWAYS, "retain_folder", remedy)
    relabels = config.objective == "relabel"
    remedy = (
        "training.objective=relabel needs a model that was trained further on the forget set: "
        "train one with training.objective=likelihood and give its folder, runs/model/…."
    )
    config.require(config.reinforced_path is not None or not relabels, "reinforced_path", remedy)
    remedy = f"training.objective is {config.objective!r}: leave it out, or choose relabel."
    config.require(config.reinforced_path is None or relabels, "reinforced_path", remedy)
