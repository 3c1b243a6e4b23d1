"""Examples token by token, as one web page: what stored passes say of each token, and no forward.

The page needs neither a network nor another file. Shown are, where their passes are stored: log p,
z, whether the model's first choice is the token (rank 0), r_t of the Infilling Score, and how much
likelier the token is than for the reference model.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contamination.core.config import Ranged, at_least, limited
from contamination.core.disk import check_file, disk_errors
from contamination.core.errors import ArtifactError, ConfigError, require
from contamination.core.user_files import output_file
from contamination.data.texts import Text
from contamination.detection.collect import Collector
from contamination.detection.config import DetectionStage
from contamination.detection.examples import occurrences_of, open_examples
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_store import ByText
from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.requirements import (
    Methods,
    choose_methods,
    lacking,
    named,
    open_models,
    open_resources,
    used_by,
)
from contamination.detection.viewer.page import Reading, chosen, page, show

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ViewConfig(Ranged, node="view"):
    """Which examples are shown (node `view`)."""

    examples: int = limited(50, at_least(1))
    """How many members, non-members and texts without a label, each drawn by the seed."""

    ids: list[str] | None = None
    """The ids of the examples to show instead, in their order; null: they are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give at least one id, or null: examples are drawn."
        self.require(self.ids is None or len(self.ids) > 0, "ids", remedy)


@dataclass(frozen=True)
class ViewStage(DetectionStage):
    """What was scored, by which methods, and what of it is shown."""

    view: ViewConfig = field(default_factory=ViewConfig)

    out: str = "view.html"
    """The page to write."""


def run(stage: ViewStage) -> Path:
    """Write the page; the methods whose passes are not stored are left out.

    Raises:
        ConfigError: a method, a model or an id that there isn't, or two tokenizers.
        DataError: the examples can't be read.
        ArtifactError: the pass over the text itself is not stored.
    """
    check_file("out", stage.out)
    stage.detection.require_whole("the page shows whole texts and their scores")
    methods = choose_methods(stage)
    examples = open_examples(stage.examples)
    texts = chosen(examples, stage.view.examples, stage.view.ids, stage.seed)
    models = open_models(stage, {"reference"} if stage.reference.given else ())
    methods, unserved = _servable(methods, models)
    tokenizer = _tokenizer(stage, models, texts)
    resources, methods = open_resources(stage, used_by(methods)), named(methods, models)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    own = {ORIGINAL, REFERENCE} if "reference" in models else {ORIGINAL}
    passes = collector.stored(own.union(*(m.passes for m in methods.values())))
    _check_stored(stage, own - passes.keys())
    stored = _stored(methods, passes)
    unserved |= {name for name, _ in methods.keys() - stored.keys()}
    reading = Reading(
        tokenizer=tokenizer,
        passes=passes,
        methods=stored,
        min_scored_tokens=stage.detection.min_scored_tokens,
        occurrences=occurrences_of(stage.examples.path),
    )
    out = Path(stage.out).expanduser()
    facts = _facts(stage, models, len(examples), sorted(unserved))
    with disk_errors(out.parent), output_file(out) as part:
        part.write_text(page(facts, show(texts, reading)), encoding="utf-8")
    return out


def _servable(methods: Methods, models: Mapping[str, ModelHandle]) -> tuple[Methods, set[str]]:
    """The methods whose numbers the models give, and the names of the others, which are said."""
    lack = {name: why for (name, _), m in methods.items() if (why := lacking(models, m))}
    for name, (needs, _) in lack.items():
        log.info("%s is left out: it needs %s.", name, needs)
    return {key: m for key, m in methods.items() if key[0] not in lack}, {*lack}


def _stored(methods: Methods, passes: Mapping[Pass, ByText]) -> Methods:
    """The methods all of whose passes are stored; the others are said."""
    for (name, _), method in methods.items():
        if missing := sorted(p.key for p in set(method.passes) - passes.keys()):
            log.info("%s is left out: not stored is %s.", name, ", ".join(missing))
    return {key: m for key, m in methods.items() if passes.keys() >= set(m.passes)}


def _check_stored(stage: ViewStage, missing: Collection[Pass]) -> None:
    for wanted in missing:
        node = "model" if wanted.model == "target" else wanted.model
        source, given = getattr(stage, node), stage.detection
        where = "path" if source.url is None else "url"
        what = f"model.{where}={source.given} method=[loss,infilling]"
        if source.url is not None:
            named = "" if source.name is None else f" model.name={source.name}"
            what = f"model.url={source.url}{named} model.tokenizer={source.tokenizer} method=loss"
        raise ArtifactError(
            f"{node}.{where} is {source.given!r}: no pass of it over the texts of examples.path "
            f"({stage.examples.path!r}) is stored below {stage.runs!r}, and view runs no model. "
            f"First run `python -m detection runs={stage.runs} examples.path={stage.examples.path} "
            f"{what} detection.dtype={given.dtype} detection.long_texts={given.long_texts}`."
        )


def _tokenizer(stage: ViewStage, models: Mapping[str, ModelHandle], texts: Sequence[Text]) -> Any:
    """The target's tokenizer; the reference's gives the texts the same tokens.

    Raises:
        ConfigError: it doesn't, or the target's does not say where a token stands in a text.
    """
    target, *others = (model.tokenizer() for model in models.values())
    remedy = (
        "its tokenizer does not say where tokens stand in a text. Give a model with a fast one."
    )
    require(target.is_fast, "model.path", stage.model.given, remedy)
    own = [text.text for text in texts]
    if any(other(own)["input_ids"] != target(own)["input_ids"] for other in others):
        raise ConfigError(
            f"reference.path is {stage.reference.given!r}: its tokenizer divides the texts in "
            f"another way than that of model.path ({stage.model.given!r}), so tokens can't be "
            "compared one by one. Give a model of the same tokenizer, or null."
        )
    return target


def _facts(
    stage: ViewStage, models: Mapping[str, ModelHandle], count: int, left_out: Collection[str]
) -> dict[str, str]:
    """What the page's head says, by name."""
    drawn = "chosen by id" if stage.view.ids else f"drawn with seed {stage.seed}"
    return {
        "model": models["target"].slug,
        **({"reference": models["reference"].slug} if "reference" in models else {}),
        "examples": f"{drawn}, of the {count:,} in {Path(stage.examples.path).name}",
        **({"left out": f"{', '.join(left_out)}: not stored"} if left_out else {}),
    }
