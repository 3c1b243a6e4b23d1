"""Servers that only chat: `/chat/completions`, and what a chat template does to a text.

A chat puts a text into the template of the model's makers. Two ways lead to something of use:

- **The server continues an answer that is begun** (vLLM and SGLang by `continue_final_message`,
  llama.cpp's server always): the text is that answer, after `REQUEST`. What is shown are the
  log-probabilities of its tokens after the template's own. The tokenizer has to have the template:
  each request is put into it here as well, and the server has to count as many tokens, perhaps with
  BOS. A text that the template changes, such as one whose blanks it strips, can't be sent.
- **It only answers**: the text stands in what it is asked, after `REQUEST`. What it writes is read,
  and nothing else: a forced token would be the beginning of an answer, not a part of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contamination.core.errors import ConfigError
from contamination.data.chat_templates import TemplateError, TemplateLimitError, rendered
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import Completions, Dialect, UnshownError
from contamination.detection.models.served.responses import Chat, Completion, Place

REQUEST = "Continue this text."
"""What the user of the chat says. It is part of what every score of a chat means."""


class Chats(Completions):
    """A model's answers in chats, asked for as completions are."""

    def prompt(self, ids: Sequence[int], top: int) -> list[Place]:
        """Nothing: chats have no `echo`."""
        raise UnshownError(self.of_text(ids, "a chat shows nothing of what it is sent."))

    def shown_prompt(self, ids: Sequence[int], top: int) -> list[Place]:
        """Nothing: the places of a chat's prompt are those of the template as well."""
        return self.prompt(ids, top)

    def sendable(self, ids: Sequence[int]) -> bool:
        """Whether the text has these tokens and no others, also where it stands in the template."""
        if not super().sendable(ids):
            return False
        return not self.dialect.continues or self._templated(self._text(ids)) is not None

    def _completion(self, ids: Sequence[int], **options: Any) -> Completion:
        """An answer to these tokens, counted with the template where that is known."""
        if not self.dialect.continues and "logit_bias" in options:
            raise UnshownError(self.of_text(ids, "a forced token would not continue it in a chat."))
        if (top := options.pop("logprobs", None)) is not None:
            options |= {"logprobs": True, "top_logprobs": top}
        text = self._prompt(ids)
        body = {"model": self.name, "messages": self._messages(str(text)), **options}
        if not self.dialect.continues:
            return self._answer("chat/completions", body, Chat, ids)
        if text:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        answer = self._answer("chat/completions", body, Chat, ids)
        expected = len(self._templated(str(text)) or ())
        if answer.counted not in (expected, expected + self._special):  # llama.cpp adds BOS
            why = f"it counts {answer.counted} tokens in its chat template, the tokenizer's has "
            raise UnshownError(self.of_text(ids, f"{why}{expected}. {self._remedy}"))
        return answer

    @property
    def _special(self) -> int:
        """How many tokens the tokenizer adds to a text, such as BOS."""
        return len(self.tokenizer("")["input_ids"])

    def _messages(self, text: str) -> list[dict[str, str]]:
        """The chat in which the text stands."""
        if not self.dialect.continues:
            return [{"role": "user", "content": f"{REQUEST}\n\n{text}"}]
        asked = [{"role": "user", "content": REQUEST}]
        return [*asked, {"role": "assistant", "content": text}] if text else asked

    def _templated(self, text: str) -> list[int] | None:
        """The tokens of the chat whose answer begins with the text; None: they are not its own."""
        options = {"continue_final_message": True} if text else {"add_generation_prompt": True}
        try:
            words = rendered(self.tokenizer, self._messages(text), **options)
        except TemplateLimitError as error:
            raise ConfigError(
                f"{self.client.field}.tokenizer: its chat template can't be used: {error}. Give "
                "another tokenizer of the model."
            ) from error
        except TemplateError:  # there is none, or it does not take the chat
            return None
        bare: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids: list[int] = self.tokenizer(words, add_special_tokens=False)["input_ids"]
        return ids if ids[len(ids) - len(bare) :] == bare else None


def asking(
    client: Client, name: str, tokenizer: Any, dialect: Dialect, trying: bool = False
) -> Completions:
    """What asks a server in this dialect; see `Completions`."""
    kind = Chats if dialect.chat else Completions
    return kind(client, name, tokenizer, dialect, trying)


def said_of_chat(client: Client, dialect: Dialect) -> str:
    """What the scores of a server mean that only chats, in words."""
    where = f"{client.field}.url is {client.server.url!r}: it has no /completions and only chats."
    if dialect.continues:
        return (
            f"{where} Each text is sent as the beginning of an answer to {REQUEST!r}, in the "
            "model's chat template: scores are of the text in that place."
        )
    return (
        f"{where} Each text is sent after {REQUEST!r}, in the model's chat template, and nothing "
        "shows its log-probabilities: only methods that read what the model writes can be used."
    )
