"""A cell's stages, each in this process or by processes of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from contamination.core import integrity
from contamination.core.artifacts import Artifact, as_data, file_name
from contamination.core.progress import STAGE, SWEEP, ends, within
from contamination.detection.config import DetectionStage
from contamination.injection.config import InjectionStage
from contamination.launch.cells import CellFolder, Launch
from contamination.launch.config import PACKAGES, ClusterConfig
from contamination.launch.processes import Processes
from contamination.launch.run_records import Made, read_costs, recorded
from contamination.launch.saved_config import save_config
from contamination.training.config import TrainingStage

if TYPE_CHECKING:
    from contamination.injection.token_stream import Tokenizer

SHARED_RUNS = {
    *("inject base", "inject validation", "train base", "train reference", "train masked_lm"),
    "detect clean",
}
"""Runs that cells usually share: where the first cell alone is known, the others lack these."""


@dataclass(frozen=True)
class TimeLeft:
    """Seconds that are left when a run begins: of that run, and of all that follows."""

    now: float
    later: float


def time_left(launch: Launch, cell: CellFolder, run: str) -> TimeLeft | None:
    """What is left when the cell begins `run`, such as "train study"; None: not known yet."""
    cells = launch.ordered()
    names = [one.folder.name for one in cells]
    if cell.folder.name not in names:
        return None
    number = names.index(cell.folder.name)
    done = [_seconds_by_run(one) for n, one in enumerate(cells) if n != number and _is_done(one)]
    order = list(dict.fromkeys(name for took in done for name in took))
    if run not in order:
        return None
    at, (first, *others) = order.index(run), done
    now = mean(took[run] for took in done if run in took)
    own = {**_seconds_by_run(cell), run: now}

    def expected(name: str) -> float:
        """Of a run of a cell to come: as in this cell, if it is past it, and in others."""
        seen = [took.get(name, 0.0) for took in others]
        seen += [own.get(name, 0.0)] * (order.index(name) <= at)
        return mean(seen) if seen else first.get(name, 0.0) * (name not in SHARED_RUNS)

    waiting = sum(not _is_done(one) for one in cells[number + 1 :])
    later = sum(map(expected, order[at + 1 :])) + waiting * sum(map(expected, order))
    return TimeLeft(now, later)


def _is_done(cell: CellFolder) -> bool:
    outcome = cell.read_outcome()
    return outcome is not None and outcome.state == "done"


def _seconds_by_run(cell: CellFolder) -> dict[str, float]:
    """Seconds of each of its runs; 0, and left out, of those that it found made."""
    took: dict[str, float] = defaultdict(float)
    for cost in read_costs(cell.folder):
        took[f"{cost.stage} {cost.run}"] += cost.seconds
    return took


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
        import contamination.injection.run

        return self.make("inject", run, partial(contamination.injection.run.run, stage, checked))

    def train(self, run: str, stage: TrainingStage) -> Artifact:
        """The training stage; `run` tells it from the cell's others."""
        import contamination.training.run

        start = self._start("train", run, stage)
        return self.make("train", run, partial(contamination.training.run.run, stage, start))

    def detect(self, run: str, stage: DetectionStage) -> Artifact:
        """The detection stage; `run` tells it from the cell's others."""
        import contamination.detection.run

        start, own = self._start("detect", run, stage), stage.detection.processes
        return self.make("detect", run, partial(contamination.detection.run.run, stage, start), own)

    def detect_slice(self, run: str, stage: DetectionStage) -> None:
        """This slice of a detection stage's passes, without scores."""
        import contamination.detection.run

        name, own = f"{run} {self.slice}", replace(stage, slice=self.slice)
        start, processes = self._start("detect", file_name(name), own), own.detection.processes
        make = partial(contamination.detection.run.run_slice, own, start)
        self.make("detect", name, make, processes)

    def make(self, stage: str, run: str, make: Callable[[], Made], processes: int = 1) -> Made:
        """What `make` gives as a run of a stage, which bars name; its cost is the cell's."""
        name = f"{stage} {run}"
        with within(STAGE, name), within(SWEEP, self._left(name)):
            if self.folder == Path():  # of no cell
                return make()
            count = self.processes(stage).local_count if stage in PACKAGES else 1
            return recorded(self.folder, stage, run, max(count, processes), make)

    def _left(self, run: str) -> str:
        """When the run should end, and how much follows it, for bars; empty: not known."""
        if not self.in_turn:
            return ""
        found = time_left(Launch(self.folder.parents[1]), CellFolder(self.folder), run)
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
            given = {"records": str(self.folder), "verify": integrity.policy()}
            save_config(
                processes.config_folder(run), {**as_data(config), **given}, self.code / "conf"
            )
            processes.run(run, artifact)

        return None if processes.in_process else start
