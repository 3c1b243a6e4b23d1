"""How an effect of training on a text fades with further training: curves, fits, half-lives.

For t tokens since the text was last seen, the effect d(t), such as a detection method's d′, is

- exponential: d(t) = d(t₀) · exp(−k (t − t₀));
- a power law: d(t) = d(t₀) · (t / t₀)^(−γ), as Chang et al. 2024 (arXiv 2406.11813) report for the
  loss of facts by training steps.

t₀ is where the curve is anchored. `ForgettingCurve.factor` is the forgetting factor g(t) = d(t) /
d(t₀). Weight decay alone leaves the share Π(1 − λη) of what a step wrote (Bordt et al. 2024, arXiv
2410.03249): `share_left_by_weight_decay`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

EXPONENTIAL, POWER = "exponential", "power"
FORMS = (EXPONENTIAL, POWER)
SLOWEST, FASTEST = 1e-3, 50.0
"""The rates that a fit tries, times the span of what it fits: in t for k, in log t for γ."""
GRID = 400


@dataclass(frozen=True)
class ForgettingCurve:
    """A curve of one form.

    Attributes:
        form: `exponential` or `power`.
        anchor: t₀, in tokens, above 0.
        level: d(t₀).
        rate: k per token, or γ; 0 if nothing is forgotten, and negative if the effect grows.
        squares: the sum of the squared residuals of the fit; NaN if it was not fitted.
        points: the number of points that were fitted.
        at_limit: whether the rate is the largest that a fit tries, of either sign: the points jump
            between two neighbours, as noise does, and give no half-life.
    """

    form: str
    anchor: float
    level: float
    rate: float
    squares: float = float("nan")
    points: int = 0
    at_limit: bool = False

    def factor(self, tokens: ArrayLike) -> Floats:
        """Returns g = d(t) / d(t₀) for numbers of tokens t, above 0; shape as given."""
        return np.exp(-self.rate * _clock(self.form, tokens, self.anchor))

    def value(self, tokens: ArrayLike) -> Floats:
        """Returns d(t) for numbers of tokens t, above 0; shape as given."""
        return self.level * self.factor(tokens)

    @property
    def half_life(self) -> float:
        """Tokens after t₀ until d is half of d(t₀); infinite if it does not fall."""
        return half_life(self.form, self.rate, self.anchor)

    @property
    def aic(self) -> float:
        """Akaike's criterion for Gaussian residuals of unknown variance; 3 parameters."""
        with np.errstate(divide="ignore"):
            return float(self.points * np.log(self.squares / self.points) + 2 * 3)


def half_life(form: str, rate: float, anchor: float) -> float:
    """Returns the tokens after `anchor` in which d halves; infinite for a rate of 0 or below."""
    if rate <= 0:
        return float("inf")
    with np.errstate(over="ignore"):
        return float(
            np.log(2) / rate if form == EXPONENTIAL else anchor * np.expm1(np.log(2) / rate)
        )


def fit_forgetting(form: str, tokens: ArrayLike, values: ArrayLike) -> ForgettingCurve:
    """Fits a curve by least squares, anchored at the smallest number of tokens.

    Given the rate the level is linear, so only the rate is searched: on a grid of both signs, then
    between the neighbours of the best. Values may be of either sign, as an estimated d′ is.

    Args:
        form: `exponential` or `power`.
        tokens: tokens since the last exposure, above 0, shape (n,); at least 3 different ones.
        values: the effect at these, shape (n,).

    Raises:
        ValueError: an unknown form, too few points, or a number that is not finite or positive.
    """
    t, d = np.asarray(tokens, np.float64), np.asarray(values, np.float64)
    if form not in FORMS:
        raise ValueError(f"{form!r} is no form of forgetting: choose from {', '.join(FORMS)}")
    if len(np.unique(t)) < 3 or t.shape != d.shape:
        raise ValueError(f"{len(np.unique(t))} different numbers of tokens: a fit needs 3")
    if not (np.isfinite(t).all() and np.isfinite(d).all() and (t > 0).all()):
        raise ValueError("tokens must be finite and above 0, and values finite")
    anchor = float(t.min())
    clock = _clock(form, t, anchor)
    span = float(clock.max())
    positive = np.geomspace(SLOWEST, FASTEST, GRID // 2) / span
    grid = np.concatenate([-positive[::-1], [0.0], positive])
    rates = _refine(grid, clock, d) if d.any() else np.zeros(1)
    levels, squares = _levels_and_squares(rates, clock, d)
    best = int(np.argmin(squares))
    rate, at_limit = float(rates[best]), bool(abs(rates[best]) * span > 0.999 * FASTEST)
    squares_left = float(squares[best])
    return ForgettingCurve(form, anchor, float(levels[best]), rate, squares_left, len(t), at_limit)


def share_left_by_weight_decay(learning_rates: ArrayLike, weight_decays: ArrayLike) -> float:
    """Returns Π(1 − λη), the share of a weight's change that decoupled weight decay leaves.

    AdamW multiplies each weight by 1 − λη before it adds the step's own change, so what earlier
    steps wrote shrinks by this much at least. Forgetting was found to be faster (Bordt et al. 2024,
    arXiv 2410.03249).

    Args:
        learning_rates: η of each step since.
        weight_decays: λ of each step since.
    """
    products = np.asarray(learning_rates, np.float64) * np.asarray(weight_decays, np.float64)
    return float(np.prod(1 - products))


def _clock(form: str, tokens: ArrayLike, anchor: float) -> Floats:
    """Returns what the logarithm of the curve is linear in, 0 at the anchor."""
    t = np.asarray(tokens, np.float64)
    return t - anchor if form == EXPONENTIAL else np.log(t / anchor)


def _levels_and_squares(rates: Floats, clock: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Returns the best level for each rate and the squares that it leaves, shape (rates,)."""
    exponents = -rates[:, None] * clock
    factors = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    levels = factors @ values / (factors**2).sum(axis=1)
    squares = ((values - levels[:, None] * factors) ** 2).sum(axis=1)
    return levels * np.exp(-exponents.max(axis=1)), squares


def _refine(grid: Floats, clock: Floats, values: Floats) -> Floats:
    """Returns a fine grid between the neighbours of the best of a coarse one."""
    for _ in range(3):
        best = int(np.argmin(_levels_and_squares(grid, clock, values)[1]))
        low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
        grid = np.linspace(low, high, 201)
    return grid
