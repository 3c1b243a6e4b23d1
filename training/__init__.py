"""Continual pretraining on a contaminated corpus with DeepSpeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contamination.core.process_startup import lazy_exports

if TYPE_CHECKING:
    from contamination.training.trained_model import Checkpoint, open_checkpoint

__all__ = ["Checkpoint", "open_checkpoint", "train"]
__getattr__ = lazy_exports(
    __name__, {"Checkpoint": "trained_model", "open_checkpoint": "trained_model"}
)


def train(*words: str) -> Checkpoint:
    """Returns a model trained on a corpus, or a finished one, as `python -m training` does.

    Args:
        *words: overrides for conf/training.yaml, such as `"corpus_folder=runs/corpus/…"`.

    Raises:
        UserError: as the command would report it.
    """
    from contamination.core.cli import run_stage
    from contamination.training.config import TrainingStage
    from contamination.training.run import run
    from contamination.training.trained_model import open_checkpoint

    return open_checkpoint(run_stage("training", words, TrainingStage, run))
