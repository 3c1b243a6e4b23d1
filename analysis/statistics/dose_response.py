"""The logistic dose-response: P(member scores above a random non-member) = σ(a + b·log2(dose)).

That probability is the AUROC at a dose, so a fit needs the AUROC and the number of members at each
dose, no score. All resamples are fitted at once; R curves over K doses.

A detector that is perfect at some dose would send the slope to infinity; half an example a side is
added at every dose (Haldane 1956; Anscombe 1956), which moves an AUROC of 0.8 from 25 members by
0.01. So the slope leans a little towards zero where members are few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.metrics import Scores

STEPS = 100
"""Newton's steps at most; 5 to 14 are usual."""
FARTHEST = 4
"""The log-odds at no dose move more in one step: from far away, Newton's would overshoot."""


class Curves(NamedTuple):
    """Log-odds at log2(dose) = 0 (R) and their rise with each doubling (R)."""

    intercept: Scores
    slope: Scores

    def at(self, log_occurrences: Scores) -> Scores:
        """Log-odds of every curve at every log2(dose) (R×K)."""
        found: Scores = self.intercept[:, None] + self.slope[:, None] * log_occurrences
        return found


def fit(log_occurrences: Scores, auroc: Scores, members: Scores) -> Curves:
    """Logistic regression of every row by maximum quasi-likelihood.

    Args:
        log_occurrences: log2 of the doses, at least two different ones (K).
        auroc: a row a curve (R×K).
        members: the weight of each dose (K).
    """
    share = (members * auroc + 0.5) / (members + 1)
    centre = np.average(log_occurrences, weights=members)
    x = log_occurrences - centre
    level = slope = np.zeros(len(auroc))
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(level[:, None] + slope[:, None] * x)))
        step, turn = _newton(x, members * p * (1 - p), members * (share - p))
        moved = np.abs(step[:, None] + turn[:, None] * x).max(axis=1)
        part = FARTHEST / np.maximum(moved, FARTHEST)
        level, slope = level + part * step, slope + part * turn
        if moved.max() < 1e-9:
            break
    return Curves(level - slope * centre, slope)


def crossing(curves: Curves, low: float, high: float, level: float) -> Scores:
    """log2 of the dose at which each curve reaches an AUROC of `level`, between `low` and `high`.

    Where it doesn't: -inf if it would before `low`, inf if after `high`, by the first curve's
    direction.
    """
    target = float(np.log(level / (1 - level)))
    ends = curves.at(np.array([low, high])) - target
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (target - curves.intercept) / curves.slope
    rising = 1.0 if curves.slope[0] >= 0 else -1.0
    outside = np.where(ends.sum(axis=1) * rising > 0, -np.inf, np.inf)
    reached = np.sign(ends[:, 0]) * np.sign(ends[:, 1]) <= 0
    found: Scores = np.where(reached, inside, outside)
    return found


def _newton(x: Scores, weight: Scores, left: Scores) -> tuple[Scores, Scores]:
    """Newton's step of the level at x = 0 and of the slope, from what each row leaves over."""
    total = weight.sum(axis=1)
    mean_x = (weight * x).sum(axis=1) / total
    away = x - mean_x[:, None]
    turn = (left * away).sum(axis=1) / (weight * away**2).sum(axis=1)
    return left.sum(axis=1) / total - turn * mean_x, turn
