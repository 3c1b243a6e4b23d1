"""Membership scores: every method from as few forward passes as possible."""

from typing import TYPE_CHECKING, Any

import core.early  # noqa: F401 (signals are answered from here on)
from detection.scores import Scores, open_scores

if TYPE_CHECKING:
    from detection.api import evaluate, score

__all__ = ["Scores", "evaluate", "open_scores", "score"]


def __getattr__(name: str) -> Any:
    """`score` and `evaluate`, which load more than the stage's first words need."""
    if name not in ("evaluate", "score"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from detection import api

    return getattr(api, name)
