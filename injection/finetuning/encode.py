"""From a text to tokens, and which of them are its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import ConfigError
from injection.finetuning.config import TEMPLATE, FinetuningConfig
from injection.finetuning.prompts import Prompted
from injection.tokens import Flags, Ids, Places, Tokenizer


@dataclass(frozen=True)
class Encoded:
    """A text of n tokens, with the special ones around it."""

    ids: Ids
    """Shape (n,)."""
    output: Flags
    """Which are its output, shape (n,)."""
    first: int
    """The text's own first token."""
    stop: int
    """Behind its own last one."""

    @property
    def targets(self) -> int:
        """The tokens that have one before them."""
        return len(self.ids) - 1

    @property
    def output_targets(self) -> int:
        """Those of them that are output."""
        return int(self.output[1:].sum())


def is_output(ends: Places, output_start: int) -> Flags:
    """Which tokens hold a character of the output, shape (n,).

    A token that begins before the output and ends in it (" Yes" of "Answer: Yes") is output.

    Args:
        ends: the character after each token's last one, shape (n,).
        output_start: the output's first character.
    """
    return np.asarray(ends) > output_start


def encode(text: Prompted, config: FinetuningConfig, tokenizer: Tokenizer) -> Encoded:
    """The text's tokens as its documents and detection have them.

    Raises:
        ConfigError: the tokenizer has no end-of-text token.
    """
    spans = tokenizer.encode_spans(text.text, special=True)
    output = is_output(spans.ends, text.output_start)
    ids = spans.ids
    if config.format == TEMPLATE and config.end:
        end = end_of_text(tokenizer)
        output[spans.stop :] = True  # one that the tokenizer adds itself
        if ids[-1] != end:
            ids, output = np.append(ids, np.int32(end)), np.append(output, True)
    return Encoded(ids, output, spans.first, spans.stop)


def end_of_text(tokenizer: Tokenizer) -> int:
    """The id that a text ends with."""
    end: Any = tokenizer.hf.eos_token_id
    if end is None:
        raise ConfigError(
            "finetuning.end is True, but the tokenizer has no end-of-text token: choose "
            "finetuning.end=false."
        )
    return int(end)


def padding(tokenizer: Tokenizer) -> int:
    """The id that fills a sequence up: it is never attended to, and never learnt."""
    hf = tokenizer.hf
    return int(next((i for i in (hf.pad_token_id, hf.eos_token_id) if i is not None), 0))
