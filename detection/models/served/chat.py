"""Servers that only chat: requests to `/chat/completions` through a chat template.

Such a server puts each text into the model's chat template. It is used in one of two ways:

- **The server continues the beginning of an answer** (vLLM and SGLang by `continue_final_message`,
  llama.cpp's server always): the text is that beginning, after `REQUEST`. The server shows the
  log-probabilities of its tokens after those of the template. The tokenizer must have the template:
  each request is also rendered here, and the server must count as many tokens, perhaps with BOS. A
  text that the template changes, for example by stripping blanks, can't be sent.
- **The server only answers**: the text is part of the user's message, after `REQUEST`. Only what
  the model generates is read: a forced token would begin an answer, not continue the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contamination.core.errors import ConfigError
from contamination.data.chat_templates import TemplateError, TemplateLimitError, render_chat
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import (
    CompletionsModel,
    Dialect,
    UnshownError,
)
from contamination.detection.models.served.responses import (
    ChatCompletion,
    Completion,
    TokenPosition,
)

REQUEST = "Continue this text."
"""The user's message. Every score of a chat depends on it."""


class ChatModel(CompletionsModel):
    """A model at a server that only chats, with the interface of completions."""

    def prompt_logprobs(self, ids: Sequence[int], top: int) -> list[TokenPosition]:
        """Raises UnshownError, since chats have no `echo`."""
        raise UnshownError(
            self.message_about_text(ids, "a chat shows no log-probabilities of its messages.")
        )

    def prompt_logprobs_parameter(self, ids: Sequence[int], top: int) -> list[TokenPosition]:
        """Raises UnshownError, since a chat's prompt includes the tokens of the template."""
        return self.prompt_logprobs(ids, top)

    def can_send(self, ids: Sequence[int]) -> bool:
        """Returns whether the text has exactly these tokens, alone and in the template."""
        if not super().can_send(ids):
            return False
        return not self.dialect.continues or self._templated_ids(self._decode_text(ids)) is not None

    def _request_completion(self, ids: Sequence[int], **options: Any) -> Completion:
        """Returns the answer to these tokens, after comparing the counts of the template."""
        if not self.dialect.continues and "logit_bias" in options:
            problem = "a forced token would not continue it in a chat."
            raise UnshownError(self.message_about_text(ids, problem))
        if (top := options.pop("logprobs", None)) is not None:
            options |= {"logprobs": True, "top_logprobs": top}
        text = self._prompt_to_send(ids)
        body = {"model": self.name, "messages": self._messages(str(text)), **options}
        if not self.dialect.continues:
            return self._post("chat/completions", body, ChatCompletion, ids)
        if text:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        answer = self._post("chat/completions", body, ChatCompletion, ids)
        expected, count = len(self._templated_ids(str(text)) or ()), answer.prompt_token_count
        if count not in (expected, expected + self._special_token_count):  # llama.cpp adds BOS
            problem = f"it counts {count} tokens in its chat template, the tokenizer {expected}. "
            raise UnshownError(self.message_about_text(ids, problem + self._tokenizer_remedy))
        return answer

    @property
    def _special_token_count(self) -> int:
        """The number of tokens that the tokenizer adds to a text, such as BOS."""
        return len(self.tokenizer("")["input_ids"])

    def _messages(self, text: str) -> list[dict[str, str]]:
        if not self.dialect.continues:
            return [{"role": "user", "content": f"{REQUEST}\n\n{text}"}]
        request = [{"role": "user", "content": REQUEST}]
        return [*request, {"role": "assistant", "content": text}] if text else request

    def _templated_ids(self, text: str) -> list[int] | None:
        """Returns the tokens of the chat whose answer begins with the text.

        Returns None if they do not end with the text's own tokens.
        """
        options = {"continue_final_message": True} if text else {"add_generation_prompt": True}
        try:
            chat_text = render_chat(self.tokenizer, self._messages(text), **options)
        except TemplateLimitError as error:
            raise ConfigError(
                f"{self.client.field}.tokenizer: its chat template can't be used: {error}. Give "
                "another tokenizer of the model."
            ) from error
        except TemplateError:  # there is no template, or it does not accept the chat
            return None
        text_ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids: list[int] = self.tokenizer(chat_text, add_special_tokens=False)["input_ids"]
        return ids if ids[len(ids) - len(text_ids) :] == text_ids else None


def model_for_dialect(
    client: Client, model_name: str, tokenizer: Any, dialect: Dialect, probing: bool = False
) -> CompletionsModel:
    """Returns the model at a server that accepts this dialect; see `CompletionsModel`."""
    model_class = ChatModel if dialect.chat else CompletionsModel
    return model_class(client, model_name, tokenizer, dialect, probing)


def chat_warning(client: Client, dialect: Dialect) -> str:
    """Returns a warning about the meaning of scores from a server that only chats."""
    where = f"{client.field}.url is {client.server.url!r}: it has no /completions and only chats."
    if dialect.continues:
        return (
            f"{where} Each text is sent as the beginning of an answer to {REQUEST!r}, in the "
            "model's chat template: scores are of the text in that position."
        )
    return (
        f"{where} Each text is sent after {REQUEST!r}, in the model's chat template, and the "
        "server does not show its log-probabilities: only methods that read generated text can be "
        "used."
    )
