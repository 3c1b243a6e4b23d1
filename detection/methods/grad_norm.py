"""GradNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass, TextStats

GRADIENT = Pass(view="gradient")


@dataclass(frozen=True, kw_only=True)
class GradNorm(Method):
    """The negative norm of the loss's gradient (GradNorm; Wang et al. 2024, arXiv 2402.17012).

    score(x) = −‖∇_θ ℓ(x)‖₂, with ℓ the mean loss of the n = T-1 scored tokens in nats, and θ all
    parameters as one vector in float32. Training lowers the loss of a member until its gradient is
    small. It takes a forward and a backward pass for each text by itself, about 3 forward passes,
    so `method=all` leaves it out. It needs the weights: a served model and a quantised one are
    refused. It is the norm of the whole vector, as in the authors' code. MIMIR's and
    open-unlearning's take the norm of each parameter tensor by itself and the mean of these norms,
    which weighs a bias like a matrix; MIMIR's default norm is the largest entry.
    """

    numbers: ClassVar[tuple[str, ...]] = ()
    costly: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL, GRADIENT)  # the first counts scored tokens

    def score(self, example: Example) -> float:
        """Returns the negative norm."""
        return -cast(TextStats, example.stats(GRADIENT)).gradient_norm
