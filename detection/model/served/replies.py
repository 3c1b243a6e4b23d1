"""What a server of OpenAI's completions protocol answers: the fields that are read, checked.

What has another form is an error that names the server, the field, its value and the remedy. A
field that is not read may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from detection.passes import LEAST

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
    def shown(self) -> dict[str, float]:
        """The log-probabilities of the likeliest tokens and of the one that is there."""
        own = {} if self.logprob is None else {self.token: self.logprob}
        return {**self.top, **own}


class Shown(Reply):
    """Log-probabilities, a place a token; none where the server shows none."""

    tokens: list[str] = []
    token_logprobs: list[LogProb | None] = []
    top_logprobs: list[dict[str, LogProb | None] | None] | None = None

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        tops = len(self.tokens) if self.top_logprobs is None else len(self.top_logprobs)
        if not len(self.tokens) == len(self.token_logprobs) == tops:
            raise ValueError(
                f"{len(self.tokens)} tokens, {len(self.token_logprobs)} token_logprobs and {tops} "
                "top_logprobs, of which there must be as many"
            )
        return self

    def places(self) -> list[Place]:
        """What is shown of each place."""
        tops = self.top_logprobs or [None] * len(self.tokens)
        return [
            Place(token, own, {n: v for n, v in (top or {}).items() if v is not None})
            for token, own, top in zip(self.tokens, self.token_logprobs, tops, strict=True)
        ]


class Choice(Reply):
    """One continuation, perhaps with the prompt before it."""

    text: str | None = None
    logprobs: Shown | None = None

    def places(self) -> list[Place]:
        """What it shows, a place a token; none where it shows none."""
        return [] if self.logprobs is None else self.logprobs.places()


class Usage(Reply):
    """What was counted."""

    prompt_tokens: int | None = None


class Completion(Reply):
    """The answer of /completions."""

    choices: list[Choice] = Field(min_length=1)
    usage: Usage | None = None


class Message(Reply):
    """What a chat says."""

    content: str


class Said(Reply):
    """One answer of a chat."""

    message: Message


class Chat(Reply):
    """The answer of /chat/completions."""

    choices: list[Said] = Field(min_length=1)


class Model(Reply):
    """A model that the server has."""

    id: str
    max_model_len: int | None = Field(None, ge=1)


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
