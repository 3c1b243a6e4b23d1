"""The loss attack."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.detection.methods._shared import mean_logprob
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class Loss(Method):
    """The mean log-likelihood of a token (Yeom et al. 2018, section 3): the negative loss.

    score(x) = 1/(T-1) Σ_t log p(x_t | x_<t), in nats per token. Its AUROC is that of −perplexity.
    """

    def score(self, example: Example) -> float:
        """Returns the mean over the scored tokens."""
        return mean_logprob(example.stats(ORIGINAL))
