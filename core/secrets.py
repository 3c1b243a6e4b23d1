"""Keeps keys and passwords out of errors, logs and records.

Users give a key as the name of an environment variable. If they write the key itself elsewhere by
mistake, errors do not repeat it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator, Sequence

from contamination.core.errors import ConfigError

HIDDEN = "***"
MIN_HIDDEN_LENGTH = 8  # parts of a key with at least this many characters are hidden
MAX_MESSAGE_LENGTH = 10_000  # characters; longer messages are cut off
NOT_REPEATED = "The value is not repeated here, since it may contain a key."
VARIABLE_NAME = re.compile("[A-Z_][A-Z0-9_]*")  # names of environment variables
SENSITIVE_FIELD = re.compile(
    r"\b(url|\w*key(?:_\w{0,4})?|\w*(?:secret|password|token))['\"]?\s*[=:]\s*"
    r"(.+?)(?=,\s*\w+\s*:(?!//)|$)",  # in a mapping another field follows
    re.DOTALL,
)
"""Matches a field in which users may put a key by mistake, and its value in an override."""
ENCLOSING_CHARACTERS = "'\"[]{} "  # characters around values


def check_url_contains_no_key(field: str, url: str) -> None:
    """Raises a ConfigError if a URL may contain a key; the message does not quote the URL."""
    if re.search("[@?#]", url):
        raise ConfigError(
            f"{field} contains a user, a password or a query, which would be written to files. "
            f"Give the address alone, and put the key into an environment variable that "
            f"{field.rpartition('.')[0]}.key_env names. {NOT_REPEATED}"
        )


def check_is_variable_name(field: str, name: str) -> None:
    """Raises a ConfigError if `name` is not an environment variable; the message does not quote it.

    A name in capital letters is accepted even if it is not set, since it may be set on the machine
    that runs the model.
    """
    if name not in os.environ and VARIABLE_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{field} is not an environment variable. Put the key into one, and give its name, "
            f"such as OPENAI_API_KEY. {NOT_REPEATED}"
        )


def check_overrides_contain_no_key(overrides: Sequence[str]) -> None:
    """Checks the URLs and `key_env` values of a command line before they are used or recorded.

    Raises:
        ConfigError: a value may contain a key; the message does not quote it.
    """
    for name, field, values in _sensitive_values(overrides):
        for value in (value.strip(ENCLOSING_CHARACTERS) for value in values.split(",")):
            if field == "url":
                check_url_contains_no_key(name, value)
            elif field == "key_env" and value != "null" and not value.startswith("${"):
                check_is_variable_name(name, value)


def hide_sensitive_overrides(message: str, overrides: Sequence[str]) -> str:
    """Returns the message without values of overrides that may be keys.

    URLs and names of environment variables are not hidden: see `check_overrides_contain_no_key`.
    """
    for _, field, values in _sensitive_values(overrides):
        value = values.strip(ENCLOSING_CHARACTERS)
        is_variable = value in os.environ or VARIABLE_NAME.fullmatch(value)
        if field != "url" and not is_variable and len(value) >= MIN_HIDDEN_LENGTH:
            message = hide_key(message, value)
    return message


def _sensitive_values(overrides: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the full name, last component and value of each field that may contain a key."""
    for override in overrides:
        name = override.partition("=")[0].strip("+~ ")
        for match in SENSITIVE_FIELD.finditer(override):
            field = match[1]
            yield name if name.endswith(field) else f"{name}.{field}", field, match[2]


def hide_key(message: str, key: str) -> str:
    """Returns the message without the key, and without parts of it (`MIN_HIDDEN_LENGTH`).

    Characters are also recognised if they are escaped as in JSON, Python, URLs or HTML.
    """
    size = min(len(key), MIN_HIDDEN_LENGTH)
    message = message[:MAX_MESSAGE_LENGTH]
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
