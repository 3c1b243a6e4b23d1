"""Gradient ascent (Jang et al. 2023, "Knowledge unlearning for mitigating privacy risks", eq. 1).

The forget set's likelihood falls: the step lowers 1/n Σ_t log p(x_t | x_<t). It has no lowest
value, so that the user stops it: few epochs, a small rate, exports on the way.
"""

from __future__ import annotations

from typing import ClassVar

from contamination.training.objectives.likelihood import Likelihood


class GradientAscent(Likelihood):
    """The mean loss of a token, which is raised."""

    weight: ClassVar[float] = -1.0
