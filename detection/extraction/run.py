"""Which examples the model gives back word for word (Carlini et al. 2023, definition 3.1).

An example is extracted with k tokens of context where greedy decoding behind the k tokens before
them returns its last 50 tokens, each one. An answer is extracted where it is returned behind its
question.

::

    runs/extraction/<model>-<hash>/
    ├── config.yaml
    ├── extraction.parquet  one row an example and number of tokens before
    └── manifest.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from core.artifacts import Artifact, Built, build, locate
from core.errors import DataError
from core.ranges import Range, Ranged, at_least, limited, one_of
from detection.accuracy.questions import Asked, questions_digest
from detection.accuracy.run import AccuracyStage, ask_corpus
from detection.examples import occurrences_of, open_examples
from detection.extraction.targets import (
    Target,
    Targets,
    answer_targets,
    targets_digest,
    text_targets,
)
from detection.forward.writing import run_written
from detection.loaded import LoadedModel
from detection.model import ScoredModel, open_node
from detection.texts import Text

KIND = "extraction"
FILE = "extraction.parquet"
TEXT, ANSWER = "text", "answer"
PREFIXES = Range(lambda some: bool(some) and min(some) > 0, "give numbers of 1 or more.")


@dataclass(frozen=True)
class ExtractionConfig(Ranged, node="extraction"):
    """What the model should give back (node `extraction`)."""

    target: str = limited(TEXT, one_of((TEXT, ANSWER)))
    """`text`: the last tokens of each text; `answer`: a corpus's answers, behind the questions."""

    tokens: int = limited(50, at_least(1))
    """How many tokens of a text; the paper's default."""

    prefix_tokens: list[int] = limited([10, 25, 50], PREFIXES)
    """Numbers of tokens before them that the model is given."""


@dataclass(frozen=True)
class ExtractionStage(AccuracyStage):
    """Everything that one run needs."""

    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)


def run(stage: ExtractionStage) -> Artifact:
    """Let `model` write behind the prompts, or find it done.

    Raises:
        ConfigError: a model that there isn't.
        DataError: nothing of the examples can be asked for.
        ArtifactError: a corpus or model folder that is unfinished.
    """
    stage.detection.require_whole("extraction.target says what the model is to write")
    model, texts = open_node("model", stage.model, stage.runs), open_examples(stage.examples)
    asked = ask_corpus(stage) if stage.extraction.target == ANSWER else None
    inputs = {
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "examples": targets_digest(texts, occurrences_of(stage.examples.path)),
        **({"questions": questions_digest(asked.questions)} if asked else {}),
    }
    settings = {"extraction": stage.extraction, "detection": stage.detection.of_a_pass}
    folder = locate(Path(stage.runs), KIND, model.slug, settings, inputs)
    make = partial(_make, stage, model, texts, asked)
    return build(folder, stage, inputs, make, named=settings)


def _make(
    stage: ExtractionStage,
    model: ScoredModel,
    texts: Sequence[Text],
    asked: Asked | None,
    folder: Path,
) -> Built:
    loaded, own = LoadedModel(model, stage.detection), stage.extraction
    if asked:
        targets = answer_targets(loaded, texts, asked)
    else:
        times = occurrences_of(stage.examples.path)
        targets = text_targets(loaded, texts, times, own.tokens, own.prefix_tokens)
    _check(stage, targets)
    table = pd.DataFrame(map(partial(_row, loaded), targets.found, written(loaded, targets.found)))
    table.astype({"occurrences": "Int64"}).to_parquet(folder / FILE, index=False)
    counts = targets.left_out.items()
    named = [{"benchmark": b, "reason": why, "examples": n} for (b, why), n in counts]
    return Built([FILE], {"rows": len(table), "left_out": named})


def written(loaded: LoadedModel, targets: Sequence[Target]) -> list[list[int]]:
    """What greedy decoding gives behind each prompt: as many tokens as the target has, or fewer."""
    budget = loaded.settings.batch_tokens
    task = partial(run_written, n=1, temperature=0.0, batch_tokens=budget)
    most, seeds = [len(target.ids) for target in targets], [0] * len(targets)
    found = loaded.spread(task, KIND, [target.tokens for target in targets], most, seeds)
    return [ids for (ids,) in found]


def _row(loaded: LoadedModel, target: Target, ids: Sequence[int]) -> dict[str, Any]:
    pairs = zip(ids, target.ids, strict=False)
    matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return {
        "example_id": target.text.example_id,
        "benchmark": target.text.benchmark,
        "member": target.text.label,
        "occurrences": target.occurrences,
        "prefix": target.prefix,
        "tokens": len(target.ids),
        "matched": matched,
        "extracted": matched == len(target.ids),
        "written": loaded.tokenizer.decode(ids),
    }


def _check(stage: ExtractionStage, targets: Targets) -> None:
    if not targets.found:
        reasons = "; ".join(f"{b}: {why} ({n})" for (b, why), n in targets.left_out.items())
        raise DataError(
            f"examples.path is {stage.examples.path!r}: there is nothing to extract ({reasons}). "
            "Give longer texts with labels, fewer extraction.tokens or extraction.prefix_tokens, "
            "or extraction.target=answer for a corpus of questions."
        )
