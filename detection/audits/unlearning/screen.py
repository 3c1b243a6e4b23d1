"""The ratio screen: chunks that a model scores after unlearning as before (Shi et al. 2024, 7.1).

A chunk is suspicious where the ratio of the two models' Min-K% scores lies in (1/w, w), w = 1.15:
what should have been forgotten looks as it did. A chunk that was never known looks as it did, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.estimates import Estimate
from core.metrics import Scores
from detection.audits.unlearning.estimating import Units


def ratios(before: Scores, after: Scores) -> Scores:
    """Of the scores after to those before, both mean log-probabilities; 1 where both are 0."""
    both = (before == 0) & (after == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Scores = np.where(both, 1.0, after / before)
    return found


def suspicious(ratio: Scores, width: float) -> NDArray[np.bool_]:
    """Whether each ratio lies in (1 / width, width)."""
    found: NDArray[np.bool_] = (ratio > 1 / width) & (ratio < width)
    return found


@dataclass(frozen=True)
class Screened:
    """What the screen finds with one unlearned model; None: no labels, or none of that kind.

    Attributes:
        suspicious: which chunks.
        share: of them among all chunks.
        precision: of the suspicious chunks the share of members.
        recall: of the members the share that is suspicious.
        false_alarms: the same of the non-members.
        members: the share of members among all chunks: the precision of a screen that says nothing.
        kept: of the members that the model still knows (see `still_known`) the share that is
            suspicious.
        known: how many those are.
    """

    suspicious: NDArray[np.bool_]
    share: Estimate | None
    precision: Estimate | None
    recall: Estimate | None
    false_alarms: Estimate | None
    members: Estimate | None
    kept: Estimate | None
    known: int | None

    def rates(self) -> Iterator[tuple[str, Estimate | None]]:
        """Every rate by name."""
        for name in ("share", "precision", "members", "recall", "false_alarms", "kept"):
            yield name, getattr(self, name)


def screened(
    units: Units, before: Scores, after: Scores, clean: Scores | None, width: float
) -> Screened:
    """What the screen finds.

    Args:
        units: the chunks.
        before: the original's scores of them.
        after: the unlearned model's.
        clean: the twin's.
        width: w.
    """
    flagged = suspicious(ratios(before, after), width)
    hits, member, other = flagged.astype(float), units.sides[True], units.sides[False]
    known = None if clean is None else member & still_known(before, after, clean)
    rates: dict[str, Any] = dict.fromkeys(("precision", "recall", "false_alarms", "members"))
    if units.labelled:
        labelled = member | other
        is_member = member.astype(float)
        rates = {
            "precision": units.mean_of(is_member, flagged & labelled, "suspicious", rate=True),
            "members": units.mean_of(is_member, labelled, "labelled", rate=True),
            "recall": units.mean_of(hits, member, "members", rate=True),
            "false_alarms": units.mean_of(hits, other, "non-members", rate=True),
        }
    return Screened(
        suspicious=flagged,
        share=units.mean_of(hits, np.ones(len(hits), bool), "all", rate=True),
        kept=None if known is None else units.mean_of(hits, known, "known", rate=True),
        known=None if known is None else int(known.sum()),
        **rates,
    )


def still_known(before: Scores, after: Scores, clean: Scores) -> NDArray[np.bool_]:
    """Chunks that the original knew, and whose score is nearer to the original's than the twin's.

    The original knew those that it scores above the twin.
    """
    found: NDArray[np.bool_] = (before > clean) & (after > (before + clean) / 2)
    return found


def moved(before: Scores, after: Scores) -> Scores:
    """How far a chunk fell, before − after: both models together may tell who was forgotten."""
    found: Scores = before - after
    return found
