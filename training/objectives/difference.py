"""Gradient difference (Liu et al. 2022, "Continual learning and private unlearning", section 4).

Ascent on the forget set with descent on retained text: −L(forget) + λ L(retain), where L is the
mean loss per token and λ is training.retain_weight (1 in Maini et al. 2024, "TOFU", section 4.1).
"""

from __future__ import annotations

from typing import ClassVar

from contamination.training.objectives.ascent import GradientAscent
from contamination.training.objectives.base import ALWAYS


class GradientDifference(GradientAscent):
    """Gradient ascent on the forget set with descent on retained text."""

    retains: ClassVar[str] = ALWAYS
