"""Rewordings: the same text in slightly other words.

They make approximate duplicates of what is inserted, and the neighbours and augmentations of what
is scored.
"""

from __future__ import annotations

from contamination.data.perturbation.base import Rewording
from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.data.perturbation.word_edits import Delete, Exact, Lowercase, Swap

__all__ = ["Delete", "Exact", "Lowercase", "MaskedLM", "Rewording", "Swap"]
