"""A cell's stages, each in this process or by processes of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import detection.run
import training.run
from core import wholeness
from core.artifacts import Artifact, as_data
from detection.config import DetectionStage
from launch.config import ClusterConfig
from launch.processes import Processes
from launch.saved_config import save_config
from training.config import TrainingStage


@dataclass(frozen=True)
class Stages:
    """Where a cell's stages run."""

    cluster: ClusterConfig
    folder: Path = Path()  # the cell's, which processes of their own read and write as well
    code: Path = Path()  # the snapshot that they run

    def train(self, run: str, stage: TrainingStage) -> Artifact:
        """The training stage; `run` tells it from the cell's others."""
        return training.run.run(stage, self._start("train", run, stage))

    def detect(self, run: str, stage: DetectionStage) -> Artifact:
        """The detection stage; `run` tells it from the cell's others."""
        return detection.run.run(stage, self._start("detect", run, stage))

    def processes(self, stage: str) -> Processes:
        """How a stage's processes are started."""
        return Processes(self.cluster, stage, self.folder, self.code)

    def _start(
        self, stage: str, run: str, config: TrainingStage | DetectionStage
    ) -> Callable[[Path], None] | None:
        """What starts a stage's processes; None: this process does it."""
        processes = self.processes(stage)

        def start(artifact: Path) -> None:
            given = {"records": str(self.folder), "verify": wholeness.policy()}
            save_config(processes.saved(run), {**as_data(config), **given}, self.code / "conf")
            processes.run(run, artifact)

        return None if processes.alone else start
