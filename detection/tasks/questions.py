"""Questions: the text of a benchmark's example with each option in the answer's place.

The benchmark's YAML names the field with the right answer and the source of the options: a fixed
list, a field of the example, or, for examples without wrong answers, other questions' answers.
Those are drawn by the example's id, and only from answers that were never inserted, so that a
member's wrong options are as new to the model as a non-member's. A benchmark with accepted answers
and without options is answered freely: the model writes the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from string import ascii_uppercase
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.errors import ConfigError, near_names
from contamination.core.seeds import unit_hash
from contamination.data.config import CHOSEN_BY, BenchmarkConfig
from contamination.data.examples import lines_digest
from contamination.data.templates import check_template
from contamination.data.words import is_blank
from contamination.detection.tasks.exact_match import is_exact_match
from contamination.injection.corpus import PackedCorpus

QUESTION_FIELDS = (
    *("answer_field", "options", "options_field", "drawn_options", "chosen_by"),
    "accepted_field",
)
WRITTEN = "written"
"""The criterion of free answers, in place of one of `CHOSEN_BY`."""


@dataclass(frozen=True)
class Question:
    """One example as a choice among at least two distinct options, or with a free answer.

    Attributes:
        member, occurrences: as recorded in the corpus.
        options: the options as values of the answer's field; of a free answer the right one alone.
        prompt: the example's text before the answer.
        texts: the example's whole text with each option in the answer's place.
        letter_texts: the same with only each option's letter; empty if options have no letters.
        answer: the index of the right option.
        drawn: whether the wrong options are other questions' answers.
        chosen_by: the benchmark's own criterion of choice, see `BenchmarkConfig`; WRITTEN for a
            free answer.
        accepted: the accepted free answers; empty if there are options.
    """

    example_id: str
    benchmark: str
    member: bool
    occurrences: int
    options: tuple[str, ...]
    prompt: str
    texts: tuple[str, ...]
    letter_texts: tuple[str, ...]
    answer: int
    drawn: bool
    chosen_by: str
    accepted: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether the answer is written, and not chosen."""
        return self.chosen_by == WRITTEN


LeftOut = Counter[tuple[str, str]]
"""Numbers of examples that are left out, by (benchmark, reason)."""


@dataclass
class QuestionSet:
    """The questions, and the numbers of examples without one."""

    questions: list[Question]
    left_out: LeftOut


def left_out_rows(left_out: LeftOut) -> list[dict[str, object]]:
    """Returns the numbers as the manifest records them."""
    return [
        {"benchmark": benchmark, "reason": reason, "examples": count}
        for (benchmark, reason), count in left_out.items()
    ]


def format_left_out(left_out: LeftOut) -> str:
    """Returns the numbers in words, for an error."""
    return "; ".join(f"{name}: {reason} ({count})" for (name, reason), count in left_out.items())


def make_questions(corpus: PackedCorpus, overrides: Mapping[str, BenchmarkConfig]) -> QuestionSet:
    """Returns the corpus's examples as questions, in its order.

    Args:
        corpus: the examples, with the templates that made their texts.
        overrides: by benchmark, a config whose fields of options replace the recorded ones.

    Raises:
        ConfigError: a benchmark's answer_field is no field of its examples.
    """
    question_set = QuestionSet([], Counter())
    for benchmark, rows in corpus.examples.groupby("benchmark", sort=False):
        recorded = BenchmarkConfig(**corpus.config["benchmark"][benchmark])
        override = overrides.get(str(benchmark), recorded)
        options = {field: getattr(override, field) for field in QUESTION_FIELDS}
        config = replace(recorded, **options)
        has_options = any((config.options, config.options_field, config.drawn_options))
        if config.answer_field is None or not (has_options or config.accepted_field):
            reason = "its YAML names no answer_field or no options"
            question_set.left_out[str(benchmark), reason] += len(rows)
            continue
        _add_benchmark_questions(str(benchmark), config, rows, question_set)
    return question_set


def questions_digest(questions: Sequence[Question]) -> str:
    """Returns a hash of the questions, with membership, independent of their order."""
    rows = ([v for k, v in vars(q).items() if k != "accepted" or v] for q in questions)
    return lines_digest(sorted(map(json.dumps, rows)))


def _add_benchmark_questions(
    benchmark: str, config: BenchmarkConfig, rows: pd.DataFrame, question_set: QuestionSet
) -> None:
    fields_by_row: list[dict[str, str]] = [json.loads(row) for row in rows["fields"]]
    field = str(config.answer_field)
    check_template(benchmark, config.template)  # the corpus's, which may come from elsewhere
    if field not in fields_by_row[0]:
        raise ConfigError(
            f"benchmark.{benchmark}.answer_field is {field!r}, which the corpus's examples lack. "
            f"{near_names(field, fields_by_row[0])}"
        )
    answers = [row_fields[field] for row_fields in fields_by_row]
    inserted = {a for a, copies in zip(answers, rows["occurrences"], strict=True) if copies}
    unseen_answers = sorted({*answers} - inserted)
    for row, fields in zip(rows.itertuples(), fields_by_row, strict=True):
        question = _question_or_reason(row, fields, config, unseen_answers)
        if isinstance(question, Question):
            question_set.questions.append(question)
        else:
            question_set.left_out[benchmark, question] += 1


def _question_or_reason(
    row: Any, fields: Mapping[str, str], config: BenchmarkConfig, unseen_answers: Sequence[str]
) -> Question | str:
    field = str(config.answer_field)
    if row.shortened and config.shorten == field:
        return "the text was shortened and its answer cut off"
    if config.template.format(**fields) != row.text:
        return "the text is not what its template makes of its fields"
    options, drawn = _choose_options(row.example_id, fields, config, unseen_answers)
    accepted: tuple[str, ...] = ()
    chosen_by = config.chosen_by
    if not options and config.accepted_field in fields:
        accepted, options = _lines(fields[str(config.accepted_field)]), (fields[field],)
        chosen_by = WRITTEN
    if fields[field] not in options:
        return "the right answer is not among the options"
    if len(options) < 2 and not accepted:
        return "it has fewer than 2 distinct options"
    if any(map(is_blank, options)):
        return "one of its options is empty"
    letters = () if accepted else _leading_option_letters(options)
    if chosen_by == "letter" and not letters:
        return "its options have no letters, and chosen_by is letter"

    def fill_template(answers: Iterable[str]) -> tuple[str, ...]:
        return tuple(config.template.format(**{**fields, field: answer}) for answer in answers)

    text_with_a, text_with_b = fill_template("ab")  # which differ from the answer on
    return Question(
        example_id=str(row.example_id),
        benchmark=str(row.benchmark),
        member=bool(row.member),
        occurrences=int(row.occurrences),
        options=options,
        prompt=text_with_a[: common_prefix_length(text_with_a, text_with_b)],
        texts=fill_template(options),
        letter_texts=fill_template(letters),
        answer=options.index(fields[field]),
        drawn=drawn,
        chosen_by=chosen_by,
        accepted=accepted,
    )


def common_prefix_length(*sequences: Sequence[object]) -> int:
    """Returns the length of the sequences' common prefix."""
    columns = zip(*sequences, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _leading_option_letters(options: Sequence[str]) -> Sequence[str]:
    """Returns the letters if the options begin with "A. ", "B. " and so on, else none."""
    letters = ascii_uppercase[: len(options)]
    if len(letters) < len(options):
        return ""
    pairs = zip(options, letters, strict=True)
    return letters if all(option.startswith(f"{x}. ") for option, x in pairs) else ""


def _lines(text: str) -> tuple[str, ...]:
    """Returns the distinct lines that are not blank."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def _choose_options(
    example_id: str,
    fields: Mapping[str, str],
    config: BenchmarkConfig,
    unseen_answers: Sequence[str],
) -> tuple[tuple[str, ...], bool]:
    """Returns the distinct options, and whether they were drawn."""
    if config.options:
        return tuple(dict.fromkeys(config.options)), False
    if config.options_field in fields:
        return _lines(fields[str(config.options_field)]), False
    if config.drawn_options is None:
        return (), False
    right_answer = fields[str(config.answer_field)]

    def order_by_hash(purpose: str, options: Iterable[str]) -> list[str]:
        return sorted(options, key=lambda o: (unit_hash(f"{example_id} {purpose} {o}"), o))

    candidates = [answer for answer in unseen_answers if answer != right_answer]
    wrong_answers = order_by_hash("draw", candidates)[: config.drawn_options - 1]
    return tuple(order_by_hash("order", [right_answer, *wrong_answers])), True


COLUMNS = ("example_id", "benchmark", "member", "occurrences", "options", "answer", "chosen_by")


def make_answer_table(
    questions: Sequence[Question],
    logprobs: Sequence[Sequence[np.ndarray[Any, Any]]],
    written: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Returns one row per example: its options, their log-likelihoods and the choices.

    `loglikelihoods` are sums in nats over the `tokens` of each option, `letter_loglikelihoods`
    those of the letters. `chosen_<by>` is the index of the first option with the highest score, for
    each of `CHOSEN_BY` (missing if the options have no letters). `chosen` and `correct` are by the
    benchmark's own `chosen_by`. Of a free answer, `written` is what the model wrote, `correct`
    whether it equals an accepted answer (`exact_match`), and nothing is chosen.

    Args:
        questions: the questions.
        logprobs: for each question the log-probabilities of each option's tokens, then of each
            letter's.
        written: the free answers by the question's example_id.
    """
    pairs = zip(questions, logprobs, strict=True)
    table = pd.DataFrame([_answer_row(question, rows, written or {}) for question, rows in pairs])
    return table.astype({name: "Int64" for name in ("chosen", *(f"chosen_{b}" for b in CHOSEN_BY))})


def _answer_row(
    question: Question, logprobs: Sequence[np.ndarray[Any, Any]], written: Mapping[str, str]
) -> dict[str, Any]:
    sums, count = [float(tokens.sum()) for tokens in logprobs], len(question.options)
    lengths = [len(tokens) for tokens in logprobs[:count]]
    scores = option_scores_by_criterion(question.options, sums[:count], lengths, sums[count:])
    is_free = question.is_free
    chosen = {
        by: int(np.argmax(row)) if len(row) and not is_free else None for by, row in scores.items()
    }
    answer = written.get(question.example_id)
    return {
        **{name: getattr(question, name) for name in COLUMNS},
        "chosen": chosen.get(question.chosen_by),
        "correct": (
            is_exact_match(str(answer), question.accepted)
            if is_free
            else chosen[question.chosen_by] == question.answer
        ),
        "loglikelihoods": sums[:count],
        "letter_loglikelihoods": sums[count:],
        "tokens": lengths,
        "drawn_options": question.drawn,
        "written": answer,
        **{f"chosen_{by}": index for by, index in chosen.items()},
    }


def option_scores_by_criterion(
    options: Sequence[str], sums: Sequence[float], tokens: Sequence[int], letters: Sequence[float]
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns each option's score by each criterion of `CHOSEN_BY`; higher is likelier.

    Args:
        options: their texts.
        sums: the log-likelihood of each, in nats.
        tokens: the number of tokens of each.
        letters: the log-likelihood of each one's letter; empty if there are no letters.
    """
    total = np.array(sums)
    return {
        "sum": total,
        "token": total / tokens,
        "character": total / [len(option) for option in options],
        "byte": total / [len(option.encode()) for option in options],
        "letter": np.array(letters),
    }


def chance_levels(table: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Returns each row's probability of a right guess: 1 / options, and 0 for a free answer."""
    options = table["options"].map(len).to_numpy(np.float64)
    return np.where(table["chosen_by"] == WRITTEN, 0.0, 1 / options)


def answer_margins(table: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Returns how far the right answer is ahead, in nats, shape (rows,).

    It is the right option's score by the benchmark's own criterion less the best wrong one's, so
    that it is above 0 where the right option is chosen. By `sum` and `letter` the scores are
    log-probabilities; by the others they are log-probabilities per unit of length. For a free
    answer it is the log-probability of the right answer.
    """
    return np.array([_answer_margin(row) for row in table.itertuples()], np.float64)


def _answer_margin(row: Any) -> float:
    lists = row.loglikelihoods, row.tokens, row.letter_loglikelihoods
    if row.chosen_by == WRITTEN:
        return float(row.loglikelihoods[0])
    scores = option_scores_by_criterion(row.options, *lists)[row.chosen_by]
    return float(scores[row.answer] - np.delete(scores, row.answer).max())
