"""Membership scores: every method from as few forward passes as possible."""

import core.early  # noqa: F401 (signals are answered from here on)
from detection.scores import Scores, open_scores

__all__ = ["Scores", "open_scores"]
