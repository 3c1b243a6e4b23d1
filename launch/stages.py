"""A cell's stages, each in this process or by processes of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import detection.run
import injection.run
import training.run
from core import wholeness
from core.artifacts import Artifact, as_data, file_name
from core.progress import STAGE, SWEEP, ends, within
from detection.config import DetectionStage
from injection.config import InjectionStage
from injection.tokens import Tokenizer
from launch.config import PACKAGES, ClusterConfig
from launch.costs import Made, recorded
from launch.folder import CellFolder, Launch
from launch.processes import Processes
from launch.rest import rest
from launch.saved_config import save_config
from training.config import TrainingStage


@dataclass(frozen=True)
class Stages:
    """Where a cell's stages run."""

    cluster: ClusterConfig
    folder: Path = Path()  # the cell's, which processes of their own read and write as well
    code: Path = Path()  # the snapshot that they run
    in_turn: bool = False  # whether the cells of its sweep run here, one after another
    slice: str | None = None  # of the detection, such as 2/8, where that alone is made

    def inject(
        self,
        run: str,
        stage: InjectionStage,
        checked: Callable[[Tokenizer], None] | None = None,
    ) -> Artifact:
        """The injection stage, in this process; `run` tells it from the cell's others.

        `checked`: see `injection.run.run`.
        """
        return self.make("inject", run, partial(injection.run.run, stage, checked))

    def train(self, run: str, stage: TrainingStage) -> Artifact:
        """The training stage; `run` tells it from the cell's others."""
        start = self._start("train", run, stage)
        return self.make("train", run, partial(training.run.run, stage, start))

    def detect(self, run: str, stage: DetectionStage) -> Artifact:
        """The detection stage; `run` tells it from the cell's others."""
        start, own = self._start("detect", run, stage), stage.detection.processes
        return self.make("detect", run, partial(detection.run.run, stage, start), own)

    def detect_slice(self, run: str, stage: DetectionStage) -> None:
        """This slice of a detection stage's passes, without scores."""
        name, own = f"{run} {self.slice}", replace(stage, slice=self.slice)
        start, processes = self._start("detect", file_name(name), own), own.detection.processes
        make = partial(detection.run.run_slice, own, start)
        self.make("detect", name, make, processes)

    def make(self, stage: str, run: str, make: Callable[[], Made], processes: int = 1) -> Made:
        """What `make` gives as a run of a stage, which bars name; its cost is the cell's."""
        name = f"{stage} {run}"
        with within(STAGE, name), within(SWEEP, self._left(name)):
            if self.folder == Path():  # of no cell
                return make()
            count = self.processes(stage).here if stage in PACKAGES else 1
            return recorded(self.folder, stage, run, max(count, processes), make)

    def _left(self, run: str) -> str:
        """When the run should end, and how much follows it, for bars; empty: not known."""
        if not self.in_turn:
            return ""
        found = rest(Launch(self.folder.parents[1]), CellFolder(self.folder), run)
        return ends(found.now, found.later) if found else ""

    def processes(self, stage: str) -> Processes:
        """How a stage's processes are started."""
        return Processes(self.cluster, stage, self.folder, self.code)

    def _start(
        self, stage: str, run: str, config: TrainingStage | DetectionStage
    ) -> Callable[[Path | None], None] | None:
        """What starts a stage's processes; None: this process does it."""
        processes = self.processes(stage)

        def start(artifact: Path | None) -> None:
            given = {"records": str(self.folder), "verify": wholeness.policy()}
            save_config(processes.saved(run), {**as_data(config), **given}, self.code / "conf")
            processes.run(run, artifact)

        return None if processes.alone else start
