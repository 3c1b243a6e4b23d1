"""What a benchmark's example asks: its text with each option in the answer's place.

The benchmark's YAML names the field with the right answer and where the options come from: fixed
ones, a field of the example, or, where an example has no wrong answers, other questions' answers.
Those are drawn by the example's id, and only from answers that were never inserted: a member's
wrong options are then as new to the model as a non-member's.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd

from core.errors import ConfigError, near_names
from core.seeds import unit_hash
from injection import PackedCorpus
from injection.config import BenchmarkConfig

ASKED = ("answer_field", "options", "options_field", "drawn_options")


@dataclass(frozen=True)
class Question:
    """One example as a choice among at least two distinct options.

    Attributes:
        member, occurrences: as the corpus has them.
        options: the options as the answer's field would hold them.
        texts: the example's whole text with each option in the answer's place.
        answer: the place of the right option.
        drawn: whether the wrong ones are other questions' answers.
    """

    example_id: str
    benchmark: str
    member: bool
    occurrences: int
    options: tuple[str, ...]
    texts: tuple[str, ...]
    answer: int
    drawn: bool


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
        config = _config(corpus, str(name), given)
        if config.answer_field is None or not _has_options(config):
            found.left_out[str(name), "its YAML names no answer_field or no options"] += len(rows)
            continue
        _ask_all(str(name), config, rows, found)
    return found


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of all that is asked and of membership, in any order."""
    lines = sorted(json.dumps([getattr(q, f.name) for f in fields(q)]) for q in questions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _config(
    corpus: PackedCorpus, name: str, given: Mapping[str, BenchmarkConfig]
) -> BenchmarkConfig:
    """The benchmark as the corpus was made from it, its options as they are named now."""
    made = BenchmarkConfig(**corpus.config["benchmark"][name])
    now = given.get(name, made)
    return replace(made, **{field: getattr(now, field) for field in ASKED})


def _has_options(config: BenchmarkConfig) -> bool:
    return any((config.options, config.options_field, config.drawn_options))


def _ask_all(name: str, config: BenchmarkConfig, rows: pd.DataFrame, found: Asked) -> None:
    """Ask one benchmark's examples; what can't be asked is counted by its reason."""
    values: list[dict[str, str]] = [json.loads(row) for row in rows["fields"]]
    field = str(config.answer_field)
    if field not in values[0]:
        raise ConfigError(
            f"benchmark.{name}.answer_field is {field!r}, which the corpus's examples lack. "
            f"{near_names(field, values[0])}"
        )
    answers = {kind: {v[field] for v, m in zip(values, rows["member"], strict=True) if m == kind}
               for kind in (True, False)}  # fmt: skip
    unseen = sorted(answers[False] - answers[True])
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
    texts = tuple(config.template.format(**{**own, field: option}) for option in options)
    return Question(
        str(row.example_id), str(row.benchmark), bool(row.member), int(row.occurrences), options,
        texts, options.index(own[field]), drawn,
    )  # fmt: skip


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
