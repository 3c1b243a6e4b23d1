"""Gradient ascent on the forget set, and gradient difference, which also retains other text."""

from __future__ import annotations

from typing import ClassVar

from contamination.training.objectives.base import ALWAYS
from contamination.training.objectives.likelihood import Likelihood


class GradientAscent(Likelihood):
    """Gradient ascent (Jang et al. 2023, equation 1).

    The step lowers 1/n Σ_t log p(x_t | x_<t) on the forget set, so the mean loss per token rises.
    This has no minimum, so the user has to stop it: few epochs, a small learning rate, exports on
    the way.

    The paper is "Knowledge unlearning for mitigating privacy risks in language models".
    """

    weight: ClassVar[float] = -1.0


class GradientDifference(GradientAscent):
    """Gradient difference (Liu et al. 2022, "Continual learning and private unlearning").

    Ascent on the forget set with descent on retained text (section 4): −L(forget) + λ L(retain),
    where L is the mean loss per token and λ is training.retain_weight (1 in Maini et al. 2024,
    "TOFU", section 4.1).
    """

    retains: ClassVar[str] = ALWAYS
