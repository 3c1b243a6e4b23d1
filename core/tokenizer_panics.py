"""Turns panics of the tokenizers library, which is written in Rust, into user errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from contamination.core.errors import ConfigError

field_by_tokenizer: dict[str, str] = {}
"""The config field of each tokenizer that this process has loaded, by its path."""


@contextmanager
def tokenizer_panics_as_config_errors() -> Iterator[None]:
    """Turns a panic of the tokenizers library into a ConfigError that names the tokenizer.

    A panic is not an `Exception`. It occurs, for example, if a regular expression in tokenizer.json
    needs too many steps for a text.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library exports no name for it
            raise
        tokenizers = [f"{field} is {path!r}" for path, field in field_by_tokenizer.items()]
        raise ConfigError(
            f"{' and '.join(tokenizers) or 'a tokenizer'}: the tokenizers library failed "
            f"({' '.join(str(error).split()):.300}). Give another tokenizer, or leave out the text "
            "that it can't tokenize."
        ) from error
