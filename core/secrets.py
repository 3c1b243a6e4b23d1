"""Keys and passwords stay where they are: in no error, log or record.

A key is named by the environment variable that holds it. Where one is given in another place all
the same, the error does not repeat it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator, Sequence

from contamination.core.errors import ConfigError

HIDDEN = "***"
SHORTEST = 8
"""Signs: a part of a key that is as long is hidden as well, where words cut it or divide it."""
LONGEST = 10_000
"""Signs of the words that are looked through."""
UNSAID = "What was given is not repeated here, for it may hold a key."
VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")
"""How names of environment variables look."""
FIELD = re.compile(
    r"\b(url|\w*key(?:_\w{0,4})?|\w*(?:secret|password|token))['\"]?\s*[=:]\s*"
    r"(.+?)(?=,\s*\w+\s*:(?!//)|$)",  # in a mapping another field follows
    re.DOTALL,
)
"""What an override gives to a field that may wrongly hold a key, also one that there isn't."""
SIGNS = "'\"[]{} "
"""What stands around values."""


def check_address(field: str, url: str) -> None:
    """Raise a ConfigError, which does not quote it, where the address may have a key in it."""
    if re.search("[@?#]", url):
        raise ConfigError(
            f"{field} has a user, a password or a query in it, which would be written to files. "
            f"Give the address alone, and put the key into an environment variable that "
            f"{field.rpartition('.')[0]}.key_env names. {UNSAID}"
        )


def check_variable(field: str, name: str) -> None:
    """Raise a ConfigError, which does not quote it, where this is no environment variable's name.

    One that is not set here may be so on another machine: it is then of capitals, as most are.
    """
    if name not in os.environ and VARIABLE.fullmatch(name) is None:
        raise ConfigError(
            f"{field} names no environment variable. Put the key into one, and give its name, such "
            f"as OPENAI_API_KEY. {UNSAID}"
        )


def check_overrides(overrides: Sequence[str]) -> None:
    """Check what a command line gives as addresses and variables, before it is read or kept.

    Raises:
        ConfigError: there may be a key in one; it is not quoted.
    """
    for name, field, given in _given(overrides):
        for value in (each.strip(SIGNS) for each in given.split(",")):
            if field == "url":
                check_address(name, value)
            elif field == "key_env" and value != "null" and not value.startswith("${"):
                check_variable(name, value)


def without_given(words: str, overrides: Sequence[str]) -> str:
    """The words without what the overrides give to fields that may wrongly hold a key.

    Addresses, and names of variables, are kept: see `check_overrides`.
    """
    for _, field, given in _given(overrides):
        value = given.strip(SIGNS)
        named = value in os.environ or VARIABLE.fullmatch(value)
        kept = field == "url" or named or len(value) < SHORTEST
        words = words if kept else hidden(words, value)
    return words


def _given(overrides: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What may wrongly hold a key: its whole name, the last part of that, and what is given."""
    for override in overrides:
        name = override.partition("=")[0].strip("+~ ")
        for found in FIELD.finditer(override):
            field = found[1]
            yield name if name.endswith(field) else f"{name}.{field}", field, found[2]


def hidden(words: str, key: str) -> str:
    """The words without the key, and without its parts of `SHORTEST` signs or more.

    Each sign is found as itself, and as JSON, Python, URLs and HTML write it.
    """
    size = min(len(key), SHORTEST)
    words = words[:LONGEST]
    found = bytearray(len(words))
    signs = [_forms(sign) for sign in key]
    for start in range(len(key) - size + 1 if key else 0):
        for match in re.finditer(f"(?=({''.join(signs[start : start + size])}))", words, re.I):
            found[slice(*match.span(1))] = b"x" * len(match[1])
    runs = re.finditer(b"x+", found)
    for run in reversed([*runs]):
        words = words[: run.start()] + HIDDEN + words[run.end() :]
    return words


def _forms(sign: str) -> str:
    """An expression for the ways in which a sign may be written."""
    number = f"{ord(sign):x}"
    escaped = rf"\\{{0,4}}(?:{re.escape(sign)}|u0*{number}|x0*{number})"
    named = re.escape(html.escape(sign))
    return rf"(?:{escaped}|%(?:25)*0*{number}|&#0*{ord(sign)};|&#x0*{number};|{named})"
