"""The quantities by which models are compared: scores of chunks, and answers to questions.

A quantity is a number per unit (a chunk, or a question) and model. Higher means that the model
knows more of the unit. Shi et al. (2024, section 7.2) ask questions about the forgotten content,
screen question and answer as one text, and compare answers with the right ones by ROUGE-L recall.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.audit_units import UNITS, AuditUnits
from contamination.audits.unlearning.inputs import (
    AuditedModel,
    AuditedModels,
    rename_field_in_errors,
)
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.artifacts import is_complete
from contamination.core.errors import DataError, near_names
from contamination.core.statistics.bootstrap import Scores
from contamination.data.config import ExamplesConfig
from contamination.data.examples import lines_digest, texts_of_rows
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import raw_rows
from contamination.data.texts import Texts
from contamination.data.words import is_blank
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.scores import open_scores
from contamination.detection.tasks import accuracy, extraction
from contamination.detection.tasks.accuracy import shared_prompt_length
from contamination.detection.tasks.config import (
    ANSWER,
    AccuracyStage,
    ExtractionConfig,
    ExtractionStage,
)
from contamination.detection.tasks.extraction import QUESTION, Target, greedy_continuations
from contamination.detection.tasks.questions import QuestionSet, make_questions
from contamination.injection.corpus import open_corpus

log = logging.getLogger(__name__)
ACCURACY, ANSWERS = "accuracy", "answers by ROUGE-L recall"


@dataclass(frozen=True)
class Quantity:
    """A number for every unit and model.

    Attributes:
        name: its name in tables.
        units: the units.
        values: the numbers of the units in their order, by the model's name.
        is_score: whether it is a method's score, which ranks members against non-members.
    """

    name: str
    units: AuditUnits
    values: Mapping[str, Scores]
    is_score: bool = False


def make_quantity(
    name: str, tables: Mapping[str, pd.DataFrame], seed: int, *, is_score: bool = False
) -> Quantity:
    """Returns a quantity over the units for which all models have a value.

    Args:
        name: its name in tables.
        tables: a table for each model, by name, with one row per unit: `unit`, `UNITS`, `value`.
        seed: the seed of the draws.
        is_score: see `Quantity`.
    """
    tables_by_unit = [table.dropna(subset="value").set_index("unit") for table in tables.values()]
    first_table = tables_by_unit[0]
    common_units = [
        unit for unit in first_table.index if all(unit in table.index for table in tables_by_unit)
    ]
    unit_rows = first_table.loc[common_units].reset_index()[["unit", *UNITS]]
    values_by_model = {
        model: table.loc[common_units, "value"].to_numpy(np.float64)
        for model, table in zip(tables, tables_by_unit, strict=True)
    }
    return Quantity(name, AuditUnits(unit_rows, seed), values_by_model, is_score)


def score_quantities(
    stage: AuditStage, models: AuditedModels, texts: Texts, chunks: pd.DataFrame, seed: int
) -> Iterator[Quantity]:
    """Yields each method's scores of the ranked chunks, with default hyperparameters."""
    tables = {model.name: _score_table(stage, model, texts) for model in models}
    methods = [set(table["method"]) for table in tables.values()]
    for method_name in sorted(set.intersection(*methods)):
        scored_chunks = {
            model: chunks.merge(
                table[table["method"] == method_name], left_on="chunk", right_on="unit"
            )
            for model, table in tables.items()
        }
        yield make_quantity(method_name, scored_chunks, seed, is_score=True)


def _score_table(stage: AuditStage, model: AuditedModel, texts: Texts) -> pd.DataFrame:
    """Returns unit, method and value (NaN if not ranked), one row per chunk and method."""
    scores = stage.score_texts(texts, f"the chunks of {stage.audit['texts']}", model.node)
    table = open_scores(scores.path).table
    table = table[table["default"]].astype({"example_id": str, "method": str})
    value = table["score"].where(table["ranked"])
    return pd.DataFrame({"unit": table["example_id"], "method": table["method"], "value": value})


def find_score_of_method(scores: Sequence[Quantity], method: str) -> Quantity:
    """Returns the scores of the method that the screen compares.

    Raises:
        DataError: no chunk has a score by this method.
    """
    score_by_method = {score.name: score for score in scores}
    if method not in score_by_method:
        raise DataError(
            f"audit.screen is {method!r}: no chunk has a score by this method. "
            f"{near_names(method, score_by_method)}"
        )
    return score_by_method[method]


def read_corpus_questions(path: str) -> QuestionSet | None:
    """Returns the questions of a corpus folder; None if it is not one, or has no questions."""
    folder = Path(path).expanduser()
    if not is_complete(folder):
        return None
    question_set = make_questions(open_corpus(folder), {})
    return question_set if question_set.questions else None


def answer_quantities(
    stage: AuditStage, models: AuditedModels, corpus_path: str, question_set: QuestionSet, seed: int
) -> list[Quantity]:
    """Returns accuracy, and how much of each right answer the models generate (ROUGE-L recall)."""
    accuracies = {model.name: _accuracy_table(stage, model, corpus_path) for model in models}
    recalls = {
        model.name: _answer_recall_table(stage, model, corpus_path, question_set)
        for model in models
    }
    return [make_quantity(ACCURACY, accuracies, seed), make_quantity(ANSWERS, recalls, seed)]


def _accuracy_table(stage: AuditStage, model: AuditedModel, corpus_path: str) -> pd.DataFrame:
    accuracy_stage = AccuracyStage(
        runs=stage.runs,
        examples=ExamplesConfig(corpus_path),
        model=model.node,
        detection=stage.detection,
    )
    table = accuracy.run(accuracy_stage).table(accuracy.FILE)
    exposed = ~table["member"] | (table["occurrences"] > 0)
    return _unit_table(table[exposed]).assign(value=table["correct"].astype(float))


def _answer_recall_table(
    stage: AuditStage, model: AuditedModel, corpus_path: str, question_set: QuestionSet
) -> pd.DataFrame:
    """Returns the ROUGE-L recall of the right answers by greedy decoding."""
    extraction_stage = ExtractionStage(
        runs=stage.runs,
        examples=ExamplesConfig(corpus_path),
        model=model.node,
        detection=stage.detection,
        extraction=ExtractionConfig(target=ANSWER),
    )
    table = extraction.run(extraction_stage).table(extraction.FILE)
    answers = {
        question.example_id: question.options[question.answer]
        for question in question_set.questions
    }
    recalls = [rouge_l(row.written, answers[row.example_id]).recall for row in table.itertuples()]
    return _unit_table(table).assign(value=recalls)


def _unit_table(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the examples as units, each of them a text."""
    ids, member = table["example_id"].astype(str), table["member"].astype("boolean")
    benchmark = table["benchmark"]
    return pd.DataFrame({"unit": ids, "text_id": ids, "benchmark": benchmark, "member": member})


FIELD = "audit.questions"


@dataclass(frozen=True)
class QuestionFile:
    """The questions of a file.

    Attributes:
        questions: the questions.
        answers: the right answers, in the same order.
        texts: each question with its answer, in the same order.
    """

    questions: Sequence[str]
    answers: Sequence[str]
    texts: Texts

    @property
    def digest(self) -> str:
        """A hash of the questions, answers, ids, labels and benchmarks."""
        return lines_digest(
            json.dumps([question, answer, text.example_id, text.label, text.benchmark])
            for question, answer, text in zip(self.questions, self.answers, self.texts, strict=True)
        )

    @property
    def rows(self) -> pd.DataFrame:
        """One row per question, which is a chunk: chunk, text_id, benchmark, member."""
        rows = [
            (text.example_id, text.example_id, text.benchmark, text.label) for text in self.texts
        ]
        columns = ["chunk", "text_id", "benchmark", "member"]
        return pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})


def read_question_file(path: str, field: str = FIELD) -> QuestionFile:
    """Reads a file of rows with `question`, `answer`, and perhaps `id`, `label` and `benchmark`.

    Args:
        path: the file.
        field: the config field with the path, for errors.

    Raises:
        DataError: a row lacks a question or an answer, or can't be used.
    """
    with rename_field_in_errors(field):
        rows = [*raw_rows(ExamplesConfig(path), Tally("stop", field))]
        questions_and_answers = [_parse_question_and_answer(row, field) for row in rows]
        joined_rows = (
            row._replace(value={**row.value, "text": " ".join(question_and_answer)})
            for row, question_and_answer in zip(rows, questions_and_answers, strict=True)
        )
        source = f"{field} is {path!r}"
        texts = texts_of_rows(joined_rows, Tally("stop", field), source)
    return QuestionFile(
        [question for question, _ in questions_and_answers],
        [answer for _, answer in questions_and_answers],
        texts,
    )


def answer_recall_quantity(
    stage: AuditStage, models: AuditedModels, questions: QuestionFile, seed: int
) -> Quantity:
    """Returns the ROUGE-L recall of each right answer in as many greedily decoded tokens."""
    rows = questions.rows.rename(columns={"chunk": "unit"})
    tables = {
        model.name: rows.assign(value=_recalls_of_file_answers(stage, model, questions))
        for model in models
    }
    return make_quantity(ANSWERS, tables, seed)


def _recalls_of_file_answers(
    stage: AuditStage, model: AuditedModel, questions: QuestionFile
) -> list[float]:
    loaded = LoadedModel(model.source, stage.detection)
    written_ids = greedy_continuations(loaded, _answer_targets(loaded, questions))
    model_answers = [loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in written_ids]
    return [
        rouge_l(model_answer, answer).recall
        for model_answer, answer in zip(model_answers, questions.answers, strict=True)
    ]


def _answer_targets(loaded: LoadedModel, questions: QuestionFile) -> list[Target]:
    """Returns each answer's tokens, with those of its question as the prompt."""
    tokenizer, context = loaded.tokenizer, loaded.source.context
    question_ids = tokenizer(list(questions.questions), verbose=False)["input_ids"]
    text_ids = tokenizer([text.text for text in questions.texts], verbose=False)["input_ids"]
    targets = []
    for text, ids_of_question, ids in zip(questions.texts, question_ids, text_ids, strict=True):
        if context is not None and len(ids) > context:
            raise DataError(
                f"{FIELD}: {text.example_id!r} has {len(ids)} tokens with its answer, more than "
                f"the context of {loaded.source.path}, {context}. Shorten it, or leave it out."
            )
        prompt = max(1, shared_prompt_length(ids_of_question, [ids]))
        targets.append(Target(text, None, QUESTION, ids[:prompt], ids[prompt:]))
    return targets


def _parse_question_and_answer(row: Row, field: str) -> tuple[str, str]:
    question_and_answer = row.value.get("question"), row.value.get("answer")
    if not all(
        isinstance(field_value, str) and not is_blank(field_value)
        for field_value in question_and_answer
    ):
        raise DataError(
            f"{row.where}: {field} needs a `question` and an `answer`, both text; its fields are "
            f"{', '.join(map(str, row.value)) or 'none'}."
        )
    return str(question_and_answer[0]).strip(), str(question_and_answer[1]).strip()
