"""The lowercase attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contamination.detection.methods._shared import mean_logprob_ratio
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass

LOWERCASE = Pass(view="lowercase")


@dataclass(frozen=True, kw_only=True)
class Lowercase(Method):
    """The likelihood of the text in lower case over that of the text (Carlini et al. 2021, s. 5.2).

    score(x) = mean log p of lower(x)'s tokens / mean log p of x's tokens: a ratio of two negative
    numbers without a unit, above 1 if the text's capitals make it likelier.
    """

    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, LOWERCASE)

    def score(self, example: Example) -> float:
        """Returns the ratio of the two means, each over its own tokens."""
        return mean_logprob_ratio(example.stats(LOWERCASE), example.stats(ORIGINAL))
