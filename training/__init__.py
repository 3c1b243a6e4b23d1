"""Continual pretraining on a contaminated corpus with DeepSpeed."""

import core.early  # noqa: F401 (signals are answered from here on)
from training.ancestry import Ancestry, ancestry_of
from training.checkpoint import Checkpoint, is_checkpoint, is_export, open_checkpoint, open_trained

__all__ = ["Ancestry", "Checkpoint", "ancestry_of", "is_checkpoint", "is_export"]
__all__ += ["open_checkpoint", "open_trained"]
