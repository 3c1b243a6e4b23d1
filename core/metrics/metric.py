"""What a metric is: how it is called and read, its value, and the same for all draws at once.

Higher = member. An example is flagged when its score reaches a threshold, so an operating point
is a whole set {score ≥ v}: tied examples are flagged together or not at all. Nothing is
interpolated, because a point between two thresholds is one that no detector can be run at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.bootstrap import Ranked, Scores

Steps = tuple[float, float]
"""The least and the most."""


@dataclass(frozen=True)
class Metric:
    """All that tables, charts and the page know of a metric."""

    name: str
    """In the results."""
    title: str
    """In tables and charts."""
    value: Callable[[Scores, Scores], float]
    """Of the members' and the non-members' scores."""
    draws: Callable[[Ranked], Scores]
    """The value of every draw."""
    guess: float
    """What scores that say nothing reach."""
    higher_is_better: bool = True
    trials: Callable[[int, int], float] | None = None
    """`Estimate.trials` from the numbers of members and non-members."""
    steps: Callable[[Ranked], Steps | None] | None = None
    """Of a rate: what ties leave possible; None where they are few."""
    least_members: int = 1
    least_nonmembers: int = 1
    """The fewest that carry the metric (`core.metrics.rates.fewest_examples`)."""

    def needs(self, members: int, nonmembers: int) -> str:
        """What is missing to carry it, such as "≥ 500 non-members"; empty where nothing is."""
        sides = (
            (nonmembers, self.least_nonmembers, "non-members"),
            (members, self.least_members, "members"),
        )
        return " and ".join(
            kind if least == 1 else f"≥ {least:,} {kind}"
            for found, least, kind in sides
            if found < least
        )
