"""The OpenAI-compatible protocol: `/models` and `/completions`; see `chats` for chats."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contamination.core.errors import ConfigError, ServerError, near_names
from contamination.detection.models.base import Prompt
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.responses import (
    Choice,
    Completion,
    Model,
    Models,
    Names,
    Place,
    Unlisted,
)

log = logging.getLogger(__name__)


class UnshownError(ServerError):
    """The server does not show what it is asked for: it may not know `echo`, or answers a chat."""


@dataclass(frozen=True)
class Dialect:
    """What a server takes, and how it writes tokens.

    Attributes:
        ids: prompts as token ids; otherwise as text.
        names_ids: tokens are written by their ids.
        chat: it has /chat/completions alone.
        continues: a chat in which the text is the beginning of the answer, which it continues.
    """

    ids: bool = True
    names_ids: bool = True
    chat: bool = False
    continues: bool = False

    def __str__(self) -> str:
        if self.chat:
            does = "continues an answer that is begun" if self.continues else "only answers"
            return f"chats, and {does}"
        return "token ids" if self.ids else "text"

    def record(self) -> dict[str, bool]:
        """For a file: without what a server of /completions has not."""
        shared = {"ids": self.ids, "names_ids": self.names_ids}
        return {**shared, "chat": True, "continues": self.continues} if self.chat else shared


class Completions:
    """A model's completions at a server.

    Args:
        client: the server.
        name: the model's name there.
        tokenizer: the model's, for servers that take text.
        dialect: what the server takes.
        trying: whether it is asked for what it may not do.
    """

    def __init__(
        self, client: Client, name: str, tokenizer: Any, dialect: Dialect, trying: bool = False
    ) -> None:
        self.client, self.name, self.tokenizer = client, name, tokenizer
        self.dialect, self.names = dialect, Names(tokenizer, dialect.names_ids)
        self.trying = trying

    def tried(self) -> Completions:
        """The same, asked for what it may not do."""
        return type(self)(self.client, self.name, self.tokenizer, self.dialect, trying=True)

    def prompt(self, ids: Sequence[int], top: int) -> list[Place]:
        """What the server shows of the text's tokens after the first.

        Raises:
            RefusedError: it refuses to show anything of prompts.
            UnshownError: it shows nothing of them, or other tokens than these.
        """
        places = self._complete(ids, echo=True, max_tokens=0, logprobs=top).places()
        if not self.names.reads([place.token for place in places], list(ids)):
            shown = [place.token for place in places[:3]]
            why = f"it shows {len(places)} places, {shown} …, in place of its {len(ids)} tokens"
            raise UnshownError(self.of_text(ids, f"{why}. {self._remedy}"))
        return places[1 : len(ids)]

    def shown_prompt(self, ids: Sequence[int], top: int) -> list[Place]:
        """The same by the parameter `prompt_logprobs`, which names tokens by their ids.

        Raises:
            RefusedError: it does not know the parameter.
            UnshownError: it takes no notice of it.
        """
        choice = self._complete(ids, max_tokens=1, temperature=0, prompt_logprobs=top)
        places = choice.prompt_places(ids)
        if len(places) < len(ids) or any(place.logprob is None for place in places[1:]):
            why = f"its prompt_logprobs have {len(places)} places for {len(ids)} tokens"
            raise UnshownError(self.of_text(ids, f"{why}, or not of these tokens. {self._remedy}"))
        return places[1:]

    def next(
        self, ids: Sequence[int], shows: bool = False, may_hide: bool = False, **options: Any
    ) -> Place:
        """The greedy token after these, under the options of the request.

        Args:
            ids: the tokens so far.
            shows: whether the server has shown log-probabilities, so that it has to.
            may_hide: whether it may show nothing of a part of a character; see `Place.hidden`.
            options: of the request.

        Raises:
            ServerError: it shows none where it has to, or does not name ids where it has.
        """
        choice = self._complete(ids, max_tokens=1, temperature=0, **options)
        place = next(iter(choice.places()), Place(choice.written, None, {}))
        if place.hidden and may_hide:
            return place
        names = [place.token, *place.shown]
        if shows and not place.shown:
            raise self._changed(ids, "shows no log-probability of the next token")
        if shows and self.names.by_id and None in map(self.names.token, names):
            raise self._changed(ids, f"names tokens {names[:3]}, and not by their ids")
        return place

    def _changed(self, ids: Sequence[int], does: str) -> ServerError:
        why = f"it {does}, other than when it was probed. See that it runs as it did then."
        return ServerError(self.of_text(ids, why))

    def write(self, ids: Sequence[int], tokens: int) -> str:
        """So many greedy tokens after these, as text."""
        return self._complete(ids, max_tokens=tokens, temperature=0).written

    def continued(self, prompt: Prompt, temperature: float) -> list[int]:
        """The tokens that follow the prompt, without what ends the text.

        They are those of the server's text where it names no ids, or hides some of the tokens.
        """
        answer = self._completion(
            prompt.ids,
            max_tokens=prompt.tokens,
            temperature=temperature,
            seed=prompt.seed % 2**31,  # as many as every server takes
            top_p=1,
            **({"logprobs": 1} if self.dialect.names_ids else {}),
        )
        choice = answer.choices[0]
        named = [self.names.token(place.token) for place in choice.places()]
        ids: list[int] = [token for token in named if token is not None]
        if not self.dialect.names_ids or len(named) < (answer.wrote or 0):
            ids = self.tokenizer(choice.written, add_special_tokens=False)["input_ids"]
        elif len(ids) < len(named):
            raise ServerError(self.of_text(prompt.ids, f"it writes no ids. {self._remedy}"))
        end = self.tokenizer.eos_token_id
        return ids[: ids.index(end)] if end in ids else ids

    def sendable(self, ids: Sequence[int]) -> bool:
        """Whether the server reads these tokens: as ids, or in a text that has no others."""
        return self.dialect.ids or is_whole(self.tokenizer, ids)

    def unsendable(
        self, ids: Sequence[int], part: Sequence[int], texts: int, of: int, parts: int
    ) -> str:
        """An error about what can't be sent as text, in words.

        Args:
            ids: the first text of which something can't be.
            part: what of it.
            texts: how many texts have such parts.
            of: of how many.
            parts: how many such parts they have.
        """
        found = len(self.tokenizer(self._text(part))["input_ids"])
        return self.of_text(
            ids,
            f"the first {len(part)} tokens can't be asked about. The server takes nothing but "
            f"text, and the text of these, which ends with {self._text(part)[-20:]!r}, has other "
            f"tokens ({found}). So it is with {parts} beginnings of {texts} of the {of} texts. "
            "Leave these texts out, or give a server that takes token ids, or one that shows "
            "the log-probabilities of whole texts.",
        )

    def of_text(self, ids: Sequence[int], why: str) -> str:
        """An error about one text, in words."""
        start, server = self._text(ids)[:60], self.client.server.url
        return self.client.hidden(
            f"{self.client.field}.url is {server!r}: of the text {start!r} {why}"
        )

    def misread(self, ids: Sequence[int]) -> str:
        """An error about a text that the server goes on with otherwise than with its tokens."""
        why = "it goes on otherwise with the text than with the tokenizer's ids"
        return self.of_text(ids, f"{why}. {self._remedy}")

    def _complete(self, ids: Sequence[int], **options: Any) -> Choice:
        """The first choice of an answer to these tokens."""
        return self._completion(ids, **options).choices[0]

    def _completion(self, ids: Sequence[int], **options: Any) -> Completion:
        """An answer to these tokens, which the server counts as this does."""
        body = {"model": self.name, "prompt": self._prompt(ids), **options}
        answer = self._answer("completions", body, Completion, ids)
        self._check_count(answer, ids, len(ids))
        return answer

    def _answer(
        self, path: str, body: dict[str, Any], kind: type[Completion], ids: Sequence[int]
    ) -> Completion:
        """The answer to this body about these tokens."""
        if self.dialect.names_ids:
            body["return_tokens_as_token_ids"] = True
        try:
            return self.client.post(path, body, kind, self.trying)
        except RefusedError as error:
            raise self._explained(error, ids) from None

    def _check_count(self, answer: Completion, ids: Sequence[int], expected: int) -> None:
        """Raise a ServerError where the server counts another number of tokens."""
        if answer.counted not in (None, expected):
            why = f"it counts {answer.counted} tokens, the tokenizer {expected}. {self._remedy}"
            raise ServerError(self.of_text(ids, why))

    def _prompt(self, ids: Sequence[int]) -> list[int] | str:
        """The ids, or the text without the special tokens that the server itself adds."""
        if not self.sendable(ids):
            raise ServerError(self.unsendable(ids, ids, 1, 1, 1))
        return list(ids) if self.dialect.ids else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def _remedy(self) -> str:
        return (
            f"Give the model's own tokenizer ({self.client.field}.tokenizer), and a server that "
            "adds the special tokens which that one adds."
        )

    def _explained(self, error: RefusedError, ids: Sequence[int]) -> ServerError:
        words = error.words.lower()
        if error.http_status == 400 and ("context" in words or "too long" in words):
            return RefusedError(
                f"{error} A text of {len(ids)} tokens is too long for it: shorten it, or start the "
                "server with a longer context.", error.http_status, error.words,
            )  # fmt: skip
        return error


def is_whole(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Whether these are the tokens of their own text."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return bool(tokenizer(text)["input_ids"] == list(ids))


def served_model(client: Client, name: str | None) -> Model:
    """What the server says of the model `name`, or of its only one.

    Some servers list no models, or others than they run: one that is named is asked for anyway,
    with a warning, and is an `Unlisted`.

    Raises:
        ConfigError: none is named where there is not one alone, or the key is refused.
    """
    where = f"{client.field}.url is {client.server.url!r}"
    try:
        listed = {model.id: model for model in client.get("models", Models).data}
        words = near_names(str(name), listed) if listed else "It lists none."
    except RefusedError as error:
        if error.http_status in (401, 403):
            raise ConfigError(str(error)) from None
        listed, words = {}, f"{client.url}/models gives no list of models ({error})."
        if name is None:
            raise ConfigError(client.hidden(
                f"{where}: {words} Give the address that stands before /completions, such as "
                f"http://localhost:8000/v1, and {client.field}.name where it lists no models."
            )) from None  # fmt: skip
    if name is None and len(listed) == 1:
        return next(iter(listed.values()))
    if name is None:
        why = f"the server has several. {words}" if listed else "the server lists no models."
        remedy = f"{why} Give the name of the one that is meant."
        raise ConfigError(client.hidden(f"{client.field}.name is None: {remedy}"))
    if name in listed:
        return listed[name]
    words = client.hidden(words)
    log.warning("%s: it does not list the model %r, and is asked for it. %s", where, name, words)
    return Unlisted(id=name, words=words)
