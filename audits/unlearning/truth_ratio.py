"""The truth ratio: how likely wrong answers are, compared with the right one.

    R = [(1/|A|) Σ_{â ∈ A} P(â|q)^(1/|â|)] / P(ã|q)^(1/|ã|)

(Maini et al. 2024, "TOFU"), where A are perturbed answers, which are wrong, and ã is the right one,
paraphrased if there is a paraphrase. open-unlearning's code takes the geometric mean over A (the
mean of the losses), and so does this module. Its answers end with an end-of-text token, which is
likely after each of them and moves its ratios towards 1; here an answer is its own tokens.

On texts to be forgotten both report the mean of min(R, 1/R), the higher the better: 1 means that
right and wrong answers are equally likely. It misleads: a model that collapsed to uniform guesses
has 1 as well. On other texts the mean of max(0, 1 − R) is a part of the model's utility.
"""

from __future__ import annotations

import numpy as np

from contamination.core.statistics.bootstrap import Scores


def truth_ratio(right: float, wrong: Scores) -> float:
    """Returns R of a question; NaN without a wrong answer.

    Args:
        right: the mean log-probability per token of the right answer, in nats.
        wrong: that of each wrong answer.
    """
    return float(np.exp(np.mean(wrong) - right)) if len(wrong) else float("nan")


def mean_closeness_to_1(ratios: Scores) -> float:
    """Returns the mean of min(R, 1/R), for texts to be forgotten; NaN without a ratio."""
    known = ratios[~np.isnan(ratios)]
    with np.errstate(divide="ignore"):
        return float(np.minimum(known, 1 / known).mean()) if len(known) else float("nan")


def mean_preference_for_truth(ratios: Scores) -> float:
    """Returns the mean of max(0, 1 − R), for other texts; NaN without a ratio."""
    known = ratios[~np.isnan(ratios)]
    return float(np.maximum(0, 1 - known).mean()) if len(known) else float("nan")
