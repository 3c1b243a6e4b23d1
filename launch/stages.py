"""A cell's stages, each in this process or by processes of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import detection.run
import training.run
from core import wholeness
from core.artifacts import Artifact, plain
from detection.config import DetectionStage
from launch.config import ClusterConfig
from launch.processes import Processes
from launch.saved_config import save_config
from training.config import TrainingStage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stages:
    """Where a cell's stages run.

    Attributes:
        cluster: how processes are started.
        folder: the cell's records, which processes of their own read and write.
        code: the snapshot that they run.
    """

    cluster: ClusterConfig
    folder: Path = Path()
    code: Path = Path()

    def train(self, name: str, stage: TrainingStage) -> Artifact:
        """The training stage."""
        return training.run.run(stage, self._start("train", name, stage))

    def detect(self, name: str, stage: DetectionStage) -> Artifact:
        """The detection stage."""
        return detection.run.run(stage, self._start("detect", name, stage))

    def processes(self, stage: str) -> Processes:
        """How a stage's processes are started."""
        return Processes(self.cluster, stage, self.folder, self.code)

    def _start(
        self, stage: str, name: str, config: TrainingStage | DetectionStage
    ) -> Callable[[Path], None] | None:
        """What starts a stage's processes; None: this process does it."""
        processes = self.processes(stage)
        return None if processes.alone else partial(self._run, processes, name, config)

    def _run(
        self,
        processes: Processes,
        name: str,
        stage: TrainingStage | DetectionStage,
        artifact: Path,
    ) -> None:
        asked = {**plain(stage), "records": str(self.folder), "verify": wholeness.policy()}
        save_config(self.folder / "stages" / name, asked, self.code / "conf")
        module = "training" if isinstance(stage, TrainingStage) else "detection"
        processes.run(module, name, artifact)
