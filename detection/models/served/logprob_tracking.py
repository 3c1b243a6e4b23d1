"""A token's log-probability from a server that shows only its likeliest tokens.

After Ye et al. 2024, section 4.4. With p the model's probability of a token and p′ the one under a
bias b on its logit (eq. 8):

    p′ = p·eᵇ / (1 − p + p·eᵇ),   so   logit p = logit p′ − b

An error of δ in log p′ is one of δ·(1 − p + p·eᵇ) in log p. So the bias must not be larger than it
takes to see the token: with log p ≤ u, b = log(SPREAD) − u keeps the factor below 1 + SPREAD.

Where several tokens share a name, the list does not say which of them is meant. Another one, of
probability q and under a bias c, then tells p by how its own q′ falls:

    q′ = q·eᶜ / (1 + q·(eᶜ − 1) + p·(eᵇ − 1))

Where no probability changes with the bias, the likeliest token does: at the bias log(p_top / p).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from contamination.core.errors import ServerError
from contamination.detection.models.served.completions import Completions
from contamination.detection.models.served.responses import Names, Place

SPREAD = 32.0
"""How much larger than the server's own rounding an error may get by `closed_form`."""
MOST = 100.0
"""Nats: the largest bias that servers take."""
LEVEL = 1.0
"""Nats: a token that is brought so high is the likeliest, as no log-probability is above 0."""
LIFTED = 2.0
"""q·eᶜ of another token: it stays the likeliest while p·eᵇ is smaller."""
TELLS = 0.3
"""p·(eᵇ − 1) from which on p is told as exactly as by its own p′."""
ROUNDING = 1e-5
"""How far probabilities that a server shows may be off."""
RESOLUTION = 2e-6
"""Nats: how far a float32 log-probability may be off, a difference of logits below 32."""


def resolution(numbers: Sequence[float]) -> float:
    """Half a unit of the last decimal that any of the numbers has."""
    decimals = (d for d in range(9) if all(round(number, d) == number for number in numbers))
    return 0.5 * 10.0 ** -next(decimals, 9)


def unbiased(shown: float, bias: float) -> float:
    """Log p of a token whose log-probability is `shown` under the bias: eq. 8."""
    if shown >= 0:  # for all that float32 tells, p′ is 1
        return 0.0
    logit = shown - math.log(-math.expm1(shown)) - bias
    return -math.log1p(math.exp(-logit)) if logit > 0 else logit - math.log1p(math.exp(logit))


def closed_form(ask: Callable[[float], Mapping[str, float]], token: str) -> float | None:
    """The token's log-probability, by eq. 8; None: it is below −MOST nats.

    Args:
        ask: for a bias on the token, the likeliest tokens' log-probabilities under it.
        token: as the server writes it.
    """
    upper = 0.0
    while (bias := math.log(SPREAD) - upper) < MOST:
        top = ask(bias)
        if token in top:
            return unbiased(top[token], bias)
        rest = 1 - sum(map(math.exp, top.values())) + ROUNDING  # what is left for all other tokens
        upper = unbiased(min(*top.values(), math.log(max(rest, ROUNDING))), bias)
    return None


def lifting(plain: float) -> float:
    """The bias c that lifts a token of this log-probability to LIFTED."""
    return math.log(LIFTED) - plain


def by_another(ask: Callable[[float], float], plain: float, rounding: float) -> float | None:
    """A token's log-probability, told by another's; None: it is below −MOST nats.

    The bias grows with the bound that the last answer gave, so that p·(eᵇ − 1) is at most 1.

    Args:
        ask: for a bias on the token, log q′ of the other, which is lifted.
        plain: log q.
        rounding: of what the server shows, in nats.
    """
    unsure = 8 * rounding  # of p·(eᵇ − 1), a difference of numbers of at most 4
    growth = 1.0
    while (bias := math.log1p(growth)) < MOST:
        fall = LIFTED * math.exp(-ask(bias)) - (1 + LIFTED - math.exp(plain))
        if fall >= TELLS:
            return min(0.0, math.log(fall / growth))
        growth /= max(fall, 0.0) + unsure
    return None


def bisected(
    is_top: Callable[[float], bool], tolerance: float, low: float = 0.0, high: float = MOST
) -> float | None:
    """log(p_top / p) within the tolerance; None: it is above `high`.

    Args:
        is_top: whether the token is the likeliest under a bias on it.
        tolerance: in nats.
        low: what it is at least.
        high: what it is at most.
    """
    if not is_top(high):
        return None
    while high - low > 2 * tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if is_top(middle) else (middle, high)
    return (low + high) / 2


def bisection_queries(tolerance: float) -> float:
    """How many a token takes at most, with one for the list: log2(range / tolerance) + 2."""
    return math.log2(MOST / tolerance) + 2


Columns = dict[str, list[float]]
"""What a server says of some tokens, by number."""
Shown = dict[int, list[float]]
"""Place in a text → the log-probabilities that the server shows there, the largest first."""


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
        estimated: whether `queries` may be more for some texts.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "token"
    note: ClassVar[str] = ""
    tops: ClassVar[tuple[int, ...]] = (20, 5, 1)
    numbers: frozenset[str] = frozenset({"logprob"})
    estimated: ClassVar[bool] = False

    def __init__(self, model: Completions, top: int, tolerance: float) -> None:
        self.model, self.top, self.tolerance = model, top, tolerance

    @cached_property
    def names(self) -> Names:
        """How the server names tokens in what is read of it."""
        return self.model.names

    @property
    def error(self) -> float:
        """A bound of the error in nats, beyond the server's own rounding."""
        return 0.0

    @property
    def queries(self) -> float:
        """How many requests a question takes, at most; some where `estimated`."""
        return 1.0

    def queries_for(self, token: int) -> float:
        """How many the question that ends with this token takes, or some."""
        return self.queries

    def ends(self, tokens: int) -> range:
        """Where the questions of a text of so many tokens end; no question that tells nothing."""
        return range(2, tokens + 1) if self.numbers else range(0)

    def sends(self, ids: Sequence[int]) -> Sequence[int]:
        """The tokens of a question that are sent as the prompt."""
        return ids[:-1]

    @abstractmethod
    def works(self, ids: Sequence[int]) -> bool:
        """Whether the server shows what it takes; it may also refuse."""

    @abstractmethod
    def answer(self, ids: Sequence[int]) -> Columns:
        """What the server says of the question's last tokens."""

    def cuts(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The beginnings of a text that `told` asks about; none where the server shows nothing."""
        enough = max(8, math.ceil(24 / max(1, self.top)))  # of 24 numbers or more
        return self.beginnings(ids)[-enough:] if self.numbers else []

    def beginnings(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Those of two tokens or more that can be sent."""
        found = (ids[:end] for end in range(2, len(ids) + 1))
        return [part for part in found if self.model.sendable(part)]

    def beside(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """Beginnings of the text to ask about at once."""
        return self.cuts(ids)

    def told(self, ids: Sequence[int]) -> Shown:
        """What the server shows after these tokens by itself, to know the model again by."""
        shown = sorted(self._next(ids).top.values(), reverse=True)[: self.top]
        return {len(ids): [max(-MOST, number) for number in shown]}

    def _next(
        self,
        ids: Sequence[int],
        biases: Mapping[int, float] | None = None,
        may_hide: bool = False,
    ) -> Place:
        """What the server shows of its choice after these tokens, under biases on some.

        Args:
            ids: the tokens.
            biases: on which tokens, in nats.
            may_hide: whether the server may show nothing of a part of a character.
        """
        options: dict[str, Any] = {"logprobs": self.top} if self.top else {}
        if biased := {str(token): bias for token, bias in (biases or {}).items() if bias}:
            options["logit_bias"] = biased
        has_shown = bool(self.numbers) and not self.model.trying
        return self.model.next(ids, shows=has_shown, may_hide=may_hide, **options)

    def _second(self, ids: Sequence[int]) -> tuple[int, float]:
        """A token after these, not the likeliest if there is a choice, and its log-probability."""
        told = self._told(self._next(ids))
        return told[1] if len(told) > 1 else told[0] if told else (0, math.nan)

    def _told(self, place: Place) -> list[tuple[int, float]]:
        """The listed tokens whose name is theirs alone, the likeliest first."""
        likeliest = sorted(place.top.items(), key=lambda one: -one[1])
        named = ((self.names.token(name), logprob) for name, logprob in likeliest)
        return [(token, logprob) for token, logprob in named if token is not None]

    def _another(self, place: Place, ids: Sequence[int]) -> tuple[int, float] | None:
        """The likeliest listed token beside the question's last, by which that one is told."""
        return next((one for one in self._told(place) if one[0] != ids[-1]), None)

    def _untold(self, place: Place, ids: Sequence[int]) -> ServerError:
        """The error where there is no such token."""
        name = self.model.names.of(ids[-1])
        why = (
            f"the token {name!r} ({ids[-1]}) can't be told: the server names tokens by their text, "
            f"several have this one, and of the {len(place.top)} that it lists none has a name of "
            "its own. Leave the text out, or give a server that names tokens by their ids or lists "
            "more of them."
        )
        return ServerError(self.model.of_text(ids, why))

    def _other_choice(self, token: str, ids: Sequence[int], names: Sequence[str]) -> ServerError:
        """The error where the server chooses a token that can't be the likeliest under a bias."""
        likeliest = " or ".join(map(repr, names))
        why = f"it chooses {token!r}, but by logit_bias {likeliest} is the likeliest. "
        return ServerError(self.model.of_text(ids, f"{why}See that it runs as when it was probed."))
