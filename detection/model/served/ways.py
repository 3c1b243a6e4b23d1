"""How a token's log-probability is found: one class a way, the best first in `WAYS`.

A text is divided into questions, each of some of its tokens from the first on. The answer to a
question tells of its last tokens: all but the first where the server shows those of a prompt, else
one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from detection.model.served.answers import rounded
from detection.model.served.completions import ID, Completions, Place
from detection.model.served.tracking import (
    MOST,
    RESOLUTION,
    SPREAD,
    bisected,
    bisection_queries,
    closed_form,
    resolution,
    unbiased,
)

Columns = dict[str, list[float]]
"""What a server says of some tokens, by number."""
Shown = dict[int, list[float]]
"""Place in a text → the log-probabilities that the server shows there, the largest first."""
AGREES = 1e-2
"""Nats: two ways to one log-probability are nearer than this, or one of them does not work."""


class Way(ABC):
    """One way to a text's log-probabilities.

    Args:
        model: the server's model.
        top: how many likeliest tokens the server shows.
        tolerance: of a bisection, in nats.

    Attributes:
        name: what the probe calls it.
        unit: what a question is about.
        note: what else the probe says of it.
        tops: how many likeliest tokens to ask for, the most that a server shows; 0: none.
        numbers: what it gives of each token.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "token"
    note: ClassVar[str] = ""
    tops: ClassVar[tuple[int, ...]] = (20, 5, 1)
    numbers: frozenset[str] = frozenset({"logprob"})

    def __init__(self, model: Completions, top: int, tolerance: float) -> None:
        self.model, self.top, self.tolerance = model, top, tolerance

    @property
    def error(self) -> float:
        """A bound of the error in nats, beyond the server's own rounding."""
        return 0.0

    @property
    def queries(self) -> float:
        """How many requests a question takes, at most."""
        return 1.0

    def ends(self, tokens: int) -> range:
        """Where the questions of a text of so many tokens end; no question that tells nothing."""
        return range(2, tokens + 1) if self.numbers else range(0)

    @abstractmethod
    def works(self, ids: Sequence[int]) -> bool:
        """Whether the server shows what it takes; it may also refuse."""

    @abstractmethod
    def answer(self, ids: Sequence[int]) -> Columns:
        """What the server says of the question's last tokens."""

    def cuts(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The beginnings of a text that `told` asks about; none where the server shows nothing."""
        enough = max(8, math.ceil(24 / max(1, self.top)))  # of 24 numbers or more
        count = min(len(ids), enough) if self.numbers else 0
        return [ids[:end] for end in range(len(ids) - count + 1, len(ids) + 1)]

    def beside(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """Beginnings of the text to ask about at once."""
        return self.cuts(ids)

    def told(self, ids: Sequence[int]) -> Shown:
        """What the server shows after these tokens by itself, to know the model again by."""
        shown = sorted(self._next(ids, 0, 0.0).top.values(), reverse=True)[: self.top]
        return {len(ids): [max(-MOST, number) for number in shown]}

    def _next(self, ids: Sequence[int], token: int, bias: float) -> Place:
        """What the server shows of its choice after these tokens, under a bias on one token."""
        shown = {"logprobs": self.top} if self.top else {}
        biased = {"logit_bias": {str(token): bias}} if bias else {}
        return self.model.next(ids, **shown, **biased)

    def _second(self, ids: Sequence[int]) -> tuple[int, float]:
        """A token after these, not the likeliest if there is a choice, and its log-probability."""
        likeliest = sorted(self._next(ids, 0, 0.0).top.items(), key=lambda one: -one[1])
        for name, logprob in [*likeliest[1:], *likeliest[:1]]:
            if (token := self.model.token(name)) is not None:
                return token, logprob
        return 0, math.nan


class Prompt(Way):
    """The server shows the log-probabilities of a text: a request a text."""

    name = "prompt log-probabilities"
    unit = "text"
    tops = (1, 0)

    def ends(self, tokens: int) -> range:
        """One question."""
        return range(tokens, tokens + 1)

    def works(self, ids: Sequence[int]) -> bool:
        """Whether it shows them; with the likeliest tokens by their ids it gives these as well."""
        places = self.model.prompt(ids, self.top)
        if all(place.top and all(n.startswith(ID) for n in place.top) for place in places):
            self.numbers = frozenset({"logprob", "top_logprob", "top_id"})
        return all(place.logprob is not None for place in places)

    def cuts(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """All of the text."""
        return [ids]

    def beside(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """So many beginnings."""
        return [ids[: max(2, len(ids) * n // count)] for n in range(1, count + 1)]

    def told(self, ids: Sequence[int]) -> Shown:
        """The log-probabilities of all tokens after the first."""
        return {n: [max(-MOST, p.own)] for n, p in enumerate(self.model.prompt(ids, self.top))}

    def answer(self, ids: Sequence[int]) -> Columns:
        """The numbers of all tokens after the first."""
        places = self.model.prompt(ids, self.top)
        columns: Columns = {"logprob": rounded([place.own for place in places])}
        if "top_id" in self.numbers:
            tops = [place.best() for place in places]
            columns["top_logprob"] = rounded([logprob for logprob, _ in tops])
            columns["top_id"] = [token for _, token in tops]
        return columns


class Forced(Way):
    """A bias makes the token the server's choice, whose unbiased log-probability it shows."""

    name = "forced token, raw"

    def works(self, ids: Sequence[int]) -> bool:
        """Whether a forced token is shown as without the bias."""
        token, logprob = self._second(ids)
        place = self._next(ids, token, MOST)
        chosen, shown = place.token == self.model.name_of(token), place.logprob
        return chosen and shown is not None and abs(shown - logprob) < AGREES

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability."""
        place = self._next(ids[:-1], ids[-1], MOST)
        if place.token != self.model.name_of(ids[-1]):
            raise self.model.unseen(ids)
        return {"logprob": rounded([place.own])}


class Biased(Way):
    """The server shows biased log-probabilities, from which the unbiased one follows."""

    name = "biased, closed form"
    resolution = RESOLUTION

    @property
    def error(self) -> float:
        """The server's rounding, times what the bias makes of it."""
        return SPREAD * self.resolution

    @property
    def queries(self) -> float:
        """One, and one more for a token that the bias does not bring among the likeliest."""
        return 1.1 if self.top > 1 else 2.0

    def works(self, ids: Sequence[int]) -> bool:
        """Whether what is shown under a bias follows the equation."""
        token, logprob = self._second(ids)
        place = self._next(ids, token, 2.0).shown
        self.resolution = max(RESOLUTION, resolution([*place.values()]))
        shown = place.get(self.model.name_of(token))
        return shown is not None and abs(unbiased(shown, 2.0) - logprob) < AGREES

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability."""
        found = closed_form(
            lambda bias: self._next(ids[:-1], ids[-1], bias).shown, self.model.name_of(ids[-1])
        )
        if found is None:
            raise self.model.unseen(ids)
        return {"logprob": rounded([found])}


class Argmax(Way):
    """A bias changes the server's choice, and no probability is shown.

    The bias at which it changes is log(p_top / p), and nothing tells p_top.
    """

    name = "argmax only, bisection"
    note = "tells log(p_top / p), which no method reads"
    tops: ClassVar[tuple[int, ...]] = (1, 0)
    numbers = frozenset()

    @property
    def error(self) -> float:
        """How near the bisection comes."""
        return self.tolerance

    @property
    def queries(self) -> float:
        """The bisection's, and one for the list."""
        return bisection_queries(self.tolerance)

    def works(self, ids: Sequence[int]) -> bool:
        """Whether two tokens become the choice by a bias."""
        forced = (self._next(ids, token, MOST).token for token in ids[-2:])
        return all(name == self.model.name_of(t) for name, t in zip(forced, ids[-2:], strict=True))

    def answer(self, ids: Sequence[int]) -> Columns:
        """Nothing."""
        return {}

    def gap(self, ids: Sequence[int], low: float = 0.0) -> float:
        """log(p_top / p) of the last token, which is at least `low`."""

        def is_top(bias: float) -> bool:
            return self._next(ids[:-1], ids[-1], bias).token == self.model.name_of(ids[-1])

        found = bisected(is_top, self.tolerance, low)
        if found is None:
            raise self.model.unseen(ids)
        return found


class Listed(Argmax):
    """The server lists the likeliest tokens as they are, and a bias changes its choice alone."""

    name = "top-n, then bisection"
    note = ""
    tops = Way.tops
    numbers = frozenset({"logprob"})

    def works(self, ids: Sequence[int]) -> bool:
        """Whether the list stays as it is when the choice changes."""
        token, logprob = self._second(ids)
        place = self._next(ids, token, MOST)
        shown = place.top.get(self.model.name_of(token), math.nan)
        return place.token == self.model.name_of(token) and abs(shown - logprob) < AGREES

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability: listed, or that of the likeliest less the gap."""
        top = self._next(ids[:-1], ids[-1], 0.0).top
        own = top.get(self.model.name_of(ids[-1]))
        if own is None:
            best = max(top.values())
            own = best - self.gap(ids, low=best - min(top.values()))
        return {"logprob": rounded([own])}


class Sampling(Way):
    """The server only writes text."""

    name = "sampling only"
    note = "n samples tell p to √(p (1 − p) / n): for methods that read what is written"
    tops = (0,)
    numbers = frozenset()

    def works(self, ids: Sequence[int]) -> bool:
        """Whether it writes."""
        return bool(self.model.next(ids).token)

    def answer(self, ids: Sequence[int]) -> Columns:
        """Nothing."""
        return {}


WAYS: dict[str, type[Way]] = {
    way.name: way for way in (Prompt, Forced, Biased, Listed, Argmax, Sampling)
}
