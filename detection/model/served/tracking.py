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
from collections.abc import Callable, Mapping, Sequence

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
