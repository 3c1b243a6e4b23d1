"""Keeps keys and passwords out of errors, logs and records.

A key is given by the name of an environment variable. If a key is given in another place by
mistake, the error does not repeat it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator, Sequence

from contamination.core.errors import ConfigError

HIDDEN = "***"
SHORTEST = 8  # characters: a part of a key of at least this length is hidden as well
LONGEST = 10_000  # characters of a message that are searched; the rest is cut off
UNSAID = "The value is not repeated here, since it may contain a key."
VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")  # names of environment variables
FIELD = re.compile(
    r"\b(url|\w*key(?:_\w{0,4})?|\w*(?:secret|password|token))['\"]?\s*[=:]\s*"
    r"(.+?)(?=,\s*\w+\s*:(?!//)|$)",  # in a mapping another field follows
    re.DOTALL,
)
"""The value that an override gives to a field in which users may put a key by mistake."""
SIGNS = "'\"[]{} "  # characters around values


def check_url_holds_no_key(field: str, url: str) -> None:
    """Raise a ConfigError, which does not quote the address, if it may contain a key."""
    if re.search("[@?#]", url):
        raise ConfigError(
            f"{field} has a user, a password or a query in it, which would be written to files. "
            f"Give the address alone, and put the key into an environment variable that "
            f"{field.rpartition('.')[0]}.key_env names. {UNSAID}"
        )


def check_is_variable_name(field: str, name: str) -> None:
    """Raise a ConfigError, which does not quote the name, if it is no environment variable.

    A variable may be set only on another machine: then its name must have capital letters only.
    """
    if name not in os.environ and VARIABLE.fullmatch(name) is None:
        raise ConfigError(
            f"{field} names no environment variable. Put the key into one, and give its name, such "
            f"as OPENAI_API_KEY. {UNSAID}"
        )


def check_overrides_hold_no_key(overrides: Sequence[str]) -> None:
    """Check the addresses and variables of a command line before they are used or recorded.

    Raises:
        ConfigError: one may contain a key; it is not quoted.
    """
    for name, field, values in _sensitive_values(overrides):
        for value in (value.strip(SIGNS) for value in values.split(",")):
            if field == "url":
                check_url_holds_no_key(name, value)
            elif field == "key_env" and value != "null" and not value.startswith("${"):
                check_is_variable_name(name, value)


def hide_sensitive_overrides(message: str, overrides: Sequence[str]) -> str:
    """Returns the words without values of overrides that may be keys.

    Addresses and names of variables are not hidden: see `check_overrides_hold_no_key`.
    """
    for _, field, values in _sensitive_values(overrides):
        value = values.strip(SIGNS)
        is_variable = value in os.environ or VARIABLE.fullmatch(value)
        if field != "url" and not is_variable and len(value) >= SHORTEST:
            message = hide_key(message, value)
    return message


def _sensitive_values(overrides: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Fields in which users may put a key by mistake: full name, last part of it, and value."""
    for override in overrides:
        name = override.partition("=")[0].strip("+~ ")
        for match in FIELD.finditer(override):
            field = match[1]
            yield name if name.endswith(field) else f"{name}.{field}", field, match[2]


def hide_key(message: str, key: str) -> str:
    """Returns the words without the key, and without parts of it of `SHORTEST` or more characters.

    Each character is also recognised as JSON, Python, URLs and HTML escape it.
    """
    size = min(len(key), SHORTEST)
    message = message[:LONGEST]
    mask = bytearray(len(message))
    patterns = [_escaped_character_pattern(character) for character in key]
    for start in range(len(key) - size + 1 if key else 0):
        for match in re.finditer(f"(?=({''.join(patterns[start : start + size])}))", message, re.I):
            mask[slice(*match.span(1))] = b"x" * len(match[1])
    runs = re.finditer(b"x+", mask)
    for run in reversed([*runs]):
        message = message[: run.start()] + HIDDEN + message[run.end() :]
    return message


def _escaped_character_pattern(character: str) -> str:
    code = f"{ord(character):x}"
    escaped = rf"\\{{0,4}}(?:{re.escape(character)}|u0*{code}|x0*{code})"
    entity = re.escape(html.escape(character))
    return rf"(?:{escaped}|%(?:25)*0*{code}|&#0*{ord(character)};|&#x0*{code};|{entity})"
