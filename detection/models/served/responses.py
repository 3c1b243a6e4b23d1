"""Validates the answers of servers of OpenAI's completions protocol.

An answer of another form is an error that names the server, the field, its value and the remedy.
Fields that are not read may have any value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from contamination.detection.passes import LOWEST_LOGPROB

LOGPROB_ROUNDING = 1e-3
"""Nats: how far above 0 rounding may bring the logarithm of a probability of 1."""
MAX_QUOTED = 60
"""The maximum number of characters of a wrong value that an error quotes."""
MAX_CHOICES = 128
"""The maximum number of choices in an answer; one is requested."""
MAX_MODELS, MAX_NAME = 10_000, 1000
"""The maximum number of models in a server's list, and of characters in a model's name."""
FAILURES = ("content_filter", "error", "abort")
"""The values of `finish_reason` of a text that the model did not write to its end."""


def _check_logprob(nats: float) -> float:
    """Returns a log-probability, or LOWEST_LOGPROB for a probability that is 0 in float32.

    JSON has no −∞: vLLM writes −9999 instead, and others write their smallest number.
    """
    if not nats <= LOGPROB_ROUNDING:
        raise ValueError("a log-probability is a number of at most 0")
    return max(LOWEST_LOGPROB, nats)


LogProb = Annotated[float, AfterValidator(_check_logprob)]


def _check_text(text: str) -> str:
    """Returns the text if UTF-8 can encode it; JSON may contain half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text is valid Unicode ({error.reason})") from error
    return text


Text = Annotated[str, AfterValidator(_check_text)]


def token_id_name(token: int) -> str:
    """Returns the name of a token at a server that names tokens by their ids."""
    return f"token_id:{token}"


TokenId = Annotated[str, StringConstraints(pattern=r"^\d{1,9}$")]


class Reply(BaseModel):
    """A part of an answer, validated without type conversions."""

    model_config = ConfigDict(strict=True, frozen=True)


@dataclass(frozen=True)
class TokenPosition:
    """A token of a text and the log-probabilities at its position.

    Attributes:
        token: the token at the position, as the server writes it.
        logprob: its log-probability in nats; None if it is not shown.
        top: the likeliest tokens' log-probabilities, which may include the token's own.
    """

    token: str
    logprob: float | None
    top: Mapping[str, float]

    @property
    def prompt_logprob(self) -> float:
        """The log-probability of a token of a prompt; a missing one means −∞, which JSON lacks."""
        return LOWEST_LOGPROB if self.logprob is None else self.logprob

    @property
    def is_hidden(self) -> bool:
        """Whether the server shows nothing because the token is a part of a character."""
        return not self.logprobs and "\ufffd" in self.token

    @property
    def logprobs(self) -> dict[str, float]:
        """The log-probabilities of the likeliest tokens and of the token at the position."""
        at_position = {} if self.logprob is None else {self.token: self.logprob}
        return {**self.top, **at_position}


class TopLogprob(Reply):
    """A token and its log-probability in the format of chats; llama.cpp adds the id."""

    token: str
    id: int | None = Field(default=None, ge=0)
    logprob: LogProb | None

    @property
    def name(self) -> str:
        """The token's name by its id if there is one, else its text."""
        return self.token if self.id is None else token_id_name(self.id)


class TokenLogprob(TopLogprob):
    """The token at a position, with the likeliest tokens there."""

    top_logprobs: list[TopLogprob] | None = Field(default=None, fail_fast=True)

    def position(self) -> TokenPosition:
        """Returns the token and the log-probabilities at its position."""
        top = {token.name: token.logprob for token in self.top_logprobs or ()}
        return TokenPosition(self.name, self.logprob, _without_none(top))


def _without_none(logprobs: Mapping[str, float | None]) -> dict[str, float]:
    return {name: logprob for name, logprob in logprobs.items() if logprob is not None}


class Logprobs(Reply):
    """Log-probabilities, one position per token, in one of two formats.

    Completions have `tokens`, `token_logprobs` and `top_logprobs`. Chats have `content`, which
    llama.cpp's server also uses for completions. A proxy may send the other format's fields as
    null. An empty list belongs to an answer without tokens.
    """

    content: list[TokenLogprob] | None = Field(default=None, fail_fast=True)
    tokens: list[str] | None = Field(default=None, fail_fast=True)
    token_logprobs: list[LogProb | None] | None = Field(default=None, fail_fast=True)
    top_logprobs: list[dict[str, LogProb | None] | None] | None = Field(
        default=None, fail_fast=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_format(cls, answer: Any) -> Any:
        """Refuses unknown fields, which must not be read as an answer without numbers."""
        if not isinstance(answer, dict) or not answer:  # an empty object has no numbers
            return answer
        if all(answer.get(name) is None for name in cls.model_fields):
            raise ValueError(
                f"log-probabilities in an unknown form, with the fields {[*answer][:5]}; known are "
                "tokens with token_logprobs, and content. If there are none, logprobs is null"
            )
        return answer

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        tokens, numbers = len(self.tokens or ()), len(self.token_logprobs or ())
        tops = tokens if self.top_logprobs is None else len(self.top_logprobs)
        if not tokens == numbers == tops:
            raise ValueError(
                f"{tokens} tokens, {numbers} token_logprobs and {tops} top_logprobs, whose "
                "numbers must be equal"
            )
        return self

    def positions(self) -> list[TokenPosition]:
        """Returns the tokens and log-probabilities of all positions."""
        if self.content is not None:
            return [token.position() for token in self.content]
        tokens = self.tokens or []
        tops = self.top_logprobs or [None] * len(tokens)
        return [
            TokenPosition(token, logprob, _without_none(top or {}))
            for token, logprob, top in zip(tokens, self.token_logprobs or (), tops, strict=True)
        ]


def _check_unread_logprobs(answer: Any, choices: Any, fields: Collection[str]) -> Any:
    """Refuses log-probabilities in another field if those that are read are empty.

    llama.cpp's own /completion has `completion_probabilities`, others have `token_logprobs`.
    """
    if not isinstance(answer, dict) or any(_has_logprobs(choice) for choice in choices):
        return answer
    for name, value in answer.items():
        if "prob" in name and name not in fields and isinstance(value, dict | list) and value:
            raise ValueError(
                f"log-probabilities are in {name}, which is not read; known are "
                "choices[0].logprobs and choices[0].prompt_logprobs"
            )
    return answer


def _has_logprobs(choice: Any) -> bool:
    return isinstance(choice, dict) and bool(
        choice.get("logprobs") or choice.get("prompt_logprobs")
    )


class PromptTokenLogprob(Reply):
    """An entry of `prompt_logprobs`."""

    logprob: LogProb


class Message(Reply):
    """The message of a chat's answer."""

    content: Text


class Choice(Reply):
    """One continuation, with or without the prompt before it, or one answer of a chat."""

    text: Text | None = None
    message: Message | None = None
    finish_reason: Any = None
    error: Any = None
    logprobs: Logprobs | None = None
    prompt_logprobs: list[dict[TokenId, PromptTokenLogprob] | None] | None = Field(
        default=None, fail_fast=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_other_fields(cls, choice: Any) -> Any:
        return _check_unread_logprobs(choice, [choice], cls.model_fields)

    @property
    def written(self) -> str:
        """The generated text; empty if there is none."""
        return self.message.content if self.message else self.text or ""

    @property
    def has_text(self) -> bool:
        """Whether the answer has a text, which may be empty."""
        return self.message is not None or self.text is not None

    def positions(self) -> list[TokenPosition]:
        """Returns the positions with log-probabilities; none if the server shows none."""
        return [] if self.logprobs is None else self.logprobs.positions()

    def prompt_positions(self, ids: Sequence[int]) -> list[TokenPosition]:
        """Returns the positions of the prompt's tokens in `prompt_logprobs`, named by their ids."""
        tops = [
            {token_id_name(int(token)): entry.logprob for token, entry in (entries or {}).items()}
            for entries in self.prompt_logprobs or ()
        ]
        names = map(token_id_name, ids)
        return [TokenPosition(n, top.get(n), top) for n, top in zip(names, tops, strict=False)]


class Usage(Reply):
    """The server's token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Completion(Reply):
    """An answer of /completions or /chat/completions."""

    choices: list[Choice] = Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)
    usage: Usage | None = None
    error: Any = None

    @model_validator(mode="before")
    @classmethod
    def _check_other_fields(cls, answer: Any) -> Any:
        choices = answer.get("choices") if isinstance(answer, dict) else None
        choices = choices[:MAX_CHOICES] if isinstance(choices, list) else []
        return _check_unread_logprobs(answer, choices, ())

    @property
    def failure(self) -> str | None:
        """Why the text is not the model's own, in the server's words; None if it is.

        A server may refuse a text, or fail, with the status 200.
        """
        choice = self.choices[0]
        if error := self.error or choice.error:
            return f"error is {error!r:.300}"
        reason = choice.finish_reason
        failed = isinstance(reason, str) and reason.lower() in FAILURES
        return f"finish_reason is {reason!r}" if failed else None

    @property
    def prompt_token_count(self) -> int | None:
        """The number of tokens sent, as counted by the server; None if it gives no count."""
        return self.usage.prompt_tokens if self.usage else None

    @property
    def completion_token_count(self) -> int | None:
        """The number of generated tokens, as counted by the server; None if it gives no count."""
        return self.usage.completion_tokens if self.usage else None


class ChatChoice(Choice):
    """One answer of a chat."""

    message: Message


class ChatCompletion(Completion):
    """An answer of /chat/completions."""

    choices: list[ChatChoice] = Field(  # type: ignore[assignment]
        min_length=1, max_length=MAX_CHOICES, fail_fast=True
    )


class LlamaCppMeta(Reply):
    """The metadata of a model at llama.cpp's server."""

    n_ctx: int | None = Field(default=None, ge=1)


class ServerModel(Reply):
    """A model in the server's list."""

    id: Annotated[str, StringConstraints(max_length=MAX_NAME), AfterValidator(_check_text)]
    max_model_len: int | None = Field(default=None, ge=1)
    meta: LlamaCppMeta | None = None

    @property
    def context(self) -> int | None:
        """The maximum number of tokens; None if the server does not state it."""
        return self.max_model_len or (self.meta.n_ctx if self.meta else None)


class UnlistedModel(ServerModel):
    """A model that the server does not list, or whose server has no list.

    Attributes:
        list_note: a sentence about the list, for an error if the server refuses the name.
    """

    list_note: str


class ModelList(Reply):
    """An answer of /models."""

    data: list[ServerModel] = Field(max_length=MAX_MODELS, fail_fast=True)


def validation_message(error: ValidationError) -> str:
    """Returns the first problem of an answer: the field, its value, and the reason."""
    first: Any = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the whole answer"
    value = repr(first["input"])
    value = value if len(value) <= MAX_QUOTED else f"{value[:MAX_QUOTED]}…"
    if first["type"] == "missing":
        return f"{where} is missing in {value}"
    reason = first["msg"].removeprefix("Value error, ")
    reason = re.sub(r"a valid dictionary( or instance of \w+)?", "an object", reason)
    return f"{where} is {value}: {reason[:1].lower()}{reason[1:]}"


ID_PATTERN = re.compile(r"token_id:(\d{1,9})")


class TokenNames:
    """The names that a server gives to a vocabulary's tokens.

    Args:
        tokenizer: the model's tokenizer.
        by_id: whether the server names tokens by their ids, or else by their text.
    """

    def __init__(self, tokenizer: Any, by_id: bool) -> None:
        self.tokenizer, self.by_id, self._lock = tokenizer, by_id, Lock()

    def name(self, token: int) -> str:
        """Returns the token's name at the server."""
        return token_id_name(token) if self.by_id else self.text(token)

    def text(self, token: int) -> str:
        """Returns the token's text, with U+FFFD for a part of a character."""
        return str(self.tokenizer.decode([token]))

    def unique_token(self, name: str) -> int | None:
        """Returns the only token with this name; None if there is none, or several."""
        if self.by_id:
            match = ID_PATTERN.fullmatch(name)
            return None if match is None else int(match[1])
        with self._lock:
            return self._unique_tokens_by_name.get(name)

    def is_unique(self, token: int) -> bool:
        """Returns whether no other token has this token's name."""
        return self.unique_token(self.name(token)) == token

    @cached_property
    def max_characters(self) -> int:
        """The maximum number of characters that one token adds to a text."""
        return 1 + max(map(len, self.tokenizer.get_vocab()))  # some decoders add a blank

    def any_unique_token(self, excluded: int) -> int | None:
        """Returns a token other than `excluded` whose name is unique and consists of letters."""
        with self._lock:
            candidates = (t for name, t in self._unique_tokens_by_name.items() if name.isalpha())
            return next((token for token in candidates if token != excluded), None)

    def matches(self, names: list[str], ids: list[int]) -> bool:
        """Returns whether the names are those of the tokens.

        It is enough if half of the names agree, since servers may mark white space differently.
        """
        if len(names) < len(ids):
            return False
        if self.by_id:
            return [self.unique_token(name) for name in names[: len(ids)]] == ids
        same = (
            _without_space_marks(n) == _without_space_marks(self.name(i))
            for n, i in zip(names, ids, strict=False)
        )
        return sum(same) >= len(ids) / 2

    @cached_property
    def _unique_tokens_by_name(self) -> dict[str, int]:
        token_ids = sorted(self.tokenizer.get_vocab().values())
        names = self.tokenizer.batch_decode([[token_id] for token_id in token_ids])
        count_by_name = Counter(names)
        return {
            n: token_id
            for n, token_id in zip(names, token_ids, strict=True)
            if count_by_name[n] == 1
        }


def _without_space_marks(token_name: str) -> str:
    return token_name.strip(" ▁Ġ\n")
