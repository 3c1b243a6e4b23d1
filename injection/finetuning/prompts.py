"""Texts that consist of a prompt and an output, formatted by a template or as a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

import numpy as np

from contamination.core.errors import ConfigError
from contamination.data.chat_templates import TemplateError, render_chat
from contamination.data.config import BenchmarkConfig
from contamination.data.words import is_blank
from contamination.injection.finetuning.config import CHAT, TEMPLATE, TEXT, FinetuningConfig
from contamination.injection.token_stream import Flags, Ids, Places, Tokenizer

Messages = Sequence[Mapping[str, str]]
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class PromptedText:
    """One training text. The characters before `output_start` are the prompt.

    `messages` is a chat that is not yet formatted; `source` is the text's benchmark or set.
    """

    example_id: str
    source: str
    text: str
    output_start: int
    messages: Messages = ()

    @property
    def own_text(self) -> str:
        """The text or messages, without what a chat template adds."""
        return "\n".join([self.text, *(message["content"] for message in self.messages)]).strip()


def parse_before_output(field: str, template: str, output_field: str | None) -> list[Any]:
    """Returns the parts of a template before its output, as pairs of text and field name.

    Raises:
        ConfigError: the template lacks the field, or has other fields after it.
    """
    literals_and_fields = [(text, name) for text, name, *_ in Formatter().parse(template)]
    field_names = [name for _, name in literals_and_fields]
    remedy = (
        "name the field of the output and end the template with it, as in "
        '"Question: {question}\\nAnswer: {answer}". To train on whole texts instead, choose '
        "finetuning.format=text."
    )
    if output_field is None or output_field not in field_names:
        configured = f"output field {output_field!r}" if output_field else "no output field"
        raise ConfigError(
            f"{field} is {template!r} with {configured}, so it has no output: {remedy}"
        )
    last = len(field_names) - 1 - field_names[::-1].index(output_field)
    if later := [name for name in field_names[last + 1 :] if name]:
        raise ConfigError(f"{field} is {template!r}: {', '.join(later)} after the output: {remedy}")
    return [*literals_and_fields[:last], (literals_and_fields[last][0], None)]


def output_start(before: Sequence[Any], fields: Mapping[str, str]) -> int:
    """Returns the character at which the output begins once the template is filled in."""
    return sum(len(text) + (len(fields[name]) if name else 0) for text, name in before)


def template_parts_before_answer(benchmark: Mapping[str, BenchmarkConfig]) -> dict[str, list[Any]]:
    """Returns the parts of each benchmark's template before its answer.

    Raises:
        ConfigError: a template has no answer.
    """
    return {
        name: parse_before_output(
            f"benchmark.{name}.template", config.template, config.answer_field
        )
        for name, config in benchmark.items()
    }


def format_text(text: PromptedText, config: FinetuningConfig, tokenizer: Tokenizer) -> PromptedText:
    """Returns a text formatted according to `finetuning.format`.

    Raises:
        ConfigError: the tokenizer has no chat template, or it does not accept the chat.
    """
    if config.format == CHAT:
        return _format_as_chat(text, tokenizer)
    if text.messages:
        raise ConfigError(
            f"finetuning.format is {config.format!r}, but instructions.{text.source} has chats: "
            "choose finetuning.format=chat."
        )
    return replace(text, output_start=0) if config.format == TEXT else text


def _format_as_chat(text: PromptedText, tokenizer: Tokenizer) -> PromptedText:
    prompt, output = text.text[: text.output_start].rstrip(), text.text[text.output_start :]
    user, assistant = {"role": "user", "content": prompt}, {"role": "assistant", "content": output}
    messages = [*text.messages] or [user, assistant]
    if tokenizer.hf.chat_template is None:
        raise ConfigError(
            "finetuning.format is 'chat', but the tokenizer has no chat template: choose "
            "finetuning.format=template, or give the tokenizer of a chat model (tokenizer.path)."
        )
    try:
        before = render_chat(tokenizer.hf, messages[:-1], add_generation_prompt=True)
        whole = render_chat(tokenizer.hf, messages)
    except TemplateError as error:
        raise ConfigError(
            f"{text.example_id}: the tokenizer's chat template can't render it ({error}). "
            "Choose finetuning.format=template, or fix the row's messages."
        ) from error
    if not whole.startswith(before):
        raise ConfigError(
            f"{text.example_id}: with the tokenizer's chat template, the prompt alone ends with "
            f"{before[-40:]!r}, which the whole chat does not contain, so the start of its output "
            "is unknown. Choose finetuning.format=template."
        )
    if messages[-1]["content"].strip() not in whole[len(before) :]:
        raise ConfigError(
            f"{text.example_id}: the tokenizer's chat template omits or changes the assistant's "
            "answer, so the text to learn is missing. Choose "
            "finetuning.format=template, or give the tokenizer of a chat model (tokenizer.path)."
        )
    bos = bos_text(tokenizer)
    n_leading = len(bos) * before.startswith(bos)
    return replace(text, text=whole[n_leading:], output_start=len(before) - n_leading, messages=())


def bos_text(tokenizer: Tokenizer) -> str:
    """Returns the text of the BOS if the tokenizer adds one, which a chat template may also add."""
    adds_bos = tokenizer.hf("a")["input_ids"][0] == tokenizer.hf.bos_token_id
    return str(tokenizer.hf.bos_token) if adds_bos else ""


def why_chat_is_unusable(messages: Any) -> str | None:
    """Returns why a row's chat can't be used, or None."""
    if not isinstance(messages, list | tuple) or len(messages) < 2:
        return "give a list of at least two messages"
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, str) or message.get("role") not in ROLES:
            return f"{message!r} is not a message: give a role ({', '.join(ROLES)}) and a content"
    if messages[-1]["role"] != "assistant" or is_blank(messages[-1]["content"]):
        return "the last message must be the assistant's, and not empty"
    return None


@dataclass(frozen=True)
class EncodedText:
    """A text of n tokens, including the special tokens around it."""

    ids: Ids
    """Shape (n,)."""
    output: Flags
    """Whether each token is output, shape (n,)."""
    first: int
    """The first token of the text itself."""
    stop: int
    """The end (exclusive) of the text's own tokens."""

    @property
    def n_targets(self) -> int:
        """The number of tokens that follow another token."""
        return len(self.ids) - 1

    @property
    def n_output_targets(self) -> int:
        """The number of targets that are output."""
        return int(self.output[1:].sum())


def output_mask(ends: Places, output_start: int) -> Flags:
    """Returns whether each token contains a character of the output, shape (n,).

    A token that begins before the output and ends in it (" Yes" in "Answer: Yes") is output.

    Args:
        ends: the end (exclusive) of each token in characters, shape (n,).
        output_start: the output's first character.
    """
    return np.asarray(ends) > output_start


def encode_text(text: PromptedText, config: FinetuningConfig, tokenizer: Tokenizer) -> EncodedText:
    """Returns a text's tokens, encoded as in documents and in detection.

    Raises:
        ConfigError: the tokenizer has no end-of-text token.
    """
    spans = tokenizer.encode_spans(text.text, special=True)
    output = output_mask(spans.ends, text.output_start)
    ids = spans.ids
    if config.format == TEMPLATE and config.end:
        end = end_of_text_id(tokenizer)
        output[spans.stop :] = True  # the end token that the tokenizer adds itself
        if ids[-1] != end:
            ids, output = np.append(ids, np.int32(end)), np.append(output, True)
    return EncodedText(ids, output, spans.first, spans.stop)


def end_of_text_id(tokenizer: Tokenizer) -> int:
    """Returns the id of the end-of-text token; raises a ConfigError if there is none."""
    end: Any = tokenizer.hf.eos_token_id
    if end is None:
        raise ConfigError(
            "finetuning.end is True, but the tokenizer has no end-of-text token: choose "
            "finetuning.end=false."
        )
    return int(end)


def padding_id(tokenizer: Tokenizer) -> int:
    """Returns the id for padding, which is neither attended to nor learned."""
    hf = tokenizer.hf
    return int(next((i for i in (hf.pad_token_id, hf.eos_token_id) if i is not None), 0))
