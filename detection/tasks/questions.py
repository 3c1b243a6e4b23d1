"""What a benchmark's example asks: its text with each option in the answer's place.

The benchmark's YAML names the field with the right answer and where the options come from: fixed
ones, a field of the example, or, where an example has no wrong answers, other questions' answers.
Those are drawn by the example's id, and only from answers that were never inserted: a member's
wrong options are then as new to the model as a non-member's.
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
from contamination.data.text import is_blank
from contamination.injection.corpus import PackedCorpus

ASKED = ("answer_field", "options", "options_field", "drawn_options", "chosen_by")


@dataclass(frozen=True)
class Question:
    """One example as a choice among at least two distinct options.

    Attributes:
        member, occurrences: as the corpus has them.
        options: the options as the answer's field would hold them.
        prompt: the example's text before the answer.
        texts: the example's whole text with each option in the answer's place.
        letter_texts: the same with each option's letter alone; none where they have no letters.
        answer: the place of the right option.
        drawn: whether the wrong ones are other questions' answers.
        chosen_by: what the benchmark's own accuracy is, see `BenchmarkConfig`.
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


@dataclass
class Asked:
    """The questions, and what is not asked: (benchmark, reason) → number of examples."""

    questions: list[Question]
    left_out: Counter[tuple[str, str]]


def ask(corpus: PackedCorpus, given: Mapping[str, BenchmarkConfig]) -> Asked:
    """The corpus's examples as questions, in its order.

    Args:
        corpus: the examples, with the templates that made their texts.
        given: benchmark → what names its options, where this is not what the corpus records.

    Raises:
        ConfigError: a benchmark's answer_field is no field of its examples.
    """
    found = Asked([], Counter())
    for name, rows in corpus.examples.groupby("benchmark", sort=False):
        made = BenchmarkConfig(**corpus.config["benchmark"][name])
        now = given.get(str(name), made)  # its options may be named anew
        config = replace(made, **{field: getattr(now, field) for field in ASKED})
        named = any((config.options, config.options_field, config.drawn_options))
        if config.answer_field is None or not named:
            found.left_out[str(name), "its YAML names no answer_field or no options"] += len(rows)
            continue
        _ask_all(str(name), config, rows, found)
    return found


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of all that is asked and of membership, in any order."""
    return lines_digest(sorted(json.dumps(list(vars(q).values())) for q in questions))


def _ask_all(name: str, config: BenchmarkConfig, rows: pd.DataFrame, found: Asked) -> None:
    """Ask one benchmark's examples; what can't be asked is counted by its reason."""
    values: list[dict[str, str]] = [json.loads(row) for row in rows["fields"]]
    field = str(config.answer_field)
    check_template(name, config.template)  # the corpus's, which may come from elsewhere
    if field not in values[0]:
        raise ConfigError(
            f"benchmark.{name}.answer_field is {field!r}, which the corpus's examples lack. "
            f"{near_names(field, values[0])}"
        )
    inserted = {v[field] for v, member in zip(values, rows["member"], strict=True) if member}
    unseen = sorted({v[field] for v in values} - inserted)
    for row, own in zip(rows.itertuples(), values, strict=True):
        asked = _question(row, own, config, unseen)
        if isinstance(asked, Question):
            found.questions.append(asked)
        else:
            found.left_out[name, asked] += 1


def _question(
    row: Any, own: Mapping[str, str], config: BenchmarkConfig, unseen: Sequence[str]
) -> Question | str:
    """One example's question, or why it can't be asked."""
    field = str(config.answer_field)
    if row.shortened and config.shorten == field:
        return "the text was shortened and its answer cut off"
    if config.template.format(**own) != row.text:
        return "the text is not what its template makes of its fields"
    options, drawn = _options(row.example_id, own, config, unseen)
    if own[field] not in options:
        return "the right answer is not among the options"
    if len(options) < 2:
        return "it has fewer than 2 distinct options"
    if any(map(is_blank, options)):
        return "one of its options is empty"
    letters = _letters(options)
    if config.chosen_by == "letter" and not letters:
        return "its options have no letters, and chosen_by is letter"

    def texts(answers: Iterable[str]) -> tuple[str, ...]:
        return tuple(config.template.format(**{**own, field: answer}) for answer in answers)

    first, second = texts("ab")  # they differ from the answer on
    return Question(
        example_id=str(row.example_id),
        benchmark=str(row.benchmark),
        member=bool(row.member),
        occurrences=int(row.occurrences),
        options=options,
        prompt=first[: shared_start(first, second)],
        texts=texts(options),
        letter_texts=texts(letters),
        answer=options.index(own[field]),
        drawn=drawn,
        chosen_by=config.chosen_by,
    )


def shared_start(*sequences: Sequence[object]) -> int:
    """How many items all sequences begin with."""
    columns = zip(*sequences, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _letters(options: Sequence[str]) -> Sequence[str]:
    """The letters of "A. …", "B. …" and so on; none where the options are not named so."""
    letters = ascii_uppercase[: len(options)]
    named = zip(options, letters, strict=False)
    all_named = len(letters) == len(options) and all(o.startswith(f"{x}. ") for o, x in named)
    return letters if all_named else ""


def _options(
    example_id: str, own: Mapping[str, str], config: BenchmarkConfig, unseen: Sequence[str]
) -> tuple[tuple[str, ...], bool]:
    """The distinct options, and whether they were drawn."""
    if config.options:
        return tuple(dict.fromkeys(config.options)), False
    if config.options_field in own:
        lines = (line.strip() for line in own[str(config.options_field)].splitlines())
        return tuple(dict.fromkeys(line for line in lines if line)), False
    if config.drawn_options is None:
        return (), False
    right = own[str(config.answer_field)]

    def shuffled(purpose: str, options: Iterable[str]) -> list[str]:
        return sorted(options, key=lambda o: (unit_hash(f"{example_id} {purpose} {o}"), o))

    others = shuffled("draw", (o for o in unseen if o != right))[: config.drawn_options - 1]
    return tuple(shuffled("order", [right, *others])), True


QUESTION = ("example_id", "benchmark", "member", "occurrences", "options", "answer", "chosen_by")


def make_table(
    questions: Sequence[Question], found: Sequence[Sequence[np.ndarray[Any, Any]]]
) -> pd.DataFrame:
    """One row an example: who it is, its options, their log-likelihoods and what was chosen.

    Args:
        questions: what was asked.
        found: for each question the log-probabilities of each option's tokens, then of each
            letter's.

    `loglikelihoods` are sums in nats over the `tokens` of each option, `letter_loglikelihoods`
    those of the letters. `chosen_<by>` is the place of the first option with the highest score, for
    each of `CHOSEN_BY` (missing: the options have no letters). `chosen` and `correct` are by the
    benchmark's own `chosen_by`.
    """
    table = pd.DataFrame([_row(q, tokens) for q, tokens in zip(questions, found, strict=True)])
    return table.astype({f"chosen_{by}": "Int64" for by in CHOSEN_BY})


def _row(q: Question, found: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    sums, count = [float(one.sum()) for one in found], len(q.options)
    tokens = [len(one) for one in found[:count]]
    by = option_scores(q.options, sums[:count], tokens, sums[count:])
    chosen = {name: int(np.argmax(one)) if len(one) else None for name, one in by.items()}
    return {
        **{name: getattr(q, name) for name in QUESTION},
        "chosen": chosen[q.chosen_by],
        "correct": chosen[q.chosen_by] == q.answer,
        "loglikelihoods": sums[:count],
        "letter_loglikelihoods": sums[count:],
        "tokens": tokens,
        "drawn_options": q.drawn,
        **{f"chosen_{name}": place for name, place in chosen.items()},
    }


def option_scores(
    options: Sequence[str], sums: Sequence[float], tokens: Sequence[int], letters: Sequence[float]
) -> dict[str, np.ndarray[Any, Any]]:
    """Each option's score, higher is likelier, by the names of `CHOSEN_BY`.

    Args:
        options: their texts.
        sums: the log-likelihood of each, in nats.
        tokens: how many tokens each has.
        letters: the log-likelihood of each one's letter; none where there are no letters.
    """
    total = np.array(sums)
    return {
        "sum": total,
        "token": total / tokens,
        "character": total / [len(option) for option in options],
        "byte": total / [len(option.encode()) for option in options],
        "letter": np.array(letters),
    }
