"""The pass, the unit of cost: one forward of one model over one view of the examples.

A pass yields a few numbers for each token, never the logits; or what the model writes after a
text's first part. A method names the passes that it needs; what they yield reaches it as an
`Example`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Parameter = str | int | float | bool

LEAST = float(np.float32(-149 * np.log(2)))
"""Nats: the logarithm of the least float32, of a token whose probability a server calls 0."""


@dataclass(frozen=True, init=False)
class Pass:
    """Which model reads which view of a text, such as `Pass("target", "swap", n=5, seed=0)`.

    Attributes:
        model: the model's role: `target`, or another role that the configuration gives a path.
        view: what is made of the text before it is scored: a name of `detection.views.VIEWS`.
        parameters: the view's parameters, sorted by name.
    """

    model: str
    view: str
    parameters: tuple[tuple[str, Parameter], ...]

    def __init__(
        self, model: str = "target", view: str = "original", **parameters: Parameter
    ) -> None:
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "view", view)
        object.__setattr__(self, "parameters", tuple(sorted(parameters.items())))

    @property
    def key(self) -> str:
        """The pass in words, such as `target/swap?n=5&seed=0`: equal passes, equal keys."""
        return f"{self.model}/{self.view_key}"

    @property
    def view_key(self) -> str:
        """The key without the model's role: one model's pass is stored once for all its roles."""
        query = "&".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.view}?{query}" if query else self.view


ORIGINAL = Pass()


class TokenStats:
    """What one forward says of a text of T tokens; entry i is about token i + 2 of 1..T.

    Every array has shape (T-1,); the first token is never scored. Units are nats. A model may give
    some of these numbers only. With p its next-token distribution before the entry's token, from
    float32 logits:

    Attributes:
        logprob: log p of the token that is there.
        mean: μ, the mean of log p(v) over the vocabulary, v drawn from p.
        std: σ, the standard deviation of log p(v), v drawn from p; never 0.
        top_logprob: log p of the most probable token.
        top_id: the most probable token, the lowest id where several are.
    """

    logprob: Floats
    mean: Floats
    std: Floats
    top_logprob: Floats
    top_id: Ids

    def __init__(self, *columns: Any, **named: Any) -> None:
        self.__dict__.update(zip(NUMBERS, columns, strict=False), **named)

    def __len__(self) -> int:
        return len(self.logprob)

    def scored_tokens(self) -> int:
        """How many tokens of the text are scored."""
        return len(self)

    def __getitem__(self, part: slice) -> TokenStats:
        return TokenStats(**{name: column[part] for name, column in vars(self).items()})

    def __getattr__(self, name: str) -> Any:  # asked for what is not there
        if name not in NUMBERS:
            raise AttributeError(name)
        given = ", ".join(vars(self)) or "none"
        raise UndeclaredNumberError(
            f"{name} was read but is not there; there are: {given}. Add it to the method's "
            "`numbers`."
        )

    @staticmethod
    def joined(pieces: Sequence[TokenStats]) -> TokenStats:
        """The pieces' entries, one piece after another."""
        columns = {n: [vars(piece)[n] for piece in pieces] for n in vars(pieces[0])}
        return TokenStats(**{name: np.concatenate(parts) for name, parts in columns.items()})


class Continuation(TokenStats):
    """What a model wrote after the first part of a text.

    Attributes:
        ids: its L tokens, int32, without the one that ended it.
        text: the same in characters.
        scored: how many tokens the whole text before has that could be scored.
    """

    ids: Ids
    text: str
    scored: int

    def __len__(self) -> int:
        return len(self.ids)

    def scored_tokens(self) -> int:
        """Of the text that it was written to, not of itself."""
        return self.scored


NUMBERS = tuple(TokenStats.__annotations__)
Copies = tuple[TokenStats, ...]
"""The statistics of every copy of one text, or what was written after it, in the view's order."""


class UndeclaredNumberError(LookupError):
    """A method read a number that it does not declare: a mistake in the method."""


class UndeclaredPassError(LookupError):
    """A method read a pass that it does not declare: a mistake in the method."""


@dataclass(frozen=True, eq=False)
class Example:
    """One example as a method sees it: its text, with the passes that the method declares.

    Attributes:
        example_id: its name in its corpus or file.
        text: the text as it stands, never a view of it.
        copies: for each pass its views of the text, one or (swaps, neighbours) several.
    """

    example_id: str
    text: str
    copies: Mapping[Pass, Copies]

    def stats(self, wanted: Pass) -> TokenStats:
        """The statistics of a view that is one text."""
        (only,) = self.all_stats(wanted)
        return only

    def all_stats(self, wanted: Pass) -> Copies:
        """The statistics of every copy of the view, in the view's order."""
        if wanted not in self.copies:
            declared = ", ".join(sorted(p.key for p in self.copies)) or "none"
            raise UndeclaredPassError(
                f"pass {wanted.key} was read but is not declared; declared: {declared}. "
                "Add it to the method's `passes`."
            )
        return self.copies[wanted]

    def continuations(self, wanted: Pass) -> tuple[Continuation, ...]:
        """What the model wrote after the text's first part, in the order of their numbers."""
        return cast(tuple[Continuation, ...], self.all_stats(wanted))
