"""Errors that a user can fix. A message is one paragraph with the field, value and remedy.

::

    UserError
    ├── ConfigError      a value, a name or a combination that the configuration does not allow
    ├── DataError        an input file, row or text that can't be used
    ├── ArtifactError    a run folder that is missing, unfinished or not what was expected
    └── ServerError      a server that does not answer, or answers incorrectly
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class UserError(Exception):
    """Something the user can fix; the command line prints it without a traceback."""

    status: ClassVar[int] = 2
    """The command's exit status."""


class ConfigError(UserError):
    """A value, a name or a combination that the configuration does not allow."""


class DataError(UserError):
    """An input file, row or text that can't be used."""


class ArtifactError(UserError):
    """A run folder that is missing, unfinished or not what was expected."""


class ServerError(UserError):
    """A server that does not answer, or answers incorrectly."""


class StoppedError(BaseException):
    """SIGTERM or SIGINT was received; finished work is kept, and the same command resumes it.

    It is not an `Exception`, so code that catches exceptions does not catch it.

    Attributes:
        status: the command's exit status: 128 + the signal's number, as in a shell.
    """

    def __init__(self, message: str, status: int = 128 + 15) -> None:
        super().__init__(message)
        self.status = status


def near_names(name: str, known: Iterable[str], max_listed: int | None = None) -> str:
    """Returns a hint with the names most similar to `name`, then a list of known names.

    Args:
        name: the unknown name.
        known: the known names.
        max_listed: the maximum number of names to list, each cut after 100 characters; None: all
            names are listed in full.
    """
    names = sorted(known)
    similar = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    more = ""
    if max_listed is not None:
        more = f" and {len(names) - max_listed:,} more" if len(names) > max_listed else ""
        similar, names = ([_cut(n) for n in ns] for ns in (similar, names[:max_listed]))
    hint = f"Did you mean {' or '.join(similar)}? " if similar else ""
    return f"{hint}Known: {', '.join(names)}{more}."


def _cut(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}…"


def describe_error(error: Exception) -> str:
    """Returns a library's error in one line, with its class if the message is a single word."""
    name, message = type(error).__name__, " ".join(str(error).split())
    return message if " " in message else f"{name}: {message}".removesuffix(": ")


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raises a ConfigError with field, value and remedy unless `condition` is true."""
    if not condition:
        raise ConfigError(f"{field} is {value!r}: {remedy}")
