"""The neighbourhood attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contamination.core.config import FRACTION, at_least, one_of, ranged_field
from contamination.detection.methods._shared import AUGMENTATIONS, augmented_pass, mean_logprob
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass


@dataclass(frozen=True, kw_only=True)
class Neighbor(Method):
    """The likelihood minus that of the text's neighbours (Mattern et al. 2023).

    score(x) = mean log p of x's tokens − the mean over n neighbours x̃ of mean log p of x̃'s tokens,
    in nats per token. A neighbour is the text with some words replaced by those of a masked
    language model (`data.perturbation.masked_lm.MaskedLM`).
    """

    augmentation: str = ranged_field("masked_lm", one_of(AUGMENTATIONS))
    """masked_lm (the paper's), swap, delete, lowercase, or given (the benchmark's own)."""

    n: int = ranged_field(25, at_least(1))
    """Neighbours per text, 1 or more, as in the papers' comparisons."""

    share: float = ranged_field(0.3, FRACTION)
    """The share of the words to replace, above 0 and at most 1."""

    @property
    def neighbor_pass(self) -> Pass:
        """The pass over the neighbours."""
        return augmented_pass(self.augmentation, self.n, self.share)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text and its neighbours."""
        return (ORIGINAL, self.neighbor_pass)

    def score(self, example: Example) -> float:
        """Returns the text's mean minus the mean of its neighbours' means."""
        text_mean = mean_logprob(example.stats(ORIGINAL))
        return float(
            np.mean([text_mean - mean_logprob(s) for s in example.all_stats(self.neighbor_pass)])
        )
