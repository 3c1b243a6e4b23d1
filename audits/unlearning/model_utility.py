"""Model utility: the harmonic mean of what a model still knows about other things.

Nine numbers (Maini et al. 2024, "TOFU"): the probability of the right answer, ROUGE-L
recall and max(0, 1 − truth ratio), each on retained questions, on real authors and on world facts.
The harmonic mean is 0 if one of them is: a model that lost one thing has no utility. Higher is
better, and it says nothing about forgetting: the original has the highest.

The probability is P(a|q)^(1/|a|). On questions of multiple choice (real authors, world facts) it
is divided by the sum over all answers. There the paper has P(a|q) without the exponent;
open-unlearning has the exponent, and so does this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contamination.core.statistics.bootstrap import Scores


def answer_probability(right: float, wrong: Scores, *, multiple_choice: bool) -> float:
    """Returns the probability of a right answer per token, or its share among all answers.

    Args:
        right: the mean log-probability per token of the right answer, in nats.
        wrong: that of each wrong answer.
        multiple_choice: whether to divide by the sum over all answers.
    """
    others = float(np.exp(wrong - right).sum()) if multiple_choice else 0.0
    return 1 / (1 + others) if multiple_choice else float(np.exp(right))


def model_utility(values: Sequence[float]) -> float:
    """Returns the harmonic mean; 0 if a value is 0, NaN if there is none or one is unknown."""
    if not values or np.isnan(values).any():
        return float("nan")
    return 0.0 if min(values) <= 0 else len(values) / sum(1 / value for value in values)
