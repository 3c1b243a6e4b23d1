"""Rows of other data sets in the form that templates want: wrappers around any source of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from contamination.core.errors import ConfigError
from contamination.data.readers import Rows
from contamination.data.readers.files import value_at
from contamination.data.readers.rows import Row, Tally
from contamination.data.text import is_blank


@dataclass(frozen=True)
class Chain:
    """The rows of several sources, one after another."""

    sources: Sequence[Rows]

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows."""
        for source in self.sources:
            yield from source.rows(tally)


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

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows with the groups as further columns."""
        wanted = re.compile(self.pattern, re.DOTALL)
        for row in self.source.rows(tally):
            value = value_at(row, self.field, tally)
            found = None if value is None else wanted.search(str(value))
            if found is not None:
                yield _with(row, **found.groupdict())
            elif value is not None:
                detail = f"{self.field!r} does not match the source's pattern {self.pattern!r}"
                tally.bad("no match", row.where, detail)


@dataclass(frozen=True)
class MultipleChoice:
    """Adds `options` ("A. bank", a line each) and `answer` ("A. bank") from a list and its key."""

    source: Rows
    choices: str
    """Field path of the list of choices."""
    gold: str
    """Field path of the right one: its letter, its index from 0, or a list that starts with it."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows with `options` and `answer`."""
        for row in self.source.rows(tally):
            choices = _texts_at(row, self.choices, tally)
            key = None if choices is None else value_at(row, self.gold, tally)
            if choices is None or key is None:
                continue
            options, index = lettered(choices), _index(key)
            if 0 <= index < len(options):
                yield _with(row, options="\n".join(options), answer=options[index])
            else:
                detail = f"{self.gold!r} is {key!r}, but there are {len(options)} choices"
                tally.bad("no such choice", row.where, detail)


@dataclass(frozen=True)
class Alternatives:
    """Adds `options`, a line each: the first right answer, then the wrong ones."""

    source: Rows
    right: str
    """Field path of the list of right answers."""
    wrong: str
    """Field path of the list of wrong answers."""

    def rows(self, tally: Tally) -> Iterator[Row]:
        """Stream the rows with `options`."""
        for row in self.source.rows(tally):
            right = _texts_at(row, self.right, tally)
            wrong = None if right is None else _texts_at(row, self.wrong, tally)
            if right is not None and wrong is not None:
                options = [str(o).strip() for o in [*right[:1], *wrong]]
                yield _with(row, options="\n".join(options))


def lettered(choices: Sequence[str]) -> list[str]:
    """The choices as "A. …", whatever letters they carry already ("(A)…", "A) …")."""
    pairs = list(zip(ascii_uppercase, (str(c).strip() for c in choices), strict=False))
    bare = [re.sub(rf"^\(?{letter}[).:]\s*", "", choice) for letter, choice in pairs]
    own = all(b != choice for b, (_, choice) in zip(bare, pairs, strict=True))
    return [f"{a}. {b if own else c}" for b, (a, c) in zip(bare, pairs, strict=True)]


def _texts_at(row: Row, path: str, tally: Tally) -> Sequence[Any] | None:
    """The list of texts at a path, or None where there is none, which the tally counts."""
    found = value_at(row, path, tally)
    if found is None:
        return None
    if not isinstance(found, list | tuple):
        tally.bad("not a list", row.where, f"{path!r} is {found!r}")
        return None
    for place, entry in enumerate(found):
        if entry is None or is_blank(str(entry)):
            reason = "null field" if entry is None else "empty field"
            tally.bad(reason, row.where, f"entry {place} of {path!r} is {entry!r}")
            return None
    return found


def _index(gold: Any) -> int:
    gold = gold[0] if isinstance(gold, list | tuple) and gold else gold
    text = str(gold).strip()
    if text.isdecimal():
        return int(text)
    return ascii_uppercase.find(text) if len(text) == 1 else -1


def _with(row: Row, **columns: str) -> Row:
    return row._replace(value={**row.value, **columns})
