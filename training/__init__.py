"""Continual pretraining on a contaminated corpus with DeepSpeed."""

import core.early  # noqa: F401 (signals are answered from here on)
from training.ancestry import Ancestry, ancestry_of
from training.checkpoint import Checkpoint, is_checkpoint, is_export, open_checkpoint, open_trained

__all__ = ["Ancestry", "Checkpoint", "ancestry_of", "is_checkpoint", "is_export"]
__all__ += ["open_checkpoint", "open_trained", "train"]


def train(*words: str) -> Checkpoint:
    """Train a model on a corpus, or find it trained: `python -m training` with these words.

    Args:
        *words: overrides of conf/training.yaml, such as `"corpus_folder=runs/corpus/…"`.

    Raises:
        UserError: as the command does.
    """
    from core.compose import made
    from training.config import TrainingStage
    from training.run import run

    return open_checkpoint(made("training", words, TrainingStage, run))
