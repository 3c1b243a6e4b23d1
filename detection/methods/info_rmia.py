"""InfoRMIA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.detection.methods._aligned import gain_by_token
from contamination.detection.methods.base import Method
from contamination.detection.methods.reference import REFERENCE
from contamination.detection.passes import ORIGINAL, Example, Pass

POPULATION = Pass(view="population")


@dataclass(frozen=True, kw_only=True)
class InfoRmia(Method):
    """Token-level InfoRMIA (Tao and Shokri 2025, arXiv 2510.05582): gain over a population's.

    RMIA compares the gain log p(x | θ) / p(x) of a text with those of a population of others.
    InfoRMIA takes the mean over the population in place of the share that is beaten, which is the
    gain plus KL(p(z) ‖ p(z | θ)). At a token, the population is the vocabulary as the reference
    expects it there:

        s_t = log p_T(x_t | x_<t) − log p_R(x_t | x_<t) + KL(p_R(· | x_<t) ‖ p_T(· | x_<t))

    score(x) = the mean s_t of the n = T-1 scored tokens, in nats per token; T is the target and R
    the reference. A token drawn from the reference has a mean s_t of 0. The page of `view` shows
    s_t token by token. With a fixed population of texts the term would be one constant for all
    texts, and order them as `reference` does.

    The equation is put together from summaries and two public implementations of the paper, whose
    own text was not at hand. One of these softens both distributions by a temperature of 2 and
    turns the score's sign, both can average the lowest tokens only, which is left out here, and
    they average several references, where here is one: a model of the same tokenizer and in files.
    If it is the target's own past, the score is an upper bound. Both models read each text once
    more, at the same time, so `method=all` leaves it out.
    """

    costly: ClassVar[bool] = True
    aligned: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, REFERENCE, POPULATION)

    def score(self, example: Example) -> float:
        """Returns the mean over the tokens."""
        return float(self.score_by_token(example).mean())

    def score_by_token(self, example: Example) -> NDArray[np.float64]:
        """Returns s_t of each scored token that both models read."""
        gains = gain_by_token(example)
        by_token: NDArray[np.float64] = gains - example.stats(POPULATION).logprob[: len(gains)]
        return by_token
