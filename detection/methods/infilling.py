"""The Infilling Score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contamination.core.config import FRACTION, Range, ranged_field
from contamination.detection.methods._shared import mean_of_lowest, standardised_logprobs
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Floats, Pass

SHORT = 32  # scored tokens: the paper's m is 1 up to here and 5 above

FUTURE = Range(
    lambda m: m in ("auto", "all") or (not isinstance(m, str | bool) and m >= 0),
    "give a number of tokens, 0 or more, or auto, or all.",
)


@dataclass(frozen=True, kw_only=True)
class Infilling(Method):
    """The Infilling Score (Raoof et al. 2025, eq. 10 and 11): how well a token fits what follows.

    With z = (log p − μ) / σ of a token at its own position, as in Min-K%++, and with the model's
    own choice x*_t = argmax p(·|x_<t) in place of x_t,

        r_t = z(x_t) − z(x*_t) + Σ_{j=1..m, t+j≤T} [z(x_{t+j} | x) − z(x_{t+j} | x with x_t → x*_t)]

    and score(x) = the mean of the ⌊k·n⌋ lowest r_t of the n = T-1 scored tokens, at least one. r_t
    has a sum over j, not a mean, and no unit. If x*_t is x_t, r_t is 0.
    """

    numbers: ClassVar[tuple[str, ...]] = ("logprob", "mean", "std", "top_logprob")

    m: int | str = ranged_field("auto", FUTURE)
    """The number of following tokens, 0 or more, or `all`; `auto` is 1 up to 32 tokens, else 5."""

    k: float = ranged_field(0.2, FRACTION)
    """The fraction of the tokens, above 0 and at most 1; the paper's default."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text and the text after each replacement; with m = 0, only the text."""
        if self.m == 0:
            return (ORIGINAL,)
        return (Pass("target", "infill", future=5 if self.m == "auto" else self.m),)

    def score(self, example: Example) -> float:
        """Returns the mean of the lowest r."""
        return mean_of_lowest(self.ratio_by_token(example), self.k)

    def ratio_by_token(self, example: Example) -> Floats:
        """Returns r_t of each scored token, shape (T-1,)."""
        (wanted,) = self.passes
        text, *branches = example.all_stats(wanted)
        ratios = (text.logprob - text.top_logprob) / text.std.astype(np.float64)
        for j, branch in enumerate(branches[: self._future_tokens(len(text))], start=1):
            ratios[:-j] += standardised_logprobs(text)[j:] - standardised_logprobs(branch)
        return ratios.astype(np.float32)

    def _future_tokens(self, scored: int) -> int:
        if isinstance(self.m, int):
            return self.m
        return scored if self.m == "all" else 1 if scored <= SHORT else 5
