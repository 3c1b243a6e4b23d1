"""Gradient ascent (Jang et al. 2023, "Knowledge unlearning for mitigating privacy risks", eq. 1).

The step lowers 1/n Σ_t log p(x_t | x_<t) on the forget set. This has no minimum, so the user has to
stop it: few epochs, a small learning rate, exports on the way.
"""

from __future__ import annotations

from typing import ClassVar

from contamination.training.objectives.likelihood import Likelihood


class GradientAscent(Likelihood):
    """The mean loss per token, which is raised."""

    weight: ClassVar[float] = -1.0
