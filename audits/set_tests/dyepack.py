"""DyePack: backdoors with random targets (Cheng et al. 2025, arXiv 2505.23001).

A benchmark is published with B backdoors: items with a trigger, whose answers are all one of K
options, the backdoor's target, drawn at random. A backdoor is activated if the model's most
frequent answer to other items with the trigger is the target. A model that did not see the items
knows nothing of the draw, so that each backdoor is activated with probability 1/K, whatever the
model answers, and the p-value of τ activated ones is P(Bin(B, 1/K) ≥ τ).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contamination.audits.set_tests.version_rank import Tail
from contamination.core.statistics.bootstrap import Scores


def dyepack_tail(activated: int, options: Sequence[int]) -> Tail:
    """Returns the chances of at least so many activated backdoors, and of more, without a leak.

    Args:
        activated: τ, the number of activated backdoors.
        options: K of each of the B backdoors. If they are equal the distribution is binomial.
    """
    distribution = np.ones(1)
    for number in options:
        distribution = np.convolve(distribution, [1 - 1 / number, 1 / number])
    return Tail.of(distribution, activated)


def most_frequent_answer(option_scores: Scores) -> int:
    """Returns the option that most probes get as their answer; of several the first.

    The order of the options has nothing to do with the target, nor does then this rule for ties.

    Args:
        option_scores: the score of each option as the continuation of each probe, shape (probes,
            K).
    """
    return int(np.bincount(option_scores.argmax(axis=1), minlength=option_scores.shape[1]).argmax())
