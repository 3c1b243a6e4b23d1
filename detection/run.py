"""The detection stage: builds the methods, collects their passes, and scores every example."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core.artifacts import (
    Artifact,
    WrittenFiles,
    build_or_open,
    is_complete,
    run_folder,
)
from contamination.core.config import identity_data
from contamination.core.errors import ConfigError
from contamination.core.hashing import file_digest
from contamination.core.output_paths import check_writable_folder, disk_errors_as_data_errors
from contamination.data.examples import examples_digest
from contamination.data.texts import Texts
from contamination.detection.config import DetectionStage, parse_slice
from contamination.detection.examples import open_examples
from contamination.detection.flags import (
    count_flags,
    describe_flags,
    merge_flag_counts,
    with_token_count_pass,
)
from contamination.detection.methods.base import Method
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import Pass
from contamination.detection.requirements import (
    Methods,
    all_needs,
    choose_methods,
    choose_servable_methods,
    name_upper_bounds,
    open_models,
    open_resources,
)
from contamination.detection.scope import output_starts_digest, restrict_to_scope
from contamination.detection.scores import (
    COLUMNS,
    FILE,
    KIND,
    open_scores,
    read_tables,
    score_tables,
    write_score_tables,
)
from contamination.detection.summary import CSV, write_exports
from contamination.detection.view_resources import Resources

SHOWN_CHARACTERS = 1_000
"""The number of characters of the first text that the log shows."""
log = logging.getLogger(__name__)


def run(
    stage: DetectionStage,
    start: Callable[[Path | None], None] | None = None,
    examples: Texts | None = None,
) -> Artifact:
    """Scores the examples with every method, or reuses existing scores.

    The folder's name depends on the examples' ids and texts, the model's weights, the methods and
    the recorded settings. It does not depend on the corpus, so that the cells of a sweep share
    their clean scores.

    Args:
        stage: what to score.
        start: starts the processes that make the folder if it does not exist; None scores in this
            process.
        examples: the texts, if they have already been read.

    Returns:
        The folder of scores.

    Raises:
        ConfigError: an unknown method, hyperparameter or model.
        DataError: a text or a file cannot be scored.
        ArtifactError: a corpus or model folder is unfinished.
    """
    if stage.out is not None:
        check_writable_folder("out", stage.out)
    methods, examples, models, resources = open_stage_inputs(stage, examples)
    settings, input_digests = _settings_and_inputs(stage, methods, examples, models, resources)
    folder = run_folder(Path(stage.runs), KIND, models["target"].slug, settings, input_digests)
    if start is not None and not is_complete(folder):
        start(folder)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    input_digests |= resources.prefix_digest(all_needs(methods))
    make = partial(_write_scores, methods, examples, collector)
    artifact = build_or_open(folder, stage, input_digests, make, named=settings)
    log.info("scores: %s", artifact.path)
    if stage.out is not None:
        out = Path(stage.out).expanduser()
        with disk_errors_as_data_errors(out):
            write_exports(out, open_scores(folder), examples, stage.out_text)
        log.info("scores: %s", out / CSV)
    return artifact


def scores_folder(stage: DetectionStage, examples: Texts) -> Path:
    """Returns the folder of the scores that `run` makes or reuses, without making it."""
    methods, examples, models, resources = open_stage_inputs(stage, examples)
    settings, inputs = _settings_and_inputs(stage, methods, examples, models, resources)
    return run_folder(Path(stage.runs), KIND, models["target"].slug, settings, inputs)


def run_slice(stage: DetectionStage, start: Callable[[Path | None], None] | None = None) -> None:
    """Makes the stage's `slice` of the parts of all passes, in this process or with `start`.

    Slices may be made in any order or at once. `run` then reuses them and makes what is missing.
    """
    if start is not None:
        start(None)
        return
    number, n_slices = parse_slice("slice", str(stage.slice))
    methods, examples, models, resources = open_stage_inputs(stage, None)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    written = collector.collect_slice(required_passes(methods), number, n_slices)
    outcome = f"wrote {written} parts." if written else "nothing to do."
    log.info("slice %s: %s", stage.slice, outcome)
    log.info("A slice makes no scores: run the same command without slice to make them.")


def open_stage_inputs(
    stage: DetectionStage, examples: Texts | None
) -> tuple[Methods, Texts, dict[str, ModelHandle], Resources]:
    """Returns the methods that the models can serve, the texts, the models and the resources."""
    methods = choose_methods(stage)
    examples = open_examples(stage.examples) if examples is None else examples
    models = open_models(stage, all_needs(methods))
    methods = choose_servable_methods(stage.method, methods, models, examples)
    return (
        name_upper_bounds(methods, models),
        examples,
        models,
        open_resources(stage, all_needs(methods)),
    )


def describe_first_text(examples: Texts, model: ModelHandle) -> str:
    """Returns the first text as the model reads it, with special tokens, in quotation marks.

    This shows at once whether a template, a separator or a special token differs from training.
    """
    text = examples[0].text
    tokenizer = model.tokenizer()
    ids = tokenizer(text[:SHOWN_CHARACTERS], verbose=False)["input_ids"]
    as_read = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    n_omitted = len(text) - SHOWN_CHARACTERS
    remark = f" and {n_omitted} more characters" if n_omitted > 0 else ""
    return f"first text, {examples[0].example_id}, as the model reads it: {as_read!r}{remark}"


def required_passes(methods: Methods) -> set[Pass]:
    """Returns all passes that the methods need, and one that counts the scored tokens."""
    return with_token_count_pass({p for method in methods.values() for p in method.passes})


def _write_scores(
    methods: Methods, texts: Texts, collector: Collector, folder: Path
) -> WrittenFiles:
    models, settings = collector.models, collector.settings
    log.info("%s", describe_first_text(texts, models["target"]))
    whole_passes = collector.collect(required_passes(methods))
    texts, passes = restrict_to_scope(settings.scope, texts, whole_passes, models)
    step, min_scored_tokens = models["target"].step, settings.min_scored_tokens
    write_score_tables(folder / FILE, score_tables(methods, texts, passes, step, min_scored_tokens))
    for line in describe_flags(merge_flag_counts(map(count_flags, read_tables(folder / FILE)))):
        log.warning("%s", line)
    flagged = sum(int((table["flag"] != "").sum()) for table in read_tables(folder / FILE))
    rows = len(texts) * len(methods)
    counts = {"examples": len(texts), "methods": len(methods), "rows": rows}
    return WrittenFiles([FILE], {**counts, "flagged": flagged})


def _class_identity(method_class: type[Method]) -> dict[str, str]:
    """Returns a method's class name, and for a third-party class a hash of its file."""
    name = {"class": method_class.__qualname__}
    if method_class.__module__.startswith(f"{__package__}."):
        return name
    try:
        return {**name, "code": file_digest(Path(inspect.getfile(method_class)))}
    except (TypeError, OSError) as error:
        raise ConfigError(
            f"the method {method_class.__qualname__} is not in a file, so that changes to it "
            "would not be noticed: put it into a module of its own."
        ) from error


def _settings_and_inputs(
    stage: DetectionStage,
    methods: Methods,
    examples: Texts,
    models: Mapping[str, ModelHandle],
    resources: Resources,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns what names the folder of scores: settings, and digests of all that is read."""
    seed, digests = resources.identity(sorted(all_needs(methods)), examples)
    inputs = {
        **{role: m.digest for role, m in models.items()},
        "examples": examples_digest(examples),
        **digests,
        **output_starts_digest(stage.detection.scope, examples),
    }
    return _score_settings(stage, methods, seed), inputs


def _score_settings(
    stage: DetectionStage, methods: Methods, seed: Mapping[str, int]
) -> dict[str, Any]:
    """Returns every setting that can change the table of scores."""
    method_settings = {
        f"{name} {variant}".strip(): {
            **_class_identity(type(method)),
            **identity_data(method),
            **method.digests,
        }
        for (name, variant), method in methods.items()
    }
    columns = {"columns": COLUMNS.names}
    detection = {**identity_data(stage.detection), **stage.detection.head_settings}
    return {"method": method_settings, **seed, **columns, "detection": detection}
