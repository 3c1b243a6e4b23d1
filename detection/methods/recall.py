"""ReCaLL."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import at_least, limited
from contamination.detection.methods._shared import ratio
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass


@dataclass(frozen=True, kw_only=True)
class Recall(Method):
    """Relative conditional log-likelihood (ReCaLL; Xie et al. 2024, arXiv 2406.15968).

    score(x) = mean log p(x | P) of a token / mean log p(x) of a token, a ratio of two negatives
    without a unit. P is a prefix of non-member texts (`prefix.path`, else the corpus's held-out
    texts of the benchmark): it makes a member less likely, and hardly a non-member. The text is
    tokenised once: both means are over its tokens.
    """

    shots: int = limited(7, at_least(1))
    """Texts in the prefix, 1 or more; fewer, and said, where they leave a text no room."""

    @property
    def prefixed(self) -> Pass:
        """The pass over the text behind its prefix."""
        return Pass(view="prefix", shots=self.shots)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text alone and behind the prefix."""
        return (ORIGINAL, self.prefixed)

    def score(self, example: Example) -> float:
        """The ratio of the two means."""
        return ratio(example.stats(self.prefixed), example.stats(ORIGINAL))
