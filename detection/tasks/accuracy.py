"""Task accuracy of members against non-members: is what was seen also answered better?

Each example is answered by likelihood over its options (Shi et al. 2024, table 8): every option is
put into the example's own template, and the one whose tokens the model finds likeliest is chosen.
An option's tokens are those after the prompt's; where its first letters merge with the prompt's
last ones into another token, that token is the option's. `detection.tasks.questions` says by what
options are compared: the same forward serves every way.

::

    runs/accuracy/<model>-<hash>/
    ├── config.yaml
    ├── accuracy.parquet  one row an example
    └── manifest.json
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from contamination.core.artifacts import Artifact, Built, build, locate
from contamination.core.errors import DataError
from contamination.core.integrity import reading
from contamination.core.models import resolve
from contamination.data.config import BenchmarkConfig, ExamplesConfig
from contamination.data.examples import examples_digest
from contamination.detection.config import DetectionConfig, ReferenceConfig, ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.forward.batches import run_sequences
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.tasks.questions import (
    Asked,
    Question,
    ask,
    make_table,
    questions_digest,
    shared_start,
)
from contamination.detection.workers import run_slices, spread
from contamination.injection.corpus import open_corpus

KIND = "accuracy"
FILE = "accuracy.parquet"


@dataclass(frozen=True)
class AccuracyStage:
    """Everything that one run needs."""

    runs: str = "runs"
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    benchmark: dict[str, BenchmarkConfig] = field(default_factory=dict)
    """What names each benchmark's options; for others it is what the corpus records."""

    def models(self) -> list[Self]:
        """The stage alone, and the same for the reference model where there is one."""
        alone = replace(self, reference=ReferenceConfig())
        if self.reference.given is None:
            return [alone]
        if self.reference.path is not None:
            resolve("reference.path", self.reference.path)
        return [alone, replace(alone, model=self.reference)]


@dataclass(frozen=True)
class Rows:
    """A question's texts, then its letters', as token ids; the first `prompt` are no answer's."""

    question: Question
    ids: list[list[int]]
    prompt: int


def run(stage: AccuracyStage) -> Artifact:
    """Answer the examples with `model`, or find them answered.

    Raises:
        ConfigError: a model that there isn't, or an answer_field that is no field.
        DataError: no corpus, or nothing in it can be asked.
        ArtifactError: a corpus or model folder that is unfinished.
    """
    stage.detection.require_whole("each option is read behind its question")
    model = open_model("model", stage.model, stage.runs)
    asked = ask_corpus(stage)
    inputs = {
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "examples": examples_digest(open_examples(stage.examples)),
        "questions": questions_digest(asked.questions),
    }
    settings = {"detection": stage.detection.of_a_pass}
    folder = locate(Path(stage.runs), KIND, model.slug, settings, inputs)
    return build(folder, stage, inputs, partial(_make, stage, model, asked), named=settings)


def ask_corpus(stage: AccuracyStage) -> Asked:
    """The examples' questions.

    Raises:
        DataError: `examples.path` is no corpus folder, or nothing in it can be asked.
    """
    path = Path(stage.examples.path).expanduser()
    if not path.is_dir():
        raise DataError(
            f"examples.path is {stage.examples.path!r}: accuracy needs the questions and answers "
            "that a corpus keeps with its examples. Give a folder of runs/corpus/."
        )
    with reading(path):
        asked = ask(open_corpus(path), stage.benchmark)
    if not asked.questions:
        reasons = "; ".join(f"{b}: {reason} ({n})" for (b, reason), n in asked.left_out.items())
        raise DataError(
            f"examples.path is {stage.examples.path!r}: none of its examples can be asked "
            f"({reasons or 'it has none'}). Name answer_field and options in the benchmark's YAML."
        )
    return asked


def tokenize(loaded: LoadedModel, asked: Asked) -> tuple[list[Rows], Counter[tuple[str, str]]]:
    """The questions' token rows, and how many have none that the model could score, by reason."""
    found: list[Rows] = []
    left_out: Counter[tuple[str, str]] = Counter()
    context = loaded.source.context
    for question in asked.questions:
        texts = [question.prompt.rstrip(), *question.texts, *question.letter_texts]
        before, *ids = loaded.tokenizer(texts, verbose=False)["input_ids"]
        prompt = prompt_tokens(before, ids)
        if prompt == 0:
            left_out[question.benchmark, "no token stands before the options"] += 1
        elif context is not None and max(map(len, ids)) > context:
            left_out[question.benchmark, "an option's text is longer than the model's context"] += 1
        else:
            found.append(Rows(question, ids, prompt))
    return found, left_out


def prompt_tokens(prompt: Sequence[int], ids: Sequence[Sequence[int]]) -> int:
    """How many tokens the prompt alone and all rows begin with; each row keeps a token."""
    return min(shared_start(prompt, *ids), *(len(row) - 1 for row in ids))


def likelihoods(
    source: ModelHandle, settings: DetectionConfig, rows: Sequence[Rows]
) -> list[list[np.ndarray[Any, Any]]]:
    """For each question and row of it the log-probabilities (float64) of the answer's tokens."""
    ids = [row for each in rows for row in each.ids]
    names = [f"{r.question.example_id}, option {n}" for r in rows for n in range(len(r.ids))]
    task, title = partial(run_sequences, batch_tokens=settings.batch_tokens), source.titled(KIND)
    if spread(settings):
        stats = run_slices(task, source, settings, ids, names, title=title)
    else:
        stats = task(source.load(settings), ids, names, progress=title)
    columns = iter(stats)  # entry i is of token i + 1
    return [
        [next(columns).logprob[each.prompt - 1 :].astype(np.float64) for _ in each.ids]
        for each in rows
    ]


def _make(stage: AccuracyStage, model: ModelHandle, asked: Asked, folder: Path) -> Built:
    rows, unscored = tokenize(LoadedModel(model, stage.detection), asked)
    left_out = asked.left_out + unscored
    if not rows:
        raise DataError(
            f"examples.path is {stage.examples.path!r}: the model can read none of its "
            f"{len(asked.questions)} questions ({'; '.join(r for _, r in left_out)}). Give a "
            "model of a longer context, or shorter examples."
        )
    found = likelihoods(model, stage.detection, rows)
    table = make_table([each.question for each in rows], found)
    table.to_parquet(folder / FILE, index=False)
    named = [{"benchmark": b, "reason": why, "examples": n} for (b, why), n in left_out.items()]
    return Built([FILE], {"examples": len(table), "left_out": named})
