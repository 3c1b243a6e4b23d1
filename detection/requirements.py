"""What methods need beside the target model, and which of them can be served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from contamination.core.errors import ConfigError
from contamination.detection.config import DetectionStage
from contamination.detection.flags import UPPER_BOUND
from contamination.detection.methods.base import Method
from contamination.detection.methods.registry import build_methods, is_all
from contamination.detection.models import model_of, open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.models.hf_model import HFModel
from contamination.detection.resources import (
    Neighbors,
    Prefix,
    Resources,
    has_neighbors,
    held_out_prefix,
    open_prefix,
)
from contamination.detection.scope import lack_of_scope
from contamination.detection.views import view_of

log = logging.getLogger(__name__)

Methods = Mapping[tuple[str, str], Method]

PATHS = {
    "reference": "a model that has not seen the texts, a folder or a hub id (in a pipeline also "
    "`base`, the model before the training: an upper bound)",
    "masked_lm": "a masked language model, a folder or a hub id such as bert-base-uncased",
    "prefix": "a file of non-member texts, none of them scored (a corpus folder with held-out "
    "texts needs none)",
}


def needs_of(method: Method) -> set[str]:
    """What the method's passes draw on beside the texts and the target: `seed`, or of PATHS."""
    roles = {p.model for p in method.passes} - {"target"}
    return roles.union(*(view_of(p).needs for p in method.passes))


def used_by(methods: Methods) -> set[str]:
    """What any of the methods draws on."""
    return {need for method in methods.values() for need in needs_of(method)}


def choose_methods(stage: DetectionStage) -> Methods:
    """The stage's methods; of `method=all` those for which all that they need is given.

    Raises:
        ConfigError: a method chosen by name needs a path that is not given.
    """
    methods = build_methods(stage.method)
    if slow := sorted(set(stage.method) - {name for name, _ in methods}):
        log.info(
            "method=all, like a list of all methods, leaves out %s: the model writes for them, "
            "which takes far longer than reading. Give them a run of their own: method=[%s].",
            *(", ".join(slow), ",".join(slow)),
        )
    return _served(stage.method, methods, partial(_missing, stage))


def open_models(stage: DetectionStage, used: Collection[str]) -> dict[str, ModelHandle]:
    """The causal models that the chosen methods score with, by role."""
    models = {"target": open_model("model", stage.model, stage.runs)}
    if "reference" in used:
        models["reference"] = open_model("reference", stage.reference, stage.runs)
    return models


def choose_servable(
    chosen: Collection[str], methods: Methods, models: Mapping[str, ModelHandle]
) -> Methods:
    """The methods; of `method=all` those whose numbers the models give.

    Args:
        chosen: the names in the config node `method`, where "all" gives every one.
        methods: those of them for which all paths are given.
        models: by role.

    Raises:
        ConfigError: a method chosen by name needs a number that its model does not give.
    """
    return _served(chosen, methods, partial(lacking, models))


def _served(
    chosen: Collection[str],
    methods: Methods,
    lack: Callable[[Method], tuple[str, str] | None],
) -> Methods:
    """The methods without those that `lack` something; it says what, for the log and the error."""
    everything = is_all(chosen)
    served: dict[tuple[str, str], Method] = {}
    for (name, variant), method in methods.items():
        if (why := lack(method)) is None:
            served[name, variant] = method
        elif not everything:
            raise ConfigError(f"method.{name} needs {why[1]}")
        else:
            log.info("method=all leaves out %s: it needs %s.", name, why[0])
    if methods and not served:
        raise ConfigError(f"method=all: nothing is left. {name} needs {why[1] if why else ''}")
    return served


def lacking(models: Mapping[str, ModelHandle], method: Method) -> tuple[str, str] | None:
    """What the first model does not give of all that the method needs."""
    for wanted in method.passes:
        model = model_of(wanted, models)
        if lack := {*method.numbers, *view_of(wanted).asks} - model.provides:
            numbers, provided = (
                ", ".join(sorted(lack)),
                ", ".join(sorted(model.provides)) or "nothing",
            )
            why = f"{numbers} of the {wanted.model} model, which gives {provided}"
            remedy = "Leave the method out, or score a model in files."
            return why, f"{why} ({model.field} is {model.path!r}). {remedy}"
    return None


def named(methods: Methods, models: Mapping[str, ModelHandle]) -> Methods:
    """The methods; what compares with the target's own past is called an upper bound.

    No attacker has the very model that the target was trained from: against it only what the
    training taught is left.
    """
    against = {name for (name, _), method in methods.items() if "reference" in needs_of(method)}
    if not against or not _is_past(models["target"], models["reference"]):
        return methods
    log.warning(
        "reference.path is the target's own past, which no attacker has: %s. For a fair reference "
        "give another model, which the target was not trained from.",
        ", ".join(f"{name} is called {name}{UPPER_BOUND}" for name in sorted(against)),
    )
    return {
        (f"{name}{UPPER_BOUND}" if name in against else name, variant): method
        for (name, variant), method in methods.items()
    }


def _is_past(target: ModelHandle, reference: ModelHandle) -> bool:
    """Whether the reference is the target's own past, as far as that is known."""
    ancestry = target.ancestry
    if ancestry.has_been(reference.ancestry):
        return True
    if not ancestry.whole:
        log.info(
            f"Nothing records all that model.path ({target.path}) was trained from. If "
            "reference.path is part of it, read scores against it as an upper bound."
        )
    return False


def open_resources(stage: DetectionStage, used: Collection[str]) -> Resources:
    """What the views of the chosen methods draw on."""
    masked_lm = None
    if "masked_lm" in used:
        masked_lm = HFModel.from_path("masked_lm.path", str(stage.masked_lm.path))
    prefix = _prefix(stage) if "prefix" in used else None
    neighbors = Neighbors(stage.examples) if "neighbors" in used else None
    return Resources(stage.seed, masked_lm, prefix, stage.detection.device, neighbors=neighbors)


def _missing(stage: DetectionStage, method: Method) -> tuple[str, str] | None:
    """The first need without a path; the corpus's held-out texts do for a prefix."""
    if lack := lack_of_scope(stage.detection.scope, method):
        return lack
    if "neighbors" in needs_of(method) and not has_neighbors(stage.examples):
        what = "a benchmark with neighbours of its own, such as examples=mimir with its folder"
        return what, f"{what}. Give it, or augmentation=masked_lm."
    for need, what in PATHS.items():
        node = getattr(stage, need)
        if need not in needs_of(method) or getattr(node, "given", node.path) is not None:
            continue
        if need != "prefix" or held_out_prefix(stage.examples.path) is None:
            why = f"{need}.path, which is null. Give {what}, or leave the method out."
            return f"{need}.path ({what})", why
    return None


def _prefix(stage: DetectionStage) -> Prefix | None:
    """The user's texts, else the corpus's held-out ones."""
    if stage.prefix.path is not None:
        return open_prefix(stage.prefix.path)
    return held_out_prefix(stage.examples.path)
