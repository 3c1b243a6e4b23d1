"""Wrappers around sources of rows that add the columns that templates need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from contamination.core.errors import ConfigError
from contamination.data.readers import RowSource
from contamination.data.readers.files import value_at
from contamination.data.readers.rows import Row, Tally
from contamination.data.words import is_blank


@dataclass(frozen=True)
class Chain:
    """Reads several sources in order."""

    sources: Sequence[RowSource]

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows."""
        for source in self.sources:
            yield from source.rows(tally)


@dataclass(frozen=True)
class Extract:
    """Adds the named groups of a regular expression that is searched in one field."""

    source: RowSource
    field: str
    pattern: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(
                f"rows.pattern is {self.pattern!r}: it is not a regular expression ({error})."
            ) from error

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows, with the groups as additional columns."""
        pattern = re.compile(self.pattern, re.DOTALL)
        for row in self.source.rows(tally):
            value = value_at(row, self.field, tally)
            match = None if value is None else pattern.search(str(value))
            if match is not None:
                yield _with_columns(row, **match.groupdict())
            elif value is not None:
                detail = f"{self.field!r} does not match the source's pattern {self.pattern!r}"
                tally.reject("no match", row.where, detail)


@dataclass(frozen=True)
class MultipleChoice:
    """Adds `options` (lines such as "A. bank") and `answer` ("A. bank") to multiple-choice rows."""

    source: RowSource
    choices: str
    """The field path of the list of choices."""
    gold: str
    """The field path of the right choice: a letter, an index from 0, or a list that starts with
    one."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows, with `options` and `answer`."""
        for row in self.source.rows(tally):
            choices = _find_list_of_texts(row, self.choices, tally)
            key = None if choices is None else value_at(row, self.gold, tally)
            if choices is None or key is None:
                continue
            options, index = with_letters(choices), _choice_index(key)
            if 0 <= index < len(options):
                yield _with_columns(row, options="\n".join(options), answer=options[index])
            else:
                detail = f"{self.gold!r} is {key!r}, but there are {len(options)} choices"
                tally.reject("no such choice", row.where, detail)


@dataclass(frozen=True)
class Alternatives:
    """Adds `options`, one per line: the first right answer, then the wrong answers."""

    source: RowSource
    right: str
    """The field path of the list of right answers."""
    wrong: str
    """The field path of the list of wrong answers."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows, with `options`."""
        for row in self.source.rows(tally):
            right_answers = _find_list_of_texts(row, self.right, tally)
            if right_answers is None:
                continue
            wrong_answers = _find_list_of_texts(row, self.wrong, tally)
            if wrong_answers is not None:
                options = [str(answer).strip() for answer in [*right_answers[:1], *wrong_answers]]
                yield _with_columns(row, options="\n".join(options))


@dataclass(frozen=True)
class AcceptedAnswers:
    """Adds `accepted`, the texts of a list, one per line."""

    source: RowSource
    answers: str
    """The field path of the list of accepted answers."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Yields the rows, with `accepted`."""
        for row in self.source.rows(tally):
            answers = _find_list_of_texts(row, self.answers, tally)
            if answers is not None:
                yield _with_columns(row, accepted="\n".join(str(a).strip() for a in answers))


def with_letters(choices: Sequence[str]) -> list[str]:
    """Returns the choices as "A. …"; existing letters ("(A)…", "A) …") are replaced."""
    pairs = list(zip(ascii_uppercase, (str(c).strip() for c in choices), strict=False))
    without_letters = [re.sub(rf"^\(?{letter}[).:]\s*", "", choice) for letter, choice in pairs]
    have_letters = all(b != choice for b, (_, choice) in zip(without_letters, pairs, strict=True))
    return [
        f"{letter}. {bare if have_letters else choice}"
        for bare, (letter, choice) in zip(without_letters, pairs, strict=True)
    ]


def _find_list_of_texts(row: Row, path: str, tally: Tally) -> Sequence[Any] | None:
    """Returns the list of texts at a path, or None if there is none, which the tally counts."""
    texts = value_at(row, path, tally)
    if texts is None:
        return None
    if not isinstance(texts, list | tuple):
        tally.reject("not a list", row.where, f"{path!r} is {texts!r}")
        return None
    for index, text in enumerate(texts):
        if text is None or is_blank(str(text)):
            reason = "null field" if text is None else "empty field"
            tally.reject(reason, row.where, f"entry {index} of {path!r} is {text!r}")
            return None
    return texts


def _choice_index(choice_key: Any) -> int:
    choice_key = (
        choice_key[0] if isinstance(choice_key, list | tuple) and choice_key else choice_key
    )
    text = str(choice_key).strip()
    if text.isdecimal():
        return int(text)
    return ascii_uppercase.find(text) if len(text) == 1 else -1


def _with_columns(row: Row, **columns: str) -> Row:
    return row._replace(value={**row.value, **columns})
