"""The reference attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contamination.detection.methods._shared import mean_logprob
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass

REFERENCE = Pass(model="reference")


@dataclass(frozen=True, kw_only=True)
class Reference(Method):
    """The likelihood minus that of a model that never saw the text (Carlini et al. 2021, s. 5.2).

    score(x) = mean log p_target of a token − mean log p_reference of a token, in nats per token.
    Each model reads the text with its own tokenizer, so each mean is over its own tokens.
    """

    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, REFERENCE)

    def score(self, example: Example) -> float:
        """Returns the difference of the two means."""
        return mean_logprob(example.stats(ORIGINAL)) - mean_logprob(example.stats(REFERENCE))
