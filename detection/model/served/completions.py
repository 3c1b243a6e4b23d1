"""The OpenAI-compatible protocol: `/models` and `/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, ServerError, near_names
from detection.model.language_model import Prompt
from detection.model.served.client import Client, RefusedError
from detection.model.served.names import Names
from detection.model.served.replies import Choice, Completion, Model, Models, Place


class UnshownError(ServerError):
    """The server shows no log-probabilities of the prompt: it may not know `echo`."""


@dataclass(frozen=True)
class Dialect:
    """What a server takes: prompts as token ids, or as text; tokens written by their ids."""

    ids: bool = True
    names_ids: bool = True


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
        return Completions(self.client, self.name, self.tokenizer, self.dialect, trying=True)

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

    def next(self, ids: Sequence[int], shows: bool = False, **options: Any) -> Place:
        """The greedy token after these, under the options of the request.

        Args:
            ids: the tokens so far.
            shows: whether the server has shown log-probabilities, so that it has to.
            options: of the request.

        Raises:
            ServerError: it shows none where it has to, or does not name ids where it has.
        """
        choice = self._complete(ids, max_tokens=1, temperature=0, **options)
        place = next(iter(choice.places()), Place(choice.text or "", None, {}))
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
        return self._complete(ids, max_tokens=tokens, temperature=0).text or ""

    def continued(self, prompt: Prompt, temperature: float) -> list[int]:
        """The tokens that follow the prompt, without what ends the text.

        They are those of the server's text where it names no ids.
        """
        choice = self._complete(
            prompt.ids,
            max_tokens=prompt.tokens,
            temperature=temperature,
            seed=prompt.seed % 2**31,  # as many as every server takes
            top_p=1,
            **({"logprobs": 1} if self.dialect.names_ids else {}),
        )
        named = [self.names.token(place.token) for place in choice.places()]
        ids: list[int] = [token for token in named if token is not None]
        if not self.dialect.names_ids:
            ids = self.tokenizer(choice.text or "", add_special_tokens=False)["input_ids"]
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
        """The first choice of an answer to these tokens, which the server counts as this does."""
        body = {"model": self.name, "prompt": self._prompt(ids), **options}
        if self.dialect.names_ids:
            body["return_tokens_as_token_ids"] = True
        try:
            answer = self.client.post("completions", body, Completion, self.trying)
        except RefusedError as error:
            raise self._explained(error, ids) from None
        counted = answer.usage.prompt_tokens if answer.usage else None
        if counted not in (None, len(ids)):
            why = f"it counts {counted} tokens, the tokenizer {len(ids)}. {self._remedy}"
            raise ServerError(self.of_text(ids, why))
        return answer.choices[0]

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
        if error.status == 404 and "chat" in words:
            return RefusedError(
                f"{error} It only chats, and a chat shows nothing of a given text: give a server "
                "with /completions.", error.status, error.words,
            )  # fmt: skip
        if error.status == 400 and ("context" in words or "too long" in words):
            return RefusedError(
                f"{error} A text of {len(ids)} tokens is too long for it: shorten it, or start the "
                "server with a longer context.", error.status, error.words,
            )  # fmt: skip
        return error


def is_whole(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Whether these are the tokens of their own text."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return bool(tokenizer(text)["input_ids"] == list(ids))


def served_model(client: Client, name: str | None) -> Model:
    """What the server says of the model `name`, or of its only one.

    Raises:
        ConfigError: there is none of that name, or no list of names at this address.
    """
    try:
        found = {one.id: one for one in client.get("models", Models).data}
    except RefusedError as error:
        if error.status in (401, 403):
            raise ConfigError(str(error)) from None
        raise ConfigError(
            f"{client.field}.url is {client.server.url!r}: {client.url}/models gives no list of "
            f"models ({error}). Give the address that stands before /completions, such as "
            "http://localhost:8000/v1."
        ) from None
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        why = "the server has no such model" if name or not found else "the server has several"
        known = near_names(str(name), found) if found else "It lists none: see that it runs one."
        raise ConfigError(client.hidden(f"{client.field}.name is {name!r}: {why}. {known}"))
    return found[name]
