"""Questions of a file, and how much of the right answers each model writes.

Shi et al. (2024, section 7.2) ask about what was to be forgotten, screen question and answer as one
text, and compare answers with the right ones by ROUGE-L's recall.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.inputs import AuditedModel, AuditedModels, errors_naming
from contamination.audits.unlearning.quantities import ANSWERS, Quantity, make_quantity
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.errors import DataError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import lines_digest, texts_of
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import raw_rows
from contamination.data.text import is_blank
from contamination.data.texts import Texts
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.tasks.accuracy import prompt_tokens
from contamination.detection.tasks.extraction import QUESTION, Target, written

FIELD = "audit.questions"


@dataclass(frozen=True)
class QuestionFile:
    """The questions of a file.

    Attributes:
        questions: the questions.
        answers: their answers, in the same order.
        texts: question and answer together, in the same order.
    """

    questions: Sequence[str]
    answers: Sequence[str]
    texts: Texts

    @property
    def digest(self) -> str:
        """A hash of questions, answers, ids, labels and benchmarks."""
        return lines_digest(
            json.dumps([question, answer, text.example_id, text.label, text.benchmark])
            for question, answer, text in zip(self.questions, self.answers, self.texts, strict=True)
        )

    @property
    def rows(self) -> pd.DataFrame:
        """A row per question, each a chunk of its own: chunk, text_id, benchmark, member."""
        rows = [
            (text.example_id, text.example_id, text.benchmark, text.label) for text in self.texts
        ]
        columns = ["chunk", "text_id", "benchmark", "member"]
        return pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})


def read_questions(path: str) -> QuestionFile:
    """Read a file of rows with `question`, `answer`, and perhaps `id`, `label` and `benchmark`.

    Raises:
        DataError: a row lacks a question or an answer, or can't be used.
    """
    with errors_naming(FIELD):
        rows = [*raw_rows(ExamplesConfig(path), Tally("stop", FIELD))]
        pairs = [_question_and_answer(row) for row in rows]
        joined = (
            row._replace(value={**row.value, "text": " ".join(pair)})
            for row, pair in zip(rows, pairs, strict=True)
        )
        source = f"{FIELD} is {path!r}"
        texts = texts_of(joined, Tally("stop", FIELD), source)
    return QuestionFile([q for q, _ in pairs], [a for _, a in pairs], texts)


def answer_recall(
    stage: AuditStage, models: AuditedModels, questions: QuestionFile, seed: int
) -> Quantity:
    """ROUGE-L's recall of each right answer in as many tokens of greedy decoding."""
    rows = questions.rows.rename(columns={"chunk": "unit"})
    tables = {model.name: rows.assign(value=_recalls(stage, model, questions)) for model in models}
    return make_quantity(ANSWERS, tables, seed)


def _recalls(stage: AuditStage, model: AuditedModel, questions: QuestionFile) -> list[float]:
    loaded = LoadedModel(model.source, stage.detection)
    written_ids = written(loaded, _targets(loaded, questions))
    written_answers = [
        loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in written_ids
    ]
    return [
        rouge_l(written_answer, answer).recall
        for written_answer, answer in zip(written_answers, questions.answers, strict=True)
    ]


def _targets(loaded: LoadedModel, questions: QuestionFile) -> list[Target]:
    """Each answer's tokens, after those of its question."""
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
        prompt = max(1, prompt_tokens(ids_of_question, [ids]))
        targets.append(Target(text, None, QUESTION, ids[:prompt], ids[prompt:]))
    return targets


def _question_and_answer(row: Row) -> tuple[str, str]:
    pair = row.value.get("question"), row.value.get("answer")
    if not all(isinstance(value, str) and not is_blank(value) for value in pair):
        raise DataError(
            f"{row.where}: {FIELD} needs a `question` and an `answer`, both text; its fields are "
            f"{', '.join(map(str, row.value)) or 'none'}."
        )
    return str(pair[0]).strip(), str(pair[1]).strip()
