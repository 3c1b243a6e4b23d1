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

    score(x) = 1/(T-1) Σ_t log p(x_t | x_<t) / len(zlib(x)), in nats a token and byte: a text that
    is likely merely because it repeats itself compresses well and scores lower.
    """

    def score(self, example: Example) -> float:
        """The mean over the scored tokens, over the bytes of the compressed UTF-8 text."""
        return mean_logprob(example.stats(ORIGINAL)) / len(zlib.compress(example.text.encode()))
