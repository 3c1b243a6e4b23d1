"""Membership scores: every method from as few forward passes as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contamination.core.process_startup import lazy_exports

if TYPE_CHECKING:
    from contamination.detection.api import evaluate, score
    from contamination.detection.scores import Scores, open_scores

__all__ = ["Scores", "evaluate", "open_scores", "score"]
__getattr__ = lazy_exports(
    __name__, {"evaluate": "api", "score": "api", "Scores": "scores", "open_scores": "scores"}
)
