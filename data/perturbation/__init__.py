"""Rewordings of texts: word edits, and replacements by a masked language model.

They create approximate duplicates of inserted texts, and neighbours and augmentations of scored
texts.
"""

from __future__ import annotations

from contamination.data.perturbation.base import Rewording
from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.data.perturbation.word_edits import Delete, Exact, Lowercase, Swap

__all__ = ["Delete", "Exact", "Lowercase", "MaskedLM", "Rewording", "Swap"]
