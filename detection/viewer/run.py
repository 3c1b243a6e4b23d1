"""Writes a web page of examples with per-token numbers from stored passes, without a forward pass.

The page needs neither a network nor another file. It shows log p, z, whether the token is the
model's first choice (rank 0), r_t of the Infilling Score, the difference from the reference model's
log p, and s_t of InfoRMIA, as far as the passes are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from contamination.core.errors import ArtifactError, ConfigError, require
from contamination.core.output_paths import check_output_file, disk_errors_as_data_errors
from contamination.core.user_files import atomic_output_file
from contamination.data.texts import Text, Texts
from contamination.detection.config import ViewStage
from contamination.detection.examples import occurrences_by_id, open_examples
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_collector import Collector
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.requirements import (
    Methods,
    all_needs,
    choose_methods,
    describe_missing_numbers,
    name_upper_bounds,
    open_models,
    open_resources,
)
from contamination.detection.viewer import page

log = logging.getLogger(__name__)


def run(stage: ViewStage) -> Path:
    """Writes the page, without the methods whose passes are not stored; returns its path.

    Raises:
        ConfigError: a method, model or id does not exist, or the models' tokenizers differ.
        DataError: the examples can't be read.
        ArtifactError: the pass over the original text is not stored.
    """
    check_output_file("out", stage.out)
    stage.detection.require_whole_texts("the page shows whole texts and their scores")
    methods = choose_methods(stage)
    examples = open_examples(stage.examples)
    texts = page.select_examples(examples, stage.view.examples, stage.view.ids, stage.seed)
    models = open_models(stage, {"reference"} if stage.reference.given else ())
    methods, left_out_methods = _split_servable(methods, models, examples)
    tokenizer = _shared_tokenizer(stage, models, texts)
    resources = open_resources(stage, all_needs(methods))
    methods = name_upper_bounds(methods, models)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    required = {ORIGINAL, REFERENCE} if "reference" in models else {ORIGINAL}
    passes = collector.read_finished(
        required.union(*(method.passes for method in methods.values()))
    )
    _check_passes_stored(stage, required - passes.keys())
    stored_methods = _methods_with_stored_passes(methods, passes)
    left_out_methods |= {name for name, _ in methods.keys() - stored_methods.keys()}
    stored = page.StoredResults(
        tokenizer=tokenizer,
        passes=passes,
        methods=stored_methods,
        min_scored_tokens=stage.detection.min_scored_tokens,
        occurrences=occurrences_by_id(stage.examples.path),
    )
    out = Path(stage.out).expanduser()
    facts = _head_entries(stage, models, len(examples), sorted(left_out_methods))
    with disk_errors_as_data_errors(out.parent), atomic_output_file(out) as temporary:
        temporary.write_text(
            page.render_page(facts, page.page_data(texts, stored)), encoding="utf-8"
        )
    return out


def _split_servable(
    methods: Methods, models: Mapping[str, ModelHandle], texts: Texts
) -> tuple[Methods, set[str]]:
    """Returns the methods that may score these models and texts, and the names of the others."""
    lack_by_name = {
        name: lack
        for (name, _), m in methods.items()
        if (lack := describe_missing_numbers(models, m) or m.conflict(texts, models))
    }
    for name, (needs, _) in lack_by_name.items():
        log.info("%s is left out: it needs %s.", name, needs)
    servable = {key: method for key, method in methods.items() if key[0] not in lack_by_name}
    return servable, {*lack_by_name}


def _methods_with_stored_passes(methods: Methods, passes: Mapping[Pass, StatsByText]) -> Methods:
    """Returns the methods whose passes are all stored, and logs the others."""
    for (name, _), method in methods.items():
        if missing := sorted(p.key for p in set(method.passes) - passes.keys()):
            log.info("%s is left out: %s is not stored.", name, ", ".join(missing))
    return {key: m for key, m in methods.items() if passes.keys() >= set(m.passes)}


def _check_passes_stored(stage: ViewStage, missing_passes: Collection[Pass]) -> None:
    for missing_pass in missing_passes:
        node = "model" if missing_pass.model == "target" else missing_pass.model
        model, settings = getattr(stage, node), stage.detection
        if model.url is None:
            field, arguments = "path", f"model.path={model.given} method=[loss,infilling]"
        else:
            name = "" if model.name is None else f" model.name={model.name}"
            field = "url"
            arguments = f"model.url={model.url}{name} model.tokenizer={model.tokenizer} method=loss"
        raise ArtifactError(
            f"{node}.{field} is {model.given!r}: none of its passes over the texts of "
            f"examples.path ({stage.examples.path!r}) is stored below {stage.runs!r}, and view "
            "runs no model. "
            f"First run `python -m detection runs={stage.runs} examples.path={stage.examples.path} "
            f"{arguments} detection.dtype={settings.dtype} "
            f"detection.long_texts={settings.long_texts}`."
        )


def _shared_tokenizer(
    stage: ViewStage, models: Mapping[str, ModelHandle], texts: Sequence[Text]
) -> Any:
    """Returns the target's tokenizer, after checking that the reference's agrees with it.

    Raises:
        ConfigError: the tokens of the texts differ, or the target's tokenizer has no offsets.
    """
    target, *references = (model.tokenizer() for model in models.values())
    remedy = "its tokenizer does not report the positions of tokens. Give a model with a fast one."
    require(target.is_fast, "model.path", stage.model.given, remedy)
    strings = [text.text for text in texts]
    target_ids = target(strings)["input_ids"]
    if any(reference(strings)["input_ids"] != target_ids for reference in references):
        raise ConfigError(
            f"reference.path is {stage.reference.given!r}: its tokenizer divides the texts into "
            f"other tokens than that of model.path ({stage.model.given!r}), so tokens can't be "
            "compared one by one. Give a model with the same tokenizer, or null."
        )
    return target


def _head_entries(
    stage: ViewStage, models: Mapping[str, ModelHandle], count: int, left_out: Collection[str]
) -> dict[str, str]:
    selection = "chosen by id" if stage.view.ids else f"drawn with seed {stage.seed}"
    return {
        "model": models["target"].slug,
        **({"reference": models["reference"].slug} if "reference" in models else {}),
        "examples": f"{selection}, of the {count:,} in {Path(stage.examples.path).name}",
        **({"left out": f"{', '.join(left_out)}: not stored"} if left_out else {}),
    }
