"""Errors for panics of the tokenizers library, which is written in Rust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from contamination.core.errors import ConfigError

field_by_tokenizer: dict[str, str] = {}
"""The config field of each tokenizer that this process has loaded, by its path."""


@contextmanager
def tokenizer_panics_as_config_errors() -> Iterator[None]:
    """Turn a panic of the tokenizers library into a ConfigError that names the tokenizer.

    A panic is no `Exception`. A regular expression of tokenizer.json that takes too many steps for
    a text causes one.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library exports no name for it
            raise
        named = [f"{field} is {path!r}" for path, field in field_by_tokenizer.items()]
        raise ConfigError(
            f"{' and '.join(named) or 'a tokenizer'}: the tokenizers library can't go on "
            f"({' '.join(str(error).split()):.300}). Give another tokenizer, or leave out the text "
            "that it can't read."
        ) from error
