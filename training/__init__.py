"""Continual pretraining on a contaminated corpus with DeepSpeed."""

from training.checkpoint import Checkpoint, is_checkpoint, is_export, open_checkpoint

__all__ = ["Checkpoint", "is_checkpoint", "is_export", "open_checkpoint"]
