"""The forms in which an item of a benchmark leaks into a document, as pure functions.

Verbatim and reworded leaks are the text itself and a rewording (`data.perturbation`).
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

import numpy as np

from contamination.core.errors import ConfigError, DataError
from contamination.core.seeds import derive_seed
from contamination.data.config import BenchmarkConfig
from contamination.data.words import word_spans
from contamination.injection.config import (
    ANSWER_FORM,
    EMBEDDED,
    LINE_FORMS,
    QUESTION_FORM,
    REWRAPPED,
    WITH_OPTIONS_FORM,
    WITHOUT_OPTIONS_FORM,
    LeakConfig,
)

QUESTION, OPTIONS, ANSWER = PARTS = ("question", "options", "answer")
PARTS_OF_FORM = {
    QUESTION_FORM: (QUESTION,),
    WITH_OPTIONS_FORM: (QUESTION, OPTIONS),
    ANSWER_FORM: (ANSWER,),
    WITHOUT_OPTIONS_FORM: (QUESTION, ANSWER),
}
NEEDED_PARTS = {
    QUESTION_FORM: (QUESTION, ANSWER),
    WITH_OPTIONS_FORM: PARTS,
    ANSWER_FORM: (QUESTION, ANSWER),
    WITHOUT_OPTIONS_FORM: PARTS,
}
"""The parts that a form must be able to tell apart."""


def surrounded_text(
    config: LeakConfig, text: str, filler: Sequence[str], seed: int, key: object
) -> str:
    """Returns a text in new lines or within other text, where the form is one of these.

    Args:
        config: the form.
        text: the text of the item, or some of its lines, perhaps reworded.
        filler: other documents; see `embed`.
        seed: the seed of random draws.
        key: the text's own key for them.

    Raises:
        DataError: there are too few other documents.
    """
    if config.form == REWRAPPED:
        return rewrap(text, config.words_per_line)
    if config.form == EMBEDDED:
        return embed(text, filler, config.times, seed, key)
    return text


def rewrap(text: str, words_per_line: int = 8) -> str:
    """Returns the text's words in lines of `words_per_line` words."""
    words = text.split()
    lines = (
        words[start : start + words_per_line] for start in range(0, len(words), words_per_line)
    )
    return "\n".join(" ".join(line) for line in lines)


def embed(
    text: str, filler: Sequence[str], times: float, seed: int, key: object, separator: str = "\n\n"
) -> str:
    """Returns the text within `times` as many words of other text.

    Args:
        text: the text.
        filler: other documents; their words, in order, surround the text. Reading begins at a
            random document and continues with the first one after the last.
        times: the number of words of other text, divided by that of the text, at least 0. The
            other text is divided at a random word.
        seed: the seed of the random draws.
        key: the text's own key for the draws, which depend on `seed` and `key` alone.
        separator: the text before and after the item.

    Raises:
        DataError: the other documents have too few words.
    """
    wanted_words = round(times * len(list(word_spans(text))))
    rng = np.random.default_rng(derive_seed(seed, "embed", key))
    parts: list[str] = []
    missing_words = wanted_words
    first = int(rng.integers(len(filler))) if filler else 0
    for document in [*filler[first:], *filler[:first]]:
        if missing_words <= 0:
            break
        spans = list(word_spans(document))[:missing_words]
        missing_words -= len(spans)
        parts.append(document[spans[0][0] : spans[-1][1]] if spans else "")
    if missing_words > 0:
        raise DataError(
            f"the other documents have {missing_words} words too few to surround {key} with "
            f"{wanted_words} words: give more of them, or lower leak.times."
        )
    other = "\n\n".join(part for part in parts if part)
    spans = list(word_spans(other))
    place = int(rng.integers(len(spans) + 1))
    cut = spans[place][0] if place < len(spans) else len(other)
    before, after = other[:cut].rstrip(), other[cut:]
    return separator.join(part for part in (before, text, after) if part)


def leaked_lines(
    fields: Mapping[str, str], benchmark: str, config: BenchmarkConfig, form: str
) -> str:
    """Returns the lines of an item's text that a form has; all of them unless it is a line form.

    A line of the template belongs to the answer if it has the answer's field, to the options if it
    has theirs, and otherwise to the question.

    Args:
        fields: the item's fields.
        benchmark: the benchmark's name, for errors.
        config: the benchmark, with its template.
        form: the form.

    Raises:
        ConfigError: the template has no line of a part that the form is about.
    """
    if form not in LINE_FORMS:
        return config.template.format(**fields)
    lines: dict[str, list[str]] = {part: [] for part in PARTS}
    chosen_lines = []
    for line in config.template.split("\n"):
        named = {name for _, name, *_ in string.Formatter().parse(line) if name}
        part = (
            ANSWER
            if config.answer_field in named
            else OPTIONS
            if config.options_field in named
            else QUESTION
        )
        lines[part].append(line)
        chosen_lines += [line] * (part in PARTS_OF_FORM[form])
    missing = [part for part in NEEDED_PARTS[form] if not lines[part]]
    if missing:
        raise ConfigError(
            f"leak.form is {form!r}: the template of benchmark {benchmark} has no line of the "
            f"{' and '.join(missing)} alone. Choose another form or other benchmarks, or name "
            f"benchmark.{benchmark}.answer_field and options_field."
        )
    return "\n".join(chosen_lines).format(**fields)
