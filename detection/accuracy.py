"""Task accuracy of members against non-members: is what was seen also answered better?

Each example is answered by likelihood over its options (Shi et al. 2024, table 8): every option is
put into the example's own template, and the one whose tokens the model finds likeliest is chosen.
Only the tokens after those that all options' texts begin with count: where an option's first
letters merge with the prompt's last ones into another token, that token is the option's.

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
from typing import Any

import numpy as np
import pandas as pd

from core.artifacts import Artifact, Built, build, locate
from core.config import identity
from core.errors import DataError, require
from detection.config import DetectionConfig, ExamplesConfig, ReferenceConfig, ScoredModelConfig
from detection.decoder import load_decoder
from detection.examples import examples_digest, open_examples
from detection.loaded import LoadedModel
from detection.options import Asked, Question, ask, questions_digest
from detection.parallel import run_slices, spread
from detection.passes import TokenStats
from detection.runner import run_sequences
from detection.scored_model import ScoredModel, open_model
from injection import open_corpus
from injection.config import BenchmarkConfig

KIND = "accuracy"
FILE = "accuracy.parquet"


@dataclass(frozen=True)
class AccuracyConfig:
    """The node `accuracy`."""

    normalisation: str = "mean"
    """`mean`: an option's log-likelihood a token, so that long options stand a chance; `sum`."""

    def __post_init__(self) -> None:
        require(self.normalisation in ("mean", "sum"), "accuracy.normalisation",
                self.normalisation, "give mean or sum.")  # fmt: skip


@dataclass(frozen=True)
class AccuracyStage:
    """Everything that one run needs."""

    runs: str = "runs"
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    accuracy: AccuracyConfig = field(default_factory=AccuracyConfig)
    benchmark: dict[str, BenchmarkConfig] = field(default_factory=dict)
    """What names each benchmark's options; for others it is what the corpus records."""

    def models(self) -> list[AccuracyStage]:
        """The stage alone, and the same for the reference model where there is one."""
        alone = replace(self, reference=ReferenceConfig())
        if self.reference.path is None:
            return [alone]
        other = ScoredModelConfig(self.reference.path, self.reference.trust_remote_code)
        return [alone, replace(alone, model=other)]


@dataclass(frozen=True)
class Rows:
    """A question's options as the model reads them: token ids, the first `common` ones shared."""

    question: Question
    ids: list[list[int]]
    common: int


def run(stage: AccuracyStage) -> Artifact:
    """Answer the examples with `model`, or find them answered.

    Raises:
        ConfigError: a model that there isn't, or an answer_field that is no field.
        DataError: no corpus, or nothing in it can be asked.
        ArtifactError: a corpus or model folder that is unfinished.
    """
    trusted = stage.model.trust_remote_code
    model = open_model("model.path", stage.model.path, trust_remote_code=trusted)
    asked = ask_corpus(stage)
    inputs = {
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "examples": examples_digest(open_examples(stage.examples.path)),
        "questions": questions_digest(asked.questions),
    }
    settings = {"detection": stage.detection.of_a_pass, "accuracy": identity(stage.accuracy)}
    folder = locate(Path(stage.runs), KIND, model.slug, settings, inputs)
    return build(folder, stage, inputs, partial(_make, stage, model, asked))


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
    for question in asked.questions:
        ids = loaded.tokenizer(list(question.texts), verbose=False)["input_ids"]
        common = common_tokens(ids)
        if common == 0:
            left_out[question.benchmark, "no token stands before the options"] += 1
        elif loaded.context is not None and max(map(len, ids)) > loaded.context:
            left_out[question.benchmark, "an option's text is longer than the model's context"] += 1
        else:
            found.append(Rows(question, ids, common))
    return found, left_out


def common_tokens(ids: Sequence[Sequence[int]]) -> int:
    """How many tokens all rows begin with, but never a whole row: each option keeps a token."""
    shortest = min(map(len, ids)) - 1
    columns = list(zip(*ids, strict=False))[:shortest]
    return next((n for n, column in enumerate(columns) if len(set(column)) > 1), shortest)


def likelihoods(
    source: ScoredModel, settings: DetectionConfig, rows: Sequence[Rows]
) -> list[list[np.ndarray[Any, Any]]]:
    """For each question and option the log-probabilities (float64) of the option's tokens."""
    ids = [row for each in rows for row in each.ids]
    names = [f"{r.question.example_id}, option {n}" for r in rows for n in range(len(r.ids))]
    task = partial(run_sequences, batch_tokens=settings.batch_tokens)
    stats: list[TokenStats]
    if spread(settings):
        stats = run_slices(task, source, settings, ids, names)
    else:
        title = f"{source.slug} {KIND}"
        stats = task(load_decoder(source, settings), ids, names, progress=title)
    columns = iter(stats)  # entry i is of token i + 1
    return [
        [next(columns).logprob[each.common - 1 :].astype(np.float64) for _ in each.ids]
        for each in rows
    ]


def make_table(
    rows: Sequence[Rows], found: Sequence[Sequence[np.ndarray[Any, Any]]], normalisation: str
) -> pd.DataFrame:
    """One row an example: who it is, its options, their log-likelihoods and what was chosen.

    `loglikelihoods` are sums in nats over the `tokens` of each option; `chosen` is the first of
    those with the highest sum, or mean a token.
    """
    table = []
    for each, options in zip(rows, found, strict=True):
        q = each.question
        sums, tokens = [float(o.sum()) for o in options], [len(o) for o in options]
        worth = np.array(sums) / (tokens if normalisation == "mean" else 1)
        chosen = int(np.argmax(worth))
        table.append({
            "example_id": q.example_id, "benchmark": q.benchmark, "member": q.member,
            "occurrences": q.occurrences, "options": list(q.options), "answer": q.answer,
            "chosen": chosen, "correct": chosen == q.answer, "loglikelihoods": sums,
            "tokens": tokens, "drawn_options": q.drawn,
        })  # fmt: skip
    return pd.DataFrame(table)


def _make(stage: AccuracyStage, model: ScoredModel, asked: Asked, folder: Path) -> Built:
    rows, unscored = tokenize(LoadedModel(model, stage.detection), asked)
    left_out = asked.left_out + unscored
    if not rows:
        raise DataError(
            f"examples.path is {stage.examples.path!r}: the model can read none of its "
            f"{len(asked.questions)} questions ({'; '.join(r for _, r in left_out)}). Give a "
            "model of a longer context, or shorter examples."
        )
    found = likelihoods(model, stage.detection, rows)
    table = make_table(rows, found, stage.accuracy.normalisation)
    table.to_parquet(folder / FILE, index=False)
    named = [{"benchmark": b, "reason": why, "examples": n} for (b, why), n in left_out.items()]
    return Built([FILE], {"examples": len(table), "left_out": named})
