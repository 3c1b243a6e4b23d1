"""The window-based comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.detection.methods._aligned import gain_by_token
from contamination.detection.methods.base import Method
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.passes import ORIGINAL, Example, Pass

WIDTHS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
"""Tokens per window, as in the authors' configuration (their code's default is one width of 1)."""


@dataclass(frozen=True, kw_only=True)
class Wbc(Method):
    """The window-based comparison with a reference (WBC; Chen et al. 2026, arXiv 2601.02751).

    With δ_t = log p_target − log p_reference of token t in nats, score(x) = the mean over the
    widths w of the share of the n−w+1 windows of w tokens in a row whose Σ δ_t is above 0, that is
    whose loss is higher by the reference: a number from 0 to 1 without a unit. The widths are 2, 3,
    4, 6, 9, 13, 18, 25, 32 and 40, without those above the n = T-1 scored tokens. A text of one
    scored token is one window, and flagged. Few scores are possible for a short text, so ties are
    common. The paper attacks fine-tuned models and its reference is the model before fine-tuning:
    an upper bound for those who have not that model. Another model of the same tokenizer is a
    weaker, fair reference. The widths are those of the authors' configuration, which differ from a
    geometric progression of ten from 2 to 40 (2, 3, 4, 5, 8, 11, 15, 21, 29, 40).

    The authors' code takes a window that is wider than the text as the whole text, so that scores
    of texts below 40 scored tokens differ (docs/validation/public-implementations.md). A window is
    w tokens in a row, and a text of n < w tokens has none: taken as the whole text, it would count
    once for each width above n, for 10 tokens as half of the score. The paper's texts have 512
    tokens or more by the commands of its code, so that its results do not depend on the choice.
    """

    aligned: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, REFERENCE)

    def score(self, example: Example) -> float:
        """Returns the mean share of windows that the target finds likelier."""
        gains = gain_by_token(example)
        sums = np.concatenate(([0.0], np.cumsum(gains)))
        shares = [_share_above_zero(sums, width) for width in WIDTHS if width <= len(gains)]
        return sum(shares) / len(shares) if shares else _share_above_zero(sums, 1)

    def flag(self, example: Example) -> str:
        """Returns a flag if the text is shorter than the narrowest window."""
        return "" if len(gain_by_token(example)) >= WIDTHS[0] else "a single token, as one window"


def _share_above_zero(sums: NDArray[np.float64], width: int) -> float:
    """Returns the share of windows with a sum above 0, from the sums of the first 0, 1, … gains."""
    return float(np.count_nonzero(sums[width:] > sums[:-width])) / (len(sums) - width)
