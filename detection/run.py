"""The detection stage: build the methods, collect their passes, score every example."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core.artifacts import Artifact, Built, build, is_complete, locate
from contamination.core.config import identity
from contamination.core.disk import check_writable, disk_errors
from contamination.core.errors import ConfigError
from contamination.core.hashing import file_digest
from contamination.data.examples import examples_digest
from contamination.data.texts import Texts
from contamination.detection.collect import Collector
from contamination.detection.config import DetectionStage, slice_of
from contamination.detection.examples import open_examples
from contamination.detection.flags import counted, counting, said, together
from contamination.detection.methods.base import Method
from contamination.detection.models.base import ModelHandle
from contamination.detection.passes import Pass
from contamination.detection.requirements import (
    Methods,
    choose_methods,
    choose_servable,
    named,
    open_models,
    open_resources,
    used_by,
)
from contamination.detection.resources import Resources
from contamination.detection.scope import outputs_of, scoped
from contamination.detection.scores import (
    COLUMNS,
    FILE,
    KIND,
    open_scores,
    read_tables,
    score_tables,
    write_tables,
)
from contamination.detection.summary import CSV, export

log = logging.getLogger(__name__)


def run(
    stage: DetectionStage,
    start: Callable[[Path | None], None] | None = None,
    examples: Texts | None = None,
) -> Artifact:
    """Score the examples with every method, or find them scored.

    The folder's name depends on the examples' ids and texts, the model's weights, the methods and
    the recorded settings: not on the corpus, so that cells of a sweep share their clean scores.

    Args:
        stage: what to score.
        start: starts processes that make the folder, where it is not made; None: this process.
        examples: the texts, where they are read already.

    Raises:
        ConfigError: a method, a hyperparameter or a model that there isn't.
        DataError: a text or a file that can't be scored.
        ArtifactError: a corpus or model folder that is unfinished.
    """
    if stage.out is not None:
        check_writable("out", stage.out)
    methods, examples, models, resources = own = opened(stage, examples)
    settings, inputs = _named(stage, *own)
    folder = locate(Path(stage.runs), KIND, models["target"].slug, settings, inputs)
    if start is not None and not is_complete(folder):
        start(folder)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    inputs |= resources.shared(used_by(methods))
    make = partial(_make, methods, examples, collector)
    artifact = build(folder, stage, inputs, make, named=settings)
    log.info("scores: %s", artifact.path)
    if stage.out is not None:
        out = Path(stage.out).expanduser()
        with disk_errors(out):
            export(out, open_scores(folder), examples, stage.out_text)
        log.info("scores: %s", out / CSV)
    return artifact


def place(stage: DetectionStage, examples: Texts) -> Path:
    """The folder of the scores that `run` makes or finds; nothing is made."""
    own = opened(stage, examples)
    settings, inputs = _named(stage, *own)
    return locate(Path(stage.runs), KIND, own[2]["target"].slug, settings, inputs)


def run_slice(stage: DetectionStage, start: Callable[[Path | None], None] | None = None) -> None:
    """Make the stage's `slice` of all passes' parts, by the processes that `start` starts or here.

    `run` then keeps what slices made, in any order or at once, and makes what is missing.
    """
    if start is not None:
        start(None)
        return
    number, of = slice_of("slice", str(stage.slice))
    methods, examples, models, resources = opened(stage, None)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    made = collector.collect_slice(passes_of(methods), number, of)
    log.info("slice %s: %s", stage.slice, f"wrote {made} parts." if made else "nothing to do.")
    log.info("No scores are made of a slice: the same command without slice makes them.")


def opened(
    stage: DetectionStage, examples: Texts | None
) -> tuple[Methods, Texts, dict[str, ModelHandle], Resources]:
    """The methods that can be served, the texts, and what both read."""
    methods = choose_methods(stage)
    examples = open_examples(stage.examples) if examples is None else examples
    models = open_models(stage, used_by(methods))
    methods = choose_servable(stage.method, methods, models)
    return named(methods, models), examples, models, open_resources(stage, used_by(methods))


def passes_of(methods: Methods) -> set[Pass]:
    """All that the methods read."""
    return counting({p for method in methods.values() for p in method.passes})


def _make(methods: Methods, texts: Texts, collector: Collector, folder: Path) -> Built:
    models, settings = collector.models, collector.settings
    whole = collector.collect(passes_of(methods))
    texts, passes = scoped(settings.scope, texts, whole, models)
    step, least = models["target"].step, settings.min_scored_tokens
    write_tables(folder / FILE, score_tables(methods, texts, passes, step, least))
    for line in said(together(map(counted, read_tables(folder / FILE)))):
        log.warning("%s", line)
    flagged = sum(int((table["flag"] != "").sum()) for table in read_tables(folder / FILE))
    rows = len(texts) * len(methods)
    counts = {"examples": len(texts), "methods": len(methods), "rows": rows}
    return Built([FILE], {**counts, "flagged": flagged})


def _code(kind: type[Method]) -> dict[str, str]:
    """A method's class; of one from outside also a hash of its file, which may change any day."""
    named = {"class": kind.__qualname__}
    if kind.__module__.startswith(f"{__package__}."):
        return named
    try:
        return {**named, "code": file_digest(Path(inspect.getfile(kind)))}
    except (TypeError, OSError) as error:
        raise ConfigError(
            f"the method {kind.__qualname__} has no file that would tell when it changes: put it "
            "into a module of its own."
        ) from error


def _named(
    stage: DetectionStage,
    methods: Methods,
    examples: Texts,
    models: Mapping[str, ModelHandle],
    resources: Resources,
) -> tuple[dict[str, Any], dict[str, str]]:
    """What names the folder of scores: the settings, and the digests of what is read."""
    drawn, digests = resources.identity(sorted(used_by(methods)), examples)
    inputs = {
        **{role: m.digest for role, m in models.items()},
        "examples": examples_digest(examples),
        **digests,
        **outputs_of(stage.detection.scope, examples),
    }
    return _identity(stage, methods, drawn), inputs


def _identity(stage: DetectionStage, methods: Methods, drawn: Mapping[str, int]) -> dict[str, Any]:
    """All that can change the table, apart from the inputs."""
    named = {
        f"{name} {variant}".strip(): {**_code(type(method)), **identity(method)}
        for (name, variant), method in methods.items()
    }
    columns = {"columns": COLUMNS.names}
    settings = {**identity(stage.detection), **stage.detection.of_the_head}
    return {"method": named, **drawn, **columns, "detection": settings}
