"""The OpenAI-compatible protocol: `/models` and `/completions`.

vLLM writes tokens by their ids where it is asked to (`return_tokens_as_token_ids`); others write
their text, which several tokens may share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, ServerError, near_names
from detection.model.language_model import Prompt
from detection.model.served.client import Client, RefusedError

ID = "token_id:"
IMPOSSIBLE = -9999.0
"""What vLLM writes for −∞, which JSON lacks."""


@dataclass(frozen=True)
class Place:
    """What a server shows of one place of a text.

    Attributes:
        token: the token that is there, as the server writes it.
        logprob: its log-probability in nats; None: not shown.
        top: the likeliest tokens' log-probabilities, perhaps with the token's own.
    """

    token: str
    logprob: float | None
    top: Mapping[str, float]

    @property
    def own(self) -> float:
        """The token's log-probability.

        Raises:
            ServerError: it is not shown.
        """
        if self.logprob is None:
            raise ServerError(f"The server shows no log-probability of the token {self.token!r}.")
        return self.logprob

    @property
    def shown(self) -> dict[str, float]:
        """The log-probabilities of the likeliest tokens and of the one that is there."""
        own = {} if self.logprob is None else {self.token: self.logprob}
        return {**self.top, **own}

    def best(self) -> tuple[float, int]:
        """The likeliest token's log-probability, and its id: the lowest where several are."""
        named = ((logprob, -int(name.removeprefix(ID))) for name, logprob in self.top.items())
        logprob, token = max(named)
        return logprob, -token


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
    """

    def __init__(self, client: Client, name: str, tokenizer: Any, dialect: Dialect) -> None:
        self.client, self.name, self.tokenizer = client, name, tokenizer
        self.dialect = dialect

    def prompt(self, ids: Sequence[int], top: int) -> list[Place]:
        """What the server shows of the text's tokens after the first.

        Raises:
            RefusedError: it shows nothing of prompts.
            ServerError: it counts other tokens, or shows no log-probability of one.
        """
        choice = self._complete(ids, echo=True, max_tokens=0, logprobs=top)
        places = _places(choice)[: len(ids)]
        if len(places) < len(ids):
            raise self._cut(ids, f"it shows {len(places)} of {len(ids)} tokens")
        for token, place in zip(ids, places, strict=True):
            if place.token.startswith(ID) and place.token != f"{ID}{token}":
                raise self._cut(ids, f"it reads {place.token} where {token} was sent")
        return places[1:]

    def next(self, ids: Sequence[int], **options: Any) -> Place:
        """The greedy token after these, under the options of the request."""
        choice = self._complete(ids, max_tokens=1, temperature=0, **options)
        places = _places(choice)
        return places[0] if places else Place(str(choice.get("text", "")), None, {})

    def write(self, ids: Sequence[int], tokens: int) -> str:
        """So many greedy tokens after these, as text."""
        return str(self._complete(ids, max_tokens=tokens, temperature=0).get("text", ""))

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
        ids: list[int] = [int(place.token.removeprefix(ID)) for place in _places(choice)]
        if not self.dialect.names_ids:
            text = str(choice.get("text", ""))
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        end = self.tokenizer.eos_token_id
        return ids[: ids.index(end)] if end in ids else ids

    def name_of(self, token: int) -> str:
        """The token as the server writes it."""
        return f"{ID}{token}" if self.dialect.names_ids else str(self.tokenizer.decode([token]))

    def token(self, name: str) -> int | None:
        """The only token that the server writes so; None: the name does not tell."""
        if self.dialect.names_ids:
            return int(name.removeprefix(ID))
        ids = self.tokenizer(name, add_special_tokens=False)["input_ids"]
        return ids[0] if len(ids) == 1 and self.name_of(ids[0]) == name else None

    def unseen(self, ids: Sequence[int]) -> ServerError:
        """The error where no bias makes the last token the server's choice."""
        token = self.name_of(ids[-1])
        return self._cut(ids, f"no bias shows the last token, {token!r}")

    def _complete(self, ids: Sequence[int], **options: Any) -> dict[str, Any]:
        """The only choice of an answer to these tokens, which the server counts as this does."""
        body = {"model": self.name, "prompt": self._prompt(ids), **options}
        if self.dialect.names_ids:
            body["return_tokens_as_token_ids"] = True
        try:
            answer = self.client.post("completions", body)
            choice = answer["choices"][0]
            counted = (answer.get("usage") or {}).get("prompt_tokens", len(ids))
        except RefusedError as error:
            raise self._explained(error, ids) from None
        except (LookupError, TypeError, AttributeError) as error:
            raise self._cut(ids, "the answer has no choices") from error
        if counted != len(ids):
            raise self._cut(ids, f"it counts {counted} tokens, the tokenizer {len(ids)}")
        return dict(choice)

    def _prompt(self, ids: Sequence[int]) -> list[int] | str:
        """The ids, or the text without the special tokens that the server itself adds."""
        if self.dialect.ids:
            return list(ids)
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
        if self.tokenizer(text)["input_ids"] != list(ids):
            raise self._cut(
                ids,
                "the tokens are not those of their text: they can't be sent as text, and "
                "it takes nothing else",
            )
        return text

    def _cut(self, ids: Sequence[int], why: str) -> ServerError:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return ServerError(
            f"{self.client.field}.url is {self.client.server.url!r}: of the text {text[:60]!r} "
            f"{why}. Give the model's own tokenizer ({self.client.field}.tokenizer), and a server "
            "that adds the special tokens which that one adds."
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


def _places(choice: Mapping[str, Any]) -> list[Place]:
    """What a choice shows, a place a token; none where it shows none."""
    shown = choice.get("logprobs") or {}
    tokens, own = shown.get("tokens") or [], shown.get("token_logprobs") or []
    tops = shown.get("top_logprobs") or [None] * len(tokens)
    return [
        Place(
            str(token),
            None if logprob is None else _number(logprob),
            {name: _number(v) for name, v in (top or {}).items() if v is not None},
        )
        for token, logprob, top in zip(tokens, own, tops, strict=False)
    ]


def _number(logprob: float) -> float:
    return float("-inf") if logprob <= IMPOSSIBLE else float(logprob)


def served_model(client: Client, name: str | None) -> dict[str, Any]:
    """What the server says of the model `name`, or of its only one.

    Raises:
        ConfigError: there is none of that name, or no list of names at this address.
    """
    try:
        listed: list[dict[str, Any]] = client.get("models")["data"]
        found = {str(one["id"]): one for one in listed}
    except (RefusedError, LookupError, TypeError) as error:
        if isinstance(error, RefusedError) and error.status in (401, 403):
            raise ConfigError(str(error)) from None
        raise ConfigError(
            f"{client.field}.url is {client.server.url!r}: {client.url}/models gives no list of "
            f"models ({error}). Give the address that stands before /completions, such as "
            "http://localhost:8000/v1."
        ) from None
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise ConfigError(
            f"{client.field}.name is {name!r}: the server has no such model. "
            f"{near_names(str(name), found)}"
        )
    return found[name]
