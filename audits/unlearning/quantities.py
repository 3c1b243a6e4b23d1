"""What is compared: one number a unit and model, higher = the model knows more of the unit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.estimates import UNITS, Units
from contamination.audits.unlearning.inputs import AuditedModel, Models
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.artifacts import is_complete
from contamination.core.errors import DataError, near_names
from contamination.core.statistics.bootstrap import Scores
from contamination.data.config import ExamplesConfig
from contamination.data.texts import Texts
from contamination.detection.scores import open_scores
from contamination.detection.tasks import accuracy, extraction
from contamination.detection.tasks.questions import Asked, ask
from contamination.injection.corpus import open_corpus

log = logging.getLogger(__name__)
SCORE, ACCURACY, ANSWERS = "score", "accuracy", "answers by ROUGE-L recall"


@dataclass(frozen=True)
class Quantity:
    """A number of every model on the same units.

    Attributes:
        name: as tables name it.
        units: what it is about.
        values: by the model's name, in the units' order.
        is_score: whether it is a method's score, which ranks members against non-members.
    """

    name: str
    units: Units
    values: Mapping[str, Scores]
    is_score: bool = False


def quantity(name: str, tables: Mapping[str, pd.DataFrame], seed: int) -> Quantity:
    """The quantity of units that all models have a number of.

    Args:
        name: its name.
        tables: by model a row a unit: `unit`, `UNITS` and `value`.
        seed: of the draws.
    """
    whole = [table.dropna(subset="value").set_index("unit") for table in tables.values()]
    shared = [unit for unit in whole[0].index if all(unit in table.index for table in whole)]
    rows = whole[0].loc[shared].reset_index()[["unit", *UNITS]]
    values = {
        model: table.loc[shared, "value"].to_numpy(np.float64)
        for model, table in zip(tables, whole, strict=True)
    }
    return Quantity(name, Units(rows, seed), values)


def scored(
    stage: AuditStage, models: Models, texts: Texts, chunks: pd.DataFrame, seed: int
) -> Iterator[Quantity]:
    """Each method's score of the chunks that are ranked, with the method's own hyperparameters."""
    tables = {model.name: _scores(stage, model, texts) for model in models}
    methods = [set(table["method"]) for table in tables.values()]
    for name in sorted(set.intersection(*methods)):
        own = {
            model: chunks.merge(table[table["method"] == name], left_on="chunk", right_on="unit")
            for model, table in tables.items()
        }
        found = quantity(name, own, seed)
        yield Quantity(name, found.units, found.values, is_score=True)


def _scores(stage: AuditStage, model: AuditedModel, texts: Texts) -> pd.DataFrame:
    """A row a chunk and method: unit, method and value, which is NaN where it is not ranked."""
    made = stage.scores(texts, f"the chunks of {stage.audit['texts']}", model.node)
    table = open_scores(made.path).table
    table = table[table["default"]].astype({"example_id": str, "method": str})
    value = table["score"].where(table["ranked"])
    return pd.DataFrame({"unit": table["example_id"], "method": table["method"], "value": value})


def by_name(found: Sequence[Quantity], name: str) -> Quantity:
    """The method's scores.

    Raises:
        DataError: nothing is scored by it.
    """
    known = {one.name: one for one in found}
    if name not in known:
        raise DataError(
            f"audit.screen is {name!r}: no chunk has a score of it. {near_names(name, known)}"
        )
    return known[name]


def questions_of(path: str) -> Asked | None:
    """The questions of a corpus folder; None: it is none, or has none to ask."""
    folder = Path(path).expanduser()
    if not is_complete(folder):
        return None
    asked = ask(open_corpus(folder), {})
    return asked if asked.questions else None


def answered(
    stage: AuditStage, models: Models, path: str, asked: Asked, seed: int
) -> list[Quantity]:
    """Accuracy, and how much of each answer is written behind its question."""
    chosen = {model.name: _accuracy(stage, model, path) for model in models}
    wrote = {model.name: _answers(stage, model, path, asked) for model in models}
    return [quantity(ACCURACY, chosen, seed), quantity(ANSWERS, wrote, seed)]


def _accuracy(stage: AuditStage, model: AuditedModel, path: str) -> pd.DataFrame:
    own = accuracy.AccuracyStage(
        runs=stage.runs,
        examples=ExamplesConfig(path),
        model=model.node,
        detection=stage.detection,
    )
    table = accuracy.run(own).table(accuracy.FILE)
    exposed = ~table["member"] | (table["occurrences"] > 0)
    return _units(table[exposed]).assign(value=table["correct"].astype(float))


def _answers(stage: AuditStage, model: AuditedModel, path: str, asked: Asked) -> pd.DataFrame:
    """ROUGE-L's recall of the right answer (Shi et al. 2024, section 7.2), greedy decoding."""
    own = extraction.ExtractionStage(
        runs=stage.runs,
        examples=ExamplesConfig(path),
        model=model.node,
        detection=stage.detection,
        extraction=extraction.ExtractionConfig(target=extraction.ANSWER),
    )
    table = extraction.run(own).table(extraction.FILE)
    right = {one.example_id: one.options[one.answer] for one in asked.questions}
    recall = [rouge_l(row.written, right[row.example_id]).recall for row in table.itertuples()]
    return _units(table).assign(value=recall)


def _units(table: pd.DataFrame) -> pd.DataFrame:
    """Examples as units: each is a text of its own."""
    ids = table["example_id"].astype(str)
    known = {"benchmark": table["benchmark"], "member": table["member"].astype("boolean")}
    return pd.DataFrame({"unit": ids, "text_id": ids, **known})
