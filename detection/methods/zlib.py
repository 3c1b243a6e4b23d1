"""The zlib attack."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from contamination.detection.methods._shared import mean_logprob
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example


@dataclass(frozen=True, kw_only=True)
class Zlib(Method):
    """The mean log-likelihood over the text's compressed size (Carlini et al. 2021, section 5.2).

    score(x) = 1/(T-1) Σ_t log p(x_t | x_<t) / len(zlib(x)), in nats per token and byte. A text that
    is likely only because it is repetitive compresses well and has a lower score.
    """

    def score(self, example: Example) -> float:
        """Returns the mean over the scored tokens, divided by the bytes of the compressed text."""
        return mean_logprob(example.stats(ORIGINAL)) / len(zlib.compress(example.text.encode()))
