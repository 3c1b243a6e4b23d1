"""The pass, the unit of cost: one forward of one model over one view of the examples.

A pass yields a few numbers per token (`TokenStats`), never the logits, or the continuations that
the model writes after the first part of a text. A method declares the passes that it needs and
receives their results in an `Example`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Parameter = str | int | float | bool

LOWEST_LOGPROB = float(np.float32(-149 * np.log(2)))
"""Nats: the log of the smallest float32, for a token to which a server assigns probability 0."""


@dataclass(frozen=True, init=False)
class Pass:
    """Which model reads which view of a text, such as `Pass("target", "swap", n=5, seed=0)`.

    Attributes:
        model: the model's role: `target`, or another role for which the configuration has a path.
        view: how the text is changed before it is scored: a name in `detection.views.VIEWS`.
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
        """The pass as a string, such as `target/swap?n=5&seed=0`. Equal passes have equal keys."""
        return f"{self.model}/{self.view_key}"

    @property
    def view_key(self) -> str:
        """The key without the model's role: a model's pass is stored once for all its roles."""
        query = "&".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.view}?{query}" if query else self.view


ORIGINAL = Pass()


class TokenStats:
    """The per-token numbers of one forward over a text of T tokens, for tokens 2 to T.

    Every array has shape (T-1,), because the first token is never scored. Units are nats. A model
    may provide only some of the numbers; `ModelHandle.provides` names them. With p the model's
    next-token distribution at the entry's token, from float32 logits:

    Attributes:
        logprob: log p of the token in the text.
        mean: μ, the mean of log p(v) over the vocabulary, with v drawn from p.
        std: σ, the standard deviation of log p(v), with v drawn from p; never 0.
        top_logprob: log p of the most probable token.
        top_id: the most probable token; the lowest id if several are equally probable.

    These annotations are the only list of the numbers. To add one, annotate it here and compute it
    in `detection.models` for each kind of model that provides it: `NUMBERS`, the columns of stored
    passes and their types follow from the annotations.
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
        """The number of tokens of the text that are scored."""
        return len(self)

    @property
    def is_top(self) -> NDArray[np.bool_]:
        """Whether no token is likelier than the text's own.

        This follows from `logprob` and `top_logprob`, which are equal then: both are of one logit.
        A method that reads it declares these two.
        """
        is_top: NDArray[np.bool_] = self.logprob >= self.top_logprob
        return is_top

    def __getitem__(self, part: slice) -> TokenStats:
        return TokenStats(**{name: column[part] for name, column in vars(self).items()})

    def __getattr__(self, name: str) -> Any:  # called only for missing attributes
        if name not in NUMBERS:
            raise AttributeError(name)
        available = ", ".join(vars(self)) or "none"
        raise UndeclaredNumberError(
            f"{name} was read but is not available; available: {available}. Add it to the method's "
            "`numbers`."
        )

    @staticmethod
    def concatenate(pieces: Sequence[TokenStats]) -> TokenStats:
        """Concatenates the entries of the pieces."""
        columns = {n: [vars(piece)[n] for piece in pieces] for n in vars(pieces[0])}
        return TokenStats(**{name: np.concatenate(parts) for name, parts in columns.items()})


DTYPES: Mapping[object, np.dtype[Any]] = {Floats: np.dtype(np.float32), Ids: np.dtype(np.int32)}
NUMBERS: Mapping[str, np.dtype[Any]] = {
    name: DTYPES[annotation] for name, annotation in get_type_hints(TokenStats).items()
}
"""The per-token numbers in the order of `TokenStats`, each with its dtype."""
FLOATS = tuple(name for name, dtype in NUMBERS.items() if dtype.kind == "f")
"""The numbers that are not token ids: equal to within rounding where computed in another way."""


class Continuation(TokenStats):
    """What a model wrote after the first part of a text.

    Attributes:
        ids: its L tokens, int32, without the end-of-text token.
        text: the decoded tokens.
        scored: the number of scored tokens of the whole text that was continued.
    """

    ids: Ids
    text: str
    scored: int

    def __len__(self) -> int:
        return len(self.ids)

    def scored_tokens(self) -> int:
        """The number for the text that was continued, not for the continuation."""
        return self.scored


class TextStats(TokenStats):
    """Numbers of a text as a whole, not of its tokens.

    These annotations are the only list of them, as with `TokenStats`: the columns of stored passes
    follow.

    Attributes:
        gradient_norm: ‖∇_θ ℓ‖₂ over all parameters θ, with ℓ the mean loss of the scored tokens, in
            nats per unit of a parameter.
    """

    gradient_norm: float

    def __len__(self) -> int:
        return 1


TEXT_NUMBERS = tuple(TextStats.__annotations__)
"""The numbers of whole texts."""

Copies = tuple[TokenStats, ...]
"""The statistics of each version of one text, or its continuations, in the view's order."""


class UndeclaredNumberError(LookupError):
    """A method read a number that it does not declare. This is a bug in the method."""


class UndeclaredPassError(LookupError):
    """A method read a pass that it does not declare. This is a bug in the method."""


@dataclass(frozen=True, eq=False)
class Example:
    """One example as a method sees it: its text, and the results of the method's declared passes.

    Attributes:
        example_id: its id in its corpus or file.
        text: the original text, never a view of it.
        copies: the statistics of each pass: one version of the text, or several (swaps,
            neighbours).
    """

    example_id: str
    text: str
    copies: Mapping[Pass, Copies]

    def stats(self, wanted: Pass) -> TokenStats:
        """Returns the statistics of a view that has one version of the text."""
        (stats,) = self.all_stats(wanted)
        return stats

    def all_stats(self, wanted: Pass) -> Copies:
        """Returns the statistics of every version of the text, in the view's order.

        Raises:
            UndeclaredPassError: the method does not declare the pass.
        """
        if wanted not in self.copies:
            declared = ", ".join(sorted(p.key for p in self.copies)) or "none"
            raise UndeclaredPassError(
                f"pass {wanted.key} was read but is not declared; declared: {declared}. "
                "Add it to the method's `passes`."
            )
        return self.copies[wanted]

    def continuations(self, wanted: Pass) -> tuple[Continuation, ...]:
        """Returns what the model wrote after the text's first part, in the order it was drawn."""
        return cast(tuple[Continuation, ...], self.all_stats(wanted))
