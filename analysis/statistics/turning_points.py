"""The levels between which AUROC clearly moves along a sweep or over occurrences.

Two levels differ clearly where the interval of their difference excludes 0
(`core.statistics.estimates.pairwise_standardised_differences`): the draws are paired, so cells
that share their texts are compared text by text. The intervals are corrected for the number of
pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, pairwise_standardised_differences

CONFIDENCE = 0.95
"""The joint confidence of the intervals of all differences."""
SMALLEST = 0.01
"""Smaller differences between levels are ignored: two decimals do not show them."""


def turning_levels(line: Mapping[float, Estimate]) -> list[float]:
    """The levels where the clear moves start, turn and end, ascending; empty without any."""
    levels = sorted(line)
    if len(levels) < 2:
        return []
    estimates = [line[level] for level in levels]
    evidence = pairwise_standardised_differences(estimates, CONFIDENCE)
    aurocs = np.array([estimate.value for estimate in estimates])
    visible = np.abs(aurocs[None, :] - aurocs[:, None]) >= SMALLEST
    return [levels[index] for index in turning_points(np.where(visible, evidence, 0.0))]


def turning_points(evidence: Scores) -> list[int]:
    """The levels (0 to K − 1) where the clear moves start, turn and end; empty without any.

    A level starts, turns or ends a move where the evidence is strongest, which need not be where
    the value is: a wide interval shows no move.

    Args:
        evidence: for levels i and j, above 1 where AUROC clearly rises from i to j, below −1 where
            it clearly falls (K×K).
    """
    points: list[int] = []
    start_level = direction = 0
    for end_level in range(1, len(evidence)):
        origins = range(start_level + (direction != 0), end_level)
        strengths = {s: s * evidence[origins, end_level] for s in (1, -1) if s != direction}
        sign, strength = max(strengths.items(), key=lambda item: float(item[1].max()))
        if strength.max() > 1:  # the stronger, where one origin is clearly below and another above
            start_level, direction = origins[int(strength.argmax())], sign
            points.append(start_level)
    if not points:
        return []
    strength = direction * evidence[start_level, start_level + 1 :]
    return [*points, start_level + 1 + int(strength.argmax())]


def format_levels(levels: Sequence[float]) -> str:
    """The levels as a cell of a table."""
    return " ".join(str(float(level)) for level in levels)


def parse_level_indices(text: str, levels: Sequence[float]) -> list[int]:
    """The positions among `levels` of those that `format_levels` wrote."""
    return [int(np.abs(np.array(levels) - float(level)).argmin()) for level in text.split()]
