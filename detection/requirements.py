"""What methods need in addition to the target model, and which methods can be scored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core.errors import ConfigError
from contamination.data.texts import Texts
from contamination.detection.config import DetectionStage
from contamination.detection.flags import UPPER_BOUND
from contamination.detection.methods.base import Method
from contamination.detection.methods.registry import build_methods, is_all
from contamination.detection.models import model_for_pass, open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.models.hf_model import HFModel
from contamination.detection.scope import describe_scope_obstacle
from contamination.detection.supplied_neighbors import Neighbors, has_neighbors
from contamination.detection.view_resources import Prefix, Resources, held_out_prefix, open_prefix
from contamination.detection.views import view_of

log = logging.getLogger(__name__)

Methods = Mapping[tuple[str, str], Method]

PATH_DESCRIPTIONS = {
    "reference": "a model that has not seen the texts, a folder or a hub id (in a pipeline also "
    "`base`, the model before the training: an upper bound)",
    "masked_lm": "a masked language model, a folder or a hub id such as bert-base-uncased",
    "prefix": "a file of non-member texts, none of them scored (a corpus folder with held-out "
    "texts needs none)",
}

IGNORED_TOKENIZER_PARTS = ("truncation", "padding")
"""The parts of a tokenizer's JSON that don't change how a text is divided into tokens."""


def method_needs(method: Method) -> set[str]:
    """Returns what the method needs besides the texts and the target model.

    These are other models' roles and the `needs` of its views: `seed`, `neighbors`, and keys
    of PATH_DESCRIPTIONS.
    """
    roles = {p.model for p in method.passes} - {"target"}
    return roles.union(*(view_of(p).needs for p in method.passes))


def all_needs(methods: Methods) -> set[str]:
    """Returns what any of the methods needs; see `method_needs`."""
    return {need for method in methods.values() for need in method_needs(method)}


def choose_methods(stage: DetectionStage) -> Methods:
    """Returns the stage's methods; with `method=all`, those whose needs are configured.

    Raises:
        ConfigError: a method chosen by name needs a path that is not configured.
    """
    methods = build_methods(stage.method)
    if slow := sorted(set(stage.method) - {name for name, _ in methods}):
        log.info(
            "method=all, like a list of all methods, leaves out %s: they take far longer than "
            "reading the texts once. Give them a run of their own: method=[%s].",
            *(", ".join(slow), ",".join(slow)),
        )
    return _drop_lacking_methods(stage.method, methods, partial(_describe_unconfigured_need, stage))


def open_models(stage: DetectionStage, used: Collection[str]) -> dict[str, ModelHandle]:
    """Returns the causal models of the chosen methods, by role."""
    models = {"target": open_model("model", stage.model, stage.runs)}
    if "reference" in used:
        models["reference"] = open_model("reference", stage.reference, stage.runs)
    return models


def choose_servable_methods(
    chosen: Collection[str],
    methods: Methods,
    models: Mapping[str, ModelHandle],
    texts: Texts | None = None,
) -> Methods:
    """Returns the methods; with `method=all`, those that the models can serve on these texts.

    The models have to provide the methods' numbers, and one tokenizer if tokens are compared. A
    method that was trained may not be applied to what it was trained on.

    Args:
        chosen: the names in the config node `method`, where "all" stands for every name.
        methods: those of them whose paths are configured.
        models: the models by role.
        texts: the texts to score; None if they are not known yet.

    Raises:
        ConfigError: a method chosen by name needs a number that its model does not provide, a
            reference with the target's tokenizer, or other texts or models.
    """

    def lack(method: Method) -> tuple[str, str] | None:
        missing = describe_missing_numbers(models, method)
        missing = missing or describe_other_tokenizer(models, method)
        return missing or (None if texts is None else method.conflict(texts, models))

    return _drop_lacking_methods(chosen, methods, lack)


def _drop_lacking_methods(
    chosen: Collection[str],
    methods: Methods,
    describe_lack: Callable[[Method], tuple[str, str] | None],
) -> Methods:
    """Drops methods for which `describe_lack` returns what is missing (for the log, the error)."""
    all_chosen = is_all(chosen)
    complete: dict[tuple[str, str], Method] = {}
    for (name, variant), method in methods.items():
        if (missing := describe_lack(method)) is None:
            complete[name, variant] = method
        elif not all_chosen:
            raise ConfigError(f"method.{name} needs {missing[1]}")
        else:
            log.info("method=all leaves out %s: it needs %s.", name, missing[0])
    if methods and not complete:
        remedy = missing[1] if missing else ""
        raise ConfigError(f"method=all: no method is left. {name} needs {remedy}")
    return complete


def describe_missing_numbers(
    models: Mapping[str, ModelHandle], method: Method
) -> tuple[str, str] | None:
    """Returns what a model does not provide of the method's needs, without and with the remedy."""
    for wanted in method.passes:
        model = model_for_pass(wanted, models)
        if missing := {*method.numbers, *view_of(wanted).required_abilities} - model.provides:
            numbers = ", ".join(sorted(missing))
            provided = ", ".join(sorted(model.provides)) or "nothing"
            reason = f"{numbers} of the {wanted.model} model, which gives {provided}"
            remedy = "Leave the method out, or score a model in files."
            return reason, f"{reason} ({model.field} is {model.path!r}). {remedy}"
    return None


def describe_other_tokenizer(
    models: Mapping[str, ModelHandle], method: Method
) -> tuple[str, str] | None:
    """Returns that an aligned method's models have different tokenizers, without and with remedy.

    Returns None if the method compares no tokens, or if the tokenizers agree.
    """
    others = {wanted.model for wanted in method.passes} - {"target"}
    if not method.aligned:
        return None
    for role in sorted(others & models.keys()):
        if not have_same_tokenizer(models["target"], models[role]):
            reason = f"a {role} with the target's tokenizer"
            return reason, (
                f"{reason}, whose tokens it compares one by one, but {models[role].field} is "
                f"{models[role].path!r} and divides texts in another way than "
                f"{models['target'].field} ({models['target'].path!r}). Give another {role}, or "
                "method=reference, which compares means."
            )
    return None


def have_same_tokenizer(first: ModelHandle, second: ModelHandle) -> bool:
    """Returns whether two models' tokenizers are equal but for truncation and padding."""
    if first.tokenizer_digest == second.tokenizer_digest:
        return True
    first_content, second_content = (
        _tokenizer_content(first.tokenizer()),
        _tokenizer_content(second.tokenizer()),
    )
    return first_content is not None and first_content == second_content


def _tokenizer_content(tokenizer: Any) -> dict[str, Any] | None:
    """Returns all that decides how a text is divided, or None if the tokenizer does not say."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    content = json.loads(backend.to_str())
    return {name: part for name, part in content.items() if name not in IGNORED_TOKENIZER_PARTS}


def name_upper_bounds(methods: Methods, models: Mapping[str, ModelHandle]) -> Methods:
    """Returns the methods; those whose reference is the target's ancestor are named upper bounds.

    No attacker has the model that the target was trained from. A comparison with it shows only what
    the training changed.
    """
    with_reference = {name for (name, _), m in methods.items() if "reference" in method_needs(m)}
    if not with_reference or not _is_ancestor(models["target"], models["reference"]):
        return methods
    log.warning(
        "reference.path is the target's own past, which no attacker has: %s. For a fair reference, "
        "give a model that the target was not trained from.",
        ", ".join(f"{name} is called {name}{UPPER_BOUND}" for name in sorted(with_reference)),
    )
    return {
        (f"{name}{UPPER_BOUND}" if name in with_reference else name, variant): method
        for (name, variant), method in methods.items()
    }


def _is_ancestor(target: ModelHandle, reference: ModelHandle) -> bool:
    """Returns whether the target was trained from the reference, as far as that is recorded."""
    ancestry = target.ancestry
    if ancestry.has_been(reference.ancestry):
        return True
    if not ancestry.whole:
        log.info(
            f"It is not recorded what model.path ({target.path}) was trained from. If it was "
            "trained from reference.path, read scores against the reference as an upper bound."
        )
    return False


def open_resources(stage: DetectionStage, used: Collection[str]) -> Resources:
    """Returns the resources that the views of the chosen methods use."""
    masked_lm = None
    if "masked_lm" in used:
        masked_lm = HFModel.from_path("masked_lm.path", str(stage.masked_lm.path))
    prefix = _open_prefix(stage) if "prefix" in used else None
    neighbors = Neighbors(stage.examples) if "neighbors" in used else None
    return Resources(stage.seed, masked_lm, prefix, stage.detection.device, neighbors=neighbors)


def _describe_unconfigured_need(stage: DetectionStage, method: Method) -> tuple[str, str] | None:
    """Returns the first need that is not configured, without and with the remedy, or None.

    Texts that the corpus holds out satisfy the need of a prefix.
    """
    if lack := method.lack or describe_scope_obstacle(stage.detection.scope, method):
        return lack
    if "neighbors" in method_needs(method) and not has_neighbors(stage.examples):
        source = "a benchmark with neighbours of its own, such as examples=mimir with its folder"
        return source, f"{source}. Give it, or augmentation=masked_lm."
    if "member_prefix" in method_needs(method) and not _has_member_prefix(stage):
        source = "members in prefix.path (lines of JSONL with `member`: true)"
        return source, f"{source}. Give some, or method=recall, which needs none."
    for need, description in PATH_DESCRIPTIONS.items():
        node = getattr(stage, need)
        if need not in method_needs(method) or getattr(node, "given", node.path) is not None:
            continue
        if need != "prefix" or held_out_prefix(stage.examples.path) is None:
            remedy = f"{need}.path, which is null. Give {description}, or leave the method out."
            return f"{need}.path ({description})", remedy
    return None


def _has_member_prefix(stage: DetectionStage) -> bool:
    path = stage.prefix.path
    if path is None or not Path(path).expanduser().is_file():  # a pipeline has no file as yet
        return False
    return open_prefix(path).members is not None


def _open_prefix(stage: DetectionStage) -> Prefix | None:
    """Returns the user's prefix, else the texts that the corpus holds out."""
    if stage.prefix.path is not None:
        return open_prefix(stage.prefix.path)
    return held_out_prefix(stage.examples.path)
