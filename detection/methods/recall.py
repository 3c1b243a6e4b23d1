"""ReCaLL."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import at_least, ranged_field
from contamination.detection.methods._shared import mean_logprob_ratio
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass


@dataclass(frozen=True, kw_only=True)
class Recall(Method):
    """Relative conditional log-likelihood (ReCaLL; Xie et al. 2024, arXiv 2406.15968).

    score(x) = mean log p(x | P) of a token / mean log p(x) of a token, a ratio of two negative
    numbers without a unit. P is a prefix of non-member texts (`prefix.path`, else the benchmark's
    texts that the corpus holds out). It makes members less likely and hardly affects non-members.
    The text is tokenised once, so both means are over the same tokens.
    """

    shots: int = ranged_field(7, at_least(1))
    """Texts in the prefix, 1 or more. Fewer are used, with a warning, if a text has no room."""

    @property
    def prefixed_pass(self) -> Pass:
        """The pass over the text after its prefix."""
        return Pass(view="prefix", shots=self.shots)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text alone and after the prefix."""
        return (ORIGINAL, self.prefixed_pass)

    def score(self, example: Example) -> float:
        """Returns the ratio of the two means."""
        return mean_logprob_ratio(example.stats(self.prefixed_pass), example.stats(ORIGINAL))
