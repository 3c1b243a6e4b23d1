"""One process's share of a pass, and the model that it keeps for the next one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from detection.config import DetectionConfig
from detection.model import ScoredModel

if TYPE_CHECKING:
    from detection.model.language_model import LanguageModel

T = TypeVar("T")

# What a pass does: `task(model, sequences, names, *columns, progress=title)` gives a result for
# each sequence, in their order. For another process it must be a module's function, or a `partial`.
Task = Callable[..., list[T]]


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One process's share of a pass."""

    task: Task[T]
    source: ScoredModel
    settings: DetectionConfig
    columns: Sequence[Sequence[Any]]
    title: str | None

    def run(self, number: int) -> list[T]:
        """The task's results; on CUDA by GPU `number` modulo their number."""
        if not self.columns[0]:
            return []
        model = _kept.model(self.source, _placed(self.settings, number))
        return self.task(model, *self.columns, progress=self.title)


class _Kept:
    """The model loaded last, for the next pass is often over the same one."""

    def __init__(self) -> None:
        self._key: tuple[ScoredModel, DetectionConfig] | None = None
        self._model: LanguageModel | None = None

    def model(self, source: ScoredModel, settings: DetectionConfig) -> LanguageModel:
        """The model on its device; another is freed before it is loaded."""
        if self._model is None or self._key != (source, settings):
            self._model = None
            gc.collect()
            self._model = source.load(settings)
            self._key = source, settings
        return self._model


_kept = _Kept()


def takes_gpu(settings: DetectionConfig) -> bool:
    """Whether the settings leave the choice of a GPU to this module, and there is one."""
    import torch

    return torch.cuda.is_available() and settings.device in ("auto", "cuda")


def _placed(settings: DetectionConfig, number: int) -> DetectionConfig:
    import torch

    if not takes_gpu(settings):
        return settings
    return replace(settings, device=f"cuda:{number % torch.cuda.device_count()}")
