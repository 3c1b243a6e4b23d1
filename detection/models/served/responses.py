"""What a server of OpenAI's completions protocol answers: the fields that are read, checked.

What has another form is an error that names the server, the field, its value and the remedy. A
field that is not read may hold anything.
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

from contamination.detection.passes import LEAST

ABOVE = 1e-3
"""Nats: how far rounding may bring the logarithm of a probability of 1 above 0."""
QUOTED = 60
"""Signs of a wrong value that an error quotes."""


def _checked(nats: float) -> float:
    """A log-probability; one of a probability that is 0 in float32, however written, is LEAST.

    JSON has no −∞: vLLM writes −9999 for it, others the least number that they have.
    """
    if not nats <= ABOVE:
        raise ValueError("a log-probability is a number of at most 0")
    return max(LEAST, nats)


LogProb = Annotated[float, AfterValidator(_checked)]


def id_name(token: int) -> str:
    """A token as servers write it that name tokens by their ids."""
    return f"token_id:{token}"


TokenId = Annotated[str, StringConstraints(pattern=r"^\d{1,9}$")]


class Reply(BaseModel):
    """A part of an answer. No field is read as another type than its own."""

    model_config = ConfigDict(strict=True, frozen=True)


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
        """The token's log-probability, by a server that shows those of a text.

        What it leaves out is −∞, which JSON lacks as well.
        """
        return LEAST if self.logprob is None else self.logprob

    @property
    def hidden(self) -> bool:
        """Whether nothing is shown of a part of a character, as by llama.cpp's server."""
        return not self.shown and "\ufffd" in self.token

    @property
    def shown(self) -> dict[str, float]:
        """The log-probabilities of the likeliest tokens and of the one that is there."""
        own = {} if self.logprob is None else {self.token: self.logprob}
        return {**self.top, **own}


class Listed(Reply):
    """A token and its log-probability in the form of chats; llama.cpp adds the id."""

    token: str
    id: int | None = Field(default=None, ge=0)
    logprob: LogProb | None

    @property
    def name(self) -> str:
        """The token as servers write it that name tokens by their ids, else its text."""
        return self.token if self.id is None else id_name(self.id)


class Written(Listed):
    """The same of a token that is there, with the likeliest of its place."""

    top_logprobs: list[Listed] | None = None

    def place(self) -> Place:
        """What is shown of its place."""
        top = {one.name: one.logprob for one in self.top_logprobs or ()}
        return Place(self.name, self.logprob, {n: v for n, v in top.items() if v is not None})


class Shown(Reply):
    """Log-probabilities, a place a token, in one of two forms; none where the server shows none.

    Completions have `tokens`, `token_logprobs` and `top_logprobs`; chats have `content`, which
    llama.cpp's server uses for completions as well. A proxy may send the other form's fields as
    nulls. An empty list is that of an answer without tokens.
    """

    content: list[Written] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[LogProb | None] | None = None
    top_logprobs: list[dict[str, LogProb | None] | None] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_form(cls, given: Any) -> Any:
        """An answer in another form shows something: it must not be taken for one with nothing."""
        if not isinstance(given, dict) or not given:  # an empty object shows nothing
            return given
        if all(given.get(name) is None for name in cls.model_fields):
            raise ValueError(
                f"log-probabilities in an unknown form, with the fields {[*given][:5]}; known are "
                "tokens with token_logprobs, and content. Where there are none, logprobs is null"
            )
        return given

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        tokens, numbers = len(self.tokens or ()), len(self.token_logprobs or ())
        tops = tokens if self.top_logprobs is None else len(self.top_logprobs)
        if not tokens == numbers == tops:
            raise ValueError(
                f"{tokens} tokens, {numbers} token_logprobs and {tops} top_logprobs, of which "
                "there must be as many"
            )
        return self

    def places(self) -> list[Place]:
        """What is shown of each place."""
        if self.content is not None:
            return [token.place() for token in self.content]
        tokens = self.tokens or []
        tops = self.top_logprobs or [None] * len(tokens)
        return [
            Place(token, own, {n: v for n, v in (top or {}).items() if v is not None})
            for token, own, top in zip(tokens, self.token_logprobs or (), tops, strict=True)
        ]


def _check_unread(given: Any, choices: Any, known: Collection[str]) -> Any:
    """Refuse log-probabilities in another field than those that are read, which are empty.

    llama.cpp's own /completion has `completion_probabilities`, others `token_logprobs`.
    """
    if not isinstance(given, dict) or any(_shows(choice) for choice in choices):
        return given
    for name, value in given.items():
        if "prob" in name and name not in known and isinstance(value, dict | list) and value:
            raise ValueError(
                f"log-probabilities are in {name}, where they are not read; known are "
                "choices[0].logprobs and choices[0].prompt_logprobs"
            )
    return given


def _shows(choice: Any) -> bool:
    return isinstance(choice, dict) and bool(
        choice.get("logprobs") or choice.get("prompt_logprobs")
    )


class OfPrompt(Reply):
    """What `prompt_logprobs` shows of one token."""

    logprob: LogProb


class Message(Reply):
    """What a chat says."""

    content: str


class Choice(Reply):
    """One continuation, perhaps with the prompt before it, or one answer of a chat."""

    text: str | None = None
    message: Message | None = None
    logprobs: Shown | None = None
    prompt_logprobs: list[dict[TokenId, OfPrompt] | None] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_no_others(cls, given: Any) -> Any:
        return _check_unread(given, [given], cls.model_fields)

    @property
    def written(self) -> str:
        """The text."""
        return self.message.content if self.message else self.text or ""

    def places(self) -> list[Place]:
        """What it shows, a place a token; none where it shows none."""
        return [] if self.logprobs is None else self.logprobs.places()

    def prompt_places(self, ids: Sequence[int]) -> list[Place]:
        """What `prompt_logprobs` shows of these tokens of the prompt, named by their ids."""
        shown = [
            {id_name(int(token)): one.logprob for token, one in (place or {}).items()}
            for place in self.prompt_logprobs or ()
        ]
        names = map(id_name, ids)
        return [Place(n, top.get(n), top) for n, top in zip(names, shown, strict=False)]


class Usage(Reply):
    """What was counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Completion(Reply):
    """The answer of /completions and of /chat/completions."""

    choices: Sequence[Choice] = Field(min_length=1)
    usage: Usage | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_no_others(cls, given: Any) -> Any:
        choices = given.get("choices") if isinstance(given, dict) else None
        return _check_unread(given, choices if isinstance(choices, list) else [], ())

    @property
    def counted(self) -> int | None:
        """The tokens of what was sent, by the server's count; None: it gives none."""
        return self.usage.prompt_tokens if self.usage else None

    @property
    def wrote(self) -> int | None:
        """The tokens that it wrote, by the server's count; None: it gives none."""
        return self.usage.completion_tokens if self.usage else None


class Said(Choice):
    """One answer of a chat."""

    message: Message


class Chat(Completion):
    """The answer of /chat/completions."""

    choices: Sequence[Said] = Field(min_length=1)


class Meta(Reply):
    """What llama.cpp's server says of a model."""

    n_ctx: int | None = Field(default=None, ge=1)


class Model(Reply):
    """A model that the server has."""

    id: str
    max_model_len: int | None = Field(default=None, ge=1)
    meta: Meta | None = None

    @property
    def context(self) -> int | None:
        """The most tokens that it takes; None: not said."""
        return self.max_model_len or (self.meta.n_ctx if self.meta else None)


class Unlisted(Model):
    """A model that the server does not list, or a server without a list.

    Attributes:
        words: what its list says instead, for an error where the server refuses the name.
    """

    words: str


class Models(Reply):
    """The answer of /models."""

    data: list[Model]


def fault(error: ValidationError) -> str:
    """The first thing that is wrong with an answer: which field, its value, and why."""
    first: Any = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole answer"
    value = repr(first["input"])
    value = value if len(value) <= QUOTED else f"{value[:QUOTED]}…"
    if first["type"] == "missing":
        return f"{where} is missing in {value}"
    words = first["msg"].removeprefix("Value error, ")
    words = re.sub(r"a valid dictionary( or instance of \w+)?", "an object", words)
    return f"{where} is {value}: {words[:1].lower()}{words[1:]}"


ID = re.compile(r"token_id:(\d{1,9})")


class Names:
    """The names of a vocabulary's tokens.

    Args:
        tokenizer: the model's.
        by_id: whether the server writes ids.
    """

    def __init__(self, tokenizer: Any, by_id: bool) -> None:
        self.tokenizer, self.by_id, self._lock = tokenizer, by_id, Lock()

    def of(self, token: int) -> str:
        """The token as the server writes it."""
        return id_name(token) if self.by_id else self.text(token)

    def text(self, token: int) -> str:
        """The token's text, with U+FFFD for a part of a character."""
        return str(self.tokenizer.decode([token]))

    def token(self, name: str) -> int | None:
        """The only token that is written so; None: the name does not tell."""
        if self.by_id:
            found = ID.fullmatch(name)
            return None if found is None else int(found[1])
        with self._lock:
            return self._alone.get(name)

    def tells(self, token: int) -> bool:
        """Whether no other token is written so."""
        return self.token(self.of(token)) == token

    def some(self, beside: int) -> int | None:
        """A letter or a word that tells, another token than this."""
        with self._lock:
            told = (token for name, token in self._alone.items() if name.isalpha())
            return next((token for token in told if token != beside), None)

    def reads(self, names: list[str], ids: list[int]) -> bool:
        """Whether these are the tokens: of text, most of them, as white space may be marked."""
        if len(names) < len(ids):
            return False
        if self.by_id:
            return [self.token(name) for name in names[: len(ids)]] == ids
        same = (_bare(n) == _bare(self.of(i)) for n, i in zip(names, ids, strict=False))
        return sum(same) >= len(ids) / 2

    @cached_property
    def _alone(self) -> dict[str, int]:
        """The tokens whose name no other has."""
        ids = sorted(self.tokenizer.get_vocab().values())
        names = self.tokenizer.batch_decode([[token] for token in ids])
        shared = Counter(names)
        return {n: token for n, token in zip(names, ids, strict=True) if shared[n] == 1}


def _bare(name: str) -> str:
    return name.strip(" ▁Ġ\n")
