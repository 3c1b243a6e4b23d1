"""Rows of other data sets in the form that templates want: wrappers around any source of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from core.errors import ConfigError, DataError
from injection.sources import Rows
from injection.sources.streamed import MISSING, lookup


@dataclass(frozen=True)
class Chain:
    """The rows of several sources, one after another."""

    sources: Sequence[Rows]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Stream the rows."""
        for source in self.sources:
            yield from source.rows()


@dataclass(frozen=True)
class Extract:
    """Adds the named groups of a regular expression, searched for in one field."""

    source: Rows
    field: str
    pattern: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(
                f"rows.pattern is {self.pattern!r}: it is not a regular expression ({error})."
            ) from error

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Stream the rows with the groups as further columns."""
        wanted = re.compile(self.pattern, re.DOTALL)
        for number, row in enumerate(self.source.rows()):
            found = wanted.search(str(_value(row, self.field, number)))
            if found is None:
                raise DataError(
                    f"row {number}: {self.field!r} does not match the source's pattern "
                    f"{self.pattern!r}. Mend the pattern in conf/benchmark/ or the data."
                )
            yield {**row, **found.groupdict()}


@dataclass(frozen=True)
class MultipleChoice:
    """Adds `options` ("A. bank", a line each) and `answer` ("A. bank") from a list and its key."""

    source: Rows
    choices: str
    """Field path of the list of choices."""
    gold: str
    """Field path of the right one: its letter, its index from 0, or a list that starts with it."""

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Stream the rows with `options` and `answer`."""
        for number, row in enumerate(self.source.rows()):
            options = lettered(_value(row, self.choices, number))
            key = _value(row, self.gold, number)
            index = _index(key)
            if not 0 <= index < len(options):
                raise DataError(
                    f"row {number}: {self.gold!r} is {key!r}, but there are {len(options)} "
                    "choices. Leave the row out of the data."
                )
            yield {**row, "options": "\n".join(options), "answer": options[index]}


@dataclass(frozen=True)
class Alternatives:
    """Adds `options`, a line each: the first right answer, then the wrong ones."""

    source: Rows
    right: str
    """Field path of the list of right answers."""
    wrong: str
    """Field path of the list of wrong answers."""

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Stream the rows with `options`."""
        for number, row in enumerate(self.source.rows()):
            right, wrong = (_value(row, path, number) for path in (self.right, self.wrong))
            yield {**row, "options": "\n".join(str(o).strip() for o in [*right[:1], *wrong])}


def lettered(choices: Sequence[str]) -> list[str]:
    """The choices as "A. …", whatever letters they carry already ("(A)…", "A) …")."""
    pairs = list(zip(ascii_uppercase, (str(c).strip() for c in choices), strict=False))
    bare = [re.sub(rf"^\(?{letter}[).:]\s*", "", choice) for letter, choice in pairs]
    own = all(b != choice for b, (_, choice) in zip(bare, pairs, strict=True))
    return [f"{a}. {b if own else c}" for b, (a, c) in zip(bare, pairs, strict=True)]


def _index(gold: Any) -> int:
    gold = gold[0] if isinstance(gold, list | tuple) and gold else gold
    text = str(gold).strip()
    if text.isdecimal():
        return int(text)
    return ascii_uppercase.find(text) if len(text) == 1 else -1


def _value(row: Mapping[str, Any], path: str, number: int) -> Any:
    value = lookup(row, path)
    if value is MISSING:
        raise DataError(
            f"row {number} has no {path!r}; it has {', '.join(row)}. Mend the source in "
            "conf/benchmark/ or the data."
        )
    return value
