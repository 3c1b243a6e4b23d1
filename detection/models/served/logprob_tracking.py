"""The base class of the strategies, and log-probabilities from a server's likeliest tokens.

After Ye et al. 2024, section 4.4. With p the model's probability of a token and p′ the one under a
bias b on its logit (eq. 8):

    p′ = p·eᵇ / (1 − p + p·eᵇ),   so   logit p = logit p′ − b

An error of δ in log p′ becomes one of δ·(1 − p + p·eᵇ) in log p. So the bias must not be larger
than needed to see the token: if log p ≤ u, the bias b = log(F) − u keeps the factor below 1 + F,
with F = MAX_ERROR_FACTOR.

If several tokens share a name, the list does not show which of them is meant. Then p follows from
the effect of its bias on another token, of probability q and under a bias c:

    q′ = q·eᶜ / (1 + q·(eᶜ − 1) + p·(eᵇ − 1))

If no probability changes with the bias, the likeliest token does: at the bias log(p_top / p).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from contamination.core.errors import ServerError
from contamination.detection.models.served.completions import CompletionsModel
from contamination.detection.models.served.responses import TokenNames, TokenPosition

MAX_ERROR_FACTOR = 32.0
"""The factor by which `logprob_by_closed_form` may increase the server's rounding error."""
MAX_BIAS = 100.0
"""Nats: the largest bias that servers accept."""
RAISED_LOGPROB = 1.0
"""Nats: a token that is raised to it is the likeliest, as no log-probability is above 0."""
RAISED_ODDS = 2.0
"""q·eᶜ of the other token: it stays the likeliest while p·eᵇ is smaller."""
MEASURABLE = 0.3
"""From this p·(eᵇ − 1) on, the estimate of p is as exact as from its own p′."""
PROBABILITY_ROUNDING = 1e-5
"""The largest error of probabilities that a server shows."""
RESOLUTION = 2e-6
"""Nats: the largest error of a float32 log-probability, a difference of logits below 32."""


def rounding_error(numbers: Sequence[float]) -> float:
    """Returns half a unit of the last decimal that any of the numbers has."""
    decimals = (d for d in range(9) if all(round(number, d) == number for number in numbers))
    return 0.5 * 10.0 ** -next(decimals, 9)


def remove_bias(shown: float, bias: float) -> float:
    """Returns log p of a token whose log-probability is `shown` under the bias: eq. 8."""
    if shown >= 0:  # in float32, p′ is 1
        return 0.0
    logit = shown - math.log(-math.expm1(shown)) - bias
    return -math.log1p(math.exp(-logit)) if logit > 0 else logit - math.log1p(math.exp(logit))


def logprob_by_closed_form(ask: Callable[[float], Mapping[str, float]], token: str) -> float | None:
    """Returns the token's log-probability by eq. 8; None if it is below −MAX_BIAS nats.

    Args:
        ask: returns the likeliest tokens' log-probabilities under a bias on the token.
        token: the token's name at the server.
    """
    upper = 0.0
    while (bias := math.log(MAX_ERROR_FACTOR) - upper) < MAX_BIAS:
        top = ask(bias)
        if token in top:
            return remove_bias(top[token], bias)
        other_tokens = 1 - sum(map(math.exp, top.values())) + PROBABILITY_ROUNDING
        bound = math.log(max(other_tokens, PROBABILITY_ROUNDING))
        upper = remove_bias(min(*top.values(), bound), bias)
    return None


def raising_bias(logprob: float) -> float:
    """Returns the bias c that raises a token of this log-probability to RAISED_ODDS."""
    return math.log(RAISED_ODDS) - logprob


def logprob_from_other_token(
    ask: Callable[[float], float], logprob: float, rounding: float
) -> float | None:
    """Returns a token's log-probability from its effect on another token's.

    The bias grows with the bound from the last answer, so that p·(eᵇ − 1) is at most 1.

    Args:
        ask: returns log q′ of the other token, which is raised, for a bias on the token.
        logprob: log q of the other token.
        rounding: the largest rounding error of the server's numbers, in nats.

    Returns:
        Log p; None if it is below −MAX_BIAS nats.
    """
    uncertainty = 8 * rounding  # of p·(eᵇ − 1), a difference of numbers of at most 4
    growth = 1.0
    while (bias := math.log1p(growth)) < MAX_BIAS:
        fall = RAISED_ODDS * math.exp(-ask(bias)) - (1 + RAISED_ODDS - math.exp(logprob))
        if fall >= MEASURABLE:
            return min(0.0, math.log(fall / growth))
        growth /= max(fall, 0.0) + uncertainty
    return None


def bisect_bias(
    is_top: Callable[[float], bool], tolerance: float, low: float = 0.0, high: float = MAX_BIAS
) -> float | None:
    """Returns log(p_top / p) within the tolerance; None if it is above `high`.

    Args:
        is_top: returns whether the token is the likeliest under a bias on it.
        tolerance: in nats.
        low: a lower bound, in nats.
        high: an upper bound, in nats.
    """
    if not is_top(high):
        return None
    while high - low > 2 * tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if is_top(middle) else (middle, high)
    return (low + high) / 2


def max_bisection_requests(tolerance: float) -> float:
    """Returns the largest number of requests per token, with one for the list."""
    return math.log2(MAX_BIAS / tolerance) + 2


Columns = dict[str, list[float]]
"""The numbers of consecutive tokens, by the name of the number."""
ShownLogprobs = dict[int, list[float]]
"""The log-probabilities that a server shows at a position of a text, the largest first."""


class LogprobStrategy(ABC):
    """A strategy for the log-probabilities of a text's tokens.

    Args:
        model: the model at the server.
        top: the number of likeliest tokens that the server shows.
        tolerance: the tolerance of a bisection, in nats.

    Attributes:
        name: the name in the probe's table.
        unit: what one question is about, a token or a text.
        note: a remark in the probe's table.
        top_counts: the numbers of likeliest tokens to try, the largest first.
        numbers: the per-token numbers that it computes.
        is_estimate: whether some texts may need more than `requests_per_question`.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "token"
    note: ClassVar[str] = ""
    top_counts: ClassVar[tuple[int, ...]] = (20, 5, 1)
    numbers: frozenset[str] = frozenset({"logprob"})
    is_estimate: ClassVar[bool] = False

    def __init__(self, model: CompletionsModel, top: int, tolerance: float) -> None:
        self.model, self.top, self.tolerance = model, top, tolerance

    @cached_property
    def token_names(self) -> TokenNames:
        """The names of tokens in the answers."""
        return self.model.token_names

    @property
    def max_error(self) -> float:
        """An upper bound of the error in nats, in addition to the server's own rounding."""
        return 0.0

    @property
    def requests_per_question(self) -> float:
        """The largest number of requests per question, or their mean if `is_estimate`."""
        return 1.0

    def request_count(self, token: int) -> float:
        """Returns the number of requests for the question that ends with this token."""
        return self.requests_per_question

    def question_ends(self, tokens: int) -> range:
        """Returns the ends of the questions about a text; none if there are no numbers."""
        return range(2, tokens + 1) if self.numbers else range(0)

    def sent_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the tokens of a question that are sent as the prompt."""
        return ids[:-1]

    @abstractmethod
    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether the strategy works at this server, with a text to try it on.

        Raises:
            ServerError: the server refuses a request.
        """

    @abstractmethod
    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns the numbers of the question's last tokens."""

    def fingerprint_prefixes(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Returns the prefixes for a fingerprint; none if the server shows no numbers."""
        count = max(8, math.ceil(24 / max(1, self.top)))  # for at least 24 numbers
        return self.sendable_prefixes(ids)[-count:] if self.numbers else []

    def sendable_prefixes(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Returns the prefixes of at least two tokens that can be sent."""
        prefixes = (ids[:end] for end in range(2, len(ids) + 1))
        return [prefix for prefix in prefixes if self.model.can_send(prefix)]

    def concurrent_prefixes(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """Returns the prefixes for concurrent requests."""
        return self.fingerprint_prefixes(ids)

    def shown_logprobs(self, ids: Sequence[int]) -> ShownLogprobs:
        """Returns the top log-probabilities after these tokens, for a fingerprint."""
        logprobs = sorted(self._next_position(ids).top.values(), reverse=True)[: self.top]
        return {len(ids): [max(-MAX_BIAS, logprob) for logprob in logprobs]}

    def _next_position(
        self,
        ids: Sequence[int],
        biases: Mapping[int, float] | None = None,
        may_hide: bool = False,
    ) -> TokenPosition:
        """Returns the server's choice after these tokens, under biases.

        Args:
            ids: the tokens.
            biases: the bias of each token, in nats.
            may_hide: whether the server may hide a part of a character.
        """
        options: dict[str, Any] = {"logprobs": self.top} if self.top else {}
        if logit_bias := {
            str(biased_token): bias for biased_token, bias in (biases or {}).items() if bias
        }:
            options["logit_bias"] = logit_bias
        must_show = bool(self.numbers) and not self.model.probing
        return self.model.next_token(ids, must_show=must_show, may_hide=may_hide, **options)

    def _chooses_other(self, ids: Sequence[int], token: int) -> bool:
        """Returns whether a bias makes a token other than this one the choice."""
        other = self.model.token_names.any_unique_token(excluded=token)
        if other is None:
            return False
        return self._next_position(ids, {other: MAX_BIAS}).token == self.token_names.name(other)

    def _second_likeliest(self, ids: Sequence[int]) -> tuple[int, float]:
        """Returns the second likeliest token after these and its logprob, or the only one."""
        tokens = self._uniquely_named(self._next_position(ids))
        return tokens[1] if len(tokens) > 1 else tokens[0] if tokens else (0, math.nan)

    def _uniquely_named(self, position: TokenPosition) -> list[tuple[int, float]]:
        """Returns the listed tokens with unique names and their logprobs, the likeliest first."""
        likeliest = sorted(position.top.items(), key=lambda item: -item[1])
        tokens = ((self.token_names.unique_token(name), logprob) for name, logprob in likeliest)
        return [(token, logprob) for token, logprob in tokens if token is not None]

    def _comparison_token(
        self, position: TokenPosition, ids: Sequence[int]
    ) -> tuple[int, float] | None:
        """Returns the likeliest uniquely named token other than the last, and its logprob."""
        candidates = self._uniquely_named(position)
        return next(((token, p) for token, p in candidates if token != ids[-1]), None)

    def _ambiguous_name_error(self, position: TokenPosition, ids: Sequence[int]) -> ServerError:
        """Returns the error for a last token that no listed token can be compared with."""
        name = self.model.token_names.name(ids[-1])
        problem = (
            f"the token {name!r} ({ids[-1]}) can't be identified: the server names tokens by their "
            f"text, several tokens have this text, and none of the {len(position.top)} listed "
            "tokens has a unique name. Leave the text out, or give a server that names tokens by "
            "their ids or lists more of them."
        )
        return ServerError(self.model.message_about_text(ids, problem))

    def _wrong_choice_error(
        self, token: str, ids: Sequence[int], names: Sequence[str]
    ) -> ServerError:
        """Returns the error for a choice that can't be the likeliest token under the biases."""
        likeliest = " or ".join(map(repr, names))
        problem = f"it chooses {token!r}, but under logit_bias {likeliest} is the likeliest. "
        return ServerError(
            self.model.message_about_text(
                ids, f"{problem}Check that its settings are the same as when it was probed."
            )
        )
