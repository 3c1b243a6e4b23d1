"""Questions with right and wrong answers, and how likely a model finds each answer.

They are a corpus's own, whose wrong answers are the other options, or rows in TOFU's layout (Maini
et al. 2024): `question`, `answer`, and perhaps `paraphrased_answer` and `perturbed_answer`, each a
text or a list of texts. The latter are wrong answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.inputs import AuditedModel, rename_field_in_errors
from contamination.audits.unlearning.quantities import QuestionFile, read_question_file
from contamination.audits.unlearning.truth_ratio import truth_ratio
from contamination.core.errors import DataError
from contamination.core.statistics.bootstrap import Scores
from contamination.data.config import ExamplesConfig
from contamination.data.examples import lines_digest
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import raw_rows
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.tasks.accuracy import shared_prompt_length
from contamination.detection.tasks.questions import QuestionSet
from contamination.detection.workers import run_slices, uses_several_processes

ANSWER, PARAPHRASE, WRONG = "answer", "paraphrased_answer", "perturbed_answer"


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question with its answers; `texts` are the question with each of them.

    Attributes:
        unit: its id.
        benchmark: its benchmark.
        member: whether it is to be forgotten; None: unknown.
        prompt: the text before the answer.
        answer: the text with the right answer.
        paraphrase: the text with the right answer in other words; None: there is none.
        wrong: the texts with wrong answers.
    """

    unit: str
    benchmark: str
    member: bool | None
    prompt: str
    answer: str
    paraphrase: str | None
    wrong: Sequence[str]

    @property
    def texts(self) -> list[str]:
        """All texts: the answer's, the paraphrase's if there is one, and the wrong ones."""
        paraphrase = [] if self.paraphrase is None else [self.paraphrase]
        return [self.answer, *paraphrase, *self.wrong]


@dataclass(frozen=True)
class AnswerSet:
    """Questions with answers, and the same as a question file if they came from one."""

    questions: Sequence[AnsweredQuestion]
    file: QuestionFile | None = None

    @property
    def has_wrong_answers(self) -> bool:
        """Whether each question has a wrong answer."""
        return all(question.wrong for question in self.questions)

    @property
    def digest(self) -> str:
        """A hash of all texts with their ids and labels."""
        return lines_digest(
            json.dumps([q.unit, q.benchmark, q.member, q.prompt, *q.texts]) for q in self.questions
        )

    @property
    def is_multiple_choice(self) -> bool:
        """Whether no question has a paraphrase, as TOFU's real authors and world facts."""
        return all(question.paraphrase is None for question in self.questions)


def corpus_answer_set(asked: QuestionSet) -> AnswerSet:
    """Returns a corpus's own questions; the wrong answers are the other options."""
    questions = [
        AnsweredQuestion(
            question.example_id,
            question.benchmark,
            question.member if question.occurrences or not question.member else None,
            question.prompt.rstrip(),
            question.texts[question.answer],
            None,
            [text for n, text in enumerate(question.texts) if n != question.answer],
        )
        for question in asked.questions
    ]
    return AnswerSet([q for q in questions if q.member is not None])


def read_answer_set(field: str, path: str) -> AnswerSet:
    """Reads a file of questions with answers.

    Raises:
        DataError: a row lacks a question or an answer, or an answer is no text.
    """
    file = read_question_file(path, field)
    with rename_field_in_errors(field):
        rows = [*raw_rows(ExamplesConfig(path), Tally("stop", field))]
    questions = []
    for row, question, answer, text in zip(
        rows, file.questions, file.answers, file.texts, strict=True
    ):
        paraphrases, wrong = (_texts_of(row, name, field) for name in (PARAPHRASE, WRONG))
        if answer in wrong:
            raise DataError(
                f"{row.where}: {WRONG} of {field} has {answer!r}, which is the right answer. Give "
                "wrong answers alone."
            )
        joined = partial(" ".join)
        questions.append(
            AnsweredQuestion(
                text.example_id,
                text.benchmark,
                text.label,
                question,
                joined([question, answer]),
                joined([question, paraphrases[0]]) if paraphrases else None,
                [joined([question, other]) for other in wrong],
            )
        )
    return AnswerSet(questions, file)


def read_utility_set(name: str, path: str) -> AnswerSet:
    """Reads a file of questions about other things.

    Raises:
        DataError: a question has no wrong answer, or see `read_answer_set`.
    """
    field = f"audit.utility.{name}"
    answer_set = read_answer_set(field, path)
    if not answer_set.has_wrong_answers:
        unit = next(q.unit for q in answer_set.questions if not q.wrong)
        raise DataError(
            f"{field} is {path!r}: {unit} has no {WRONG}, with which the right answer is compared. "
            "Give each question a list of wrong answers."
        )
    return answer_set


def _texts_of(row: Row, name: str, field: str) -> list[str]:
    """Returns a row's texts in a column, stripped; none where it lacks the column."""
    value = row.value.get(name)
    values = [] if value is None else value if isinstance(value, Sequence) else [value]
    values = [values] if isinstance(values, str) else [*values]
    if not all(isinstance(text, str) and text.strip() for text in values):
        raise DataError(
            f"{row.where}: {name} of {field} is {value!r}: give a text, or a list of texts."
        )
    return [text.strip() for text in values]


@dataclass(frozen=True)
class AnswerStats:
    """What a model finds of a question's answers.

    Attributes:
        answer: the mean log-probability per token of the right answer, in nats.
        reworded: that of its paraphrase; without one, that of the answer.
        wrong: that of each wrong answer.
        is_greedy: whether each token of the right answer is the most probable one.
    """

    answer: float
    reworded: float
    wrong: Scores
    is_greedy: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def truth_ratio(self) -> float:
        """R; NaN without a wrong answer."""
        return truth_ratio(self.reworded, self.wrong)


def read_answers(
    stage: AuditStage, model: AuditedModel, questions: Sequence[AnsweredQuestion]
) -> list[AnswerStats]:
    """Returns what a model finds of each question's answers.

    Raises:
        DataError: a question with an answer is longer than the model's context.
    """
    from contamination.detection.forward.batches import run_sequences  # imports torch

    loaded, settings = LoadedModel(model.source, stage.detection), stage.detection
    tokenizer, context = loaded.tokenizer, model.source.context
    rows, prompts = [], []
    for question in questions:
        prompt, *texts = tokenizer([question.prompt, *question.texts], verbose=False)["input_ids"]
        longest = max(map(len, texts))
        if context is not None and longest > context:
            raise DataError(
                f"{question.unit}: the question has {longest} tokens with its longest answer, more "
                f"than the context of {model.source.path}, {context}. Shorten it, or leave it out."
            )
        prompts.append(max(1, shared_prompt_length(prompt, texts)))
        rows += texts
    names = [f"{q.unit}, answer {n}" for q in questions for n in range(len(q.texts))]
    task = partial(run_sequences, batch_tokens=settings.batch_tokens)
    title = model.source.bar_title("answers")
    if uses_several_processes(settings):
        stats = run_slices(task, model.source, settings, rows, names, title=title)
    else:
        stats = task(model.source.load(settings), rows, names, progress=title)
    pairs = iter(zip(rows, stats, strict=True))
    return [
        _answer_stats(question, start, [next(pairs) for _ in question.texts])
        for question, start in zip(questions, prompts, strict=True)
    ]


def _answer_stats(
    question: AnsweredQuestion, start: int, pairs: Sequence[tuple[Sequence[int], Any]]
) -> AnswerStats:
    """Returns the statistics of a question's answers, whose tokens are those from `start` on."""
    means = np.array([stats.logprob[start - 1 :].astype(np.float64).mean() for _, stats in pairs])
    ids, stats = pairs[0]
    n_right = 1 if question.paraphrase is None else 2
    is_greedy = stats.top_id[start - 1 :] == np.array(ids[start:])
    return AnswerStats(float(means[0]), float(means[n_right - 1]), means[n_right:], is_greedy)
