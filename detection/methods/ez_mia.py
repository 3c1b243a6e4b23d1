"""EZ-MIA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.detection.methods._aligned import gain_by_token
from contamination.detection.methods.base import Method
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.passes import ORIGINAL, Example, Pass

NO_ERRORS = 2.0
"""The score of a text without errors: above 1, the most that a text with errors can have."""
UNDECIDED = 0.5
"""The score if no error moved either way, so that the share is 0 / 0."""


@dataclass(frozen=True, kw_only=True)
class EzMia(Method):
    """The error zone's balance of gains and losses (EZ-MIA; Ilić et al. 2026, arXiv 2601.12104).

    An error is a token that is not the target's most likely one. With δ_t = log p_target −
    log p_reference of token t in nats, P = Σ max(δ_t, 0) and N = Σ max(−δ_t, 0) over the errors,
    score(x) = P / (P + N), without a unit. That orders texts as the paper's P / N does, and is
    finite if N = 0. If P = N = 0, it is 1/2.

    A text without errors scores 2, above all others, and is flagged: the target predicts each of
    its tokens, the strongest sign of membership that this statistic knows. The authors' code gives
    0, below nearly all others, to such texts, to those with N = 0 and to those with a single error.
    There the best memorised members rank last: for a model that had learned its members nearly by
    heart AUROC was .561 by that rule and .951 by this one
    (docs/validation/public-implementations.md). Here a text that any model predicts, such as a
    sequence of numbers, ranks first, whether it is a member or not: see how many non-members have
    the flag. A text with a single error is flagged too, since its score is nearly always 0 or 1.

    The paper's reference is the model before fine-tuning: an upper bound for those who have not
    that model. Another model of the same tokenizer is a weaker, fair reference. All scored tokens
    count; the authors' code leaves out the first one.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "top_logprob")
    aligned: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, REFERENCE)

    def score(self, example: Example) -> float:
        """Returns the share of the gains in all movement at errors."""
        errors = self._gains_at_errors(example)
        if not len(errors):
            return NO_ERRORS
        gained, moved = float(errors[errors > 0].sum()), float(np.abs(errors).sum())
        return gained / moved if moved else UNDECIDED

    def flag(self, example: Example) -> str:
        """Returns a flag if there are fewer than two errors."""
        errors = len(self._gains_at_errors(example))
        return {0: "no error, ranked above all others", 1: "a single error"}.get(errors, "")

    def _gains_at_errors(self, example: Example) -> NDArray[np.float64]:
        gains = gain_by_token(example)
        return gains[~example.stats(ORIGINAL).is_top[: len(gains)]]
