"""Runs a cell's stages, each in this process or in separate processes, and predicts their time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from contamination.core import integrity, progress
from contamination.core.artifacts import Artifact, path_part_of, to_plain_data
from contamination.detection.config import DetectionStage
from contamination.injection.config import InjectionStage
from contamination.launch.cells import CellFolder, Launch
from contamination.launch.config import PACKAGES, ClusterConfig
from contamination.launch.processes import Processes
from contamination.launch.run_records import Made, make_and_record_cost, read_costs
from contamination.launch.saved_config import save_config
from contamination.training.config import TrainingStage

if TYPE_CHECKING:
    from contamination.injection.token_stream import Tokenizer

SHARED_RUNS = {
    *("inject base", "inject validation", "train base", "train reference", "train masked_lm"),
    "detect clean",
}
"""Runs whose artefacts cells usually share: the first cell makes them, and later cells reuse them.

Assumed while only one cell is done."""


@dataclass(frozen=True)
class TimeLeft:
    """Seconds that are left when a run begins."""

    now: float
    """Of that run."""
    later: float
    """Of all later runs of the sweep."""


def estimate_time_left(launch: Launch, cell: CellFolder, title: str) -> TimeLeft | None:
    """Returns the time left when a cell begins `title`, such as "train study"; None if not known.

    It is the mean of what the run took in finished cells, and for later cells also in this one.
    """
    cells = launch.cells_in_sweep_order()
    folder_names = [other.folder.name for other in cells]
    if cell.folder.name not in folder_names:
        return None
    number = folder_names.index(cell.folder.name)
    done = [other for n, other in enumerate(cells) if n != number and _has_done_outcome(other)]
    seconds_of_done = [_seconds_by_run(other) for other in done]
    runs = list(dict.fromkeys(name for seconds in seconds_of_done for name in seconds))
    if title not in runs:
        return None
    position, (first, *later_cells) = runs.index(title), seconds_of_done
    now = mean(seconds[title] for seconds in seconds_of_done if title in seconds)
    this_cell = {**_seconds_by_run(cell), title: now}

    def expected(run_title: str) -> float:
        """Returns the expected seconds of this run in a later cell."""
        observed = [seconds.get(run_title, 0.0) for seconds in later_cells]
        if runs.index(run_title) <= position:  # this cell has done it, or begins it now
            observed.append(this_cell.get(run_title, 0.0))
        return (
            mean(observed)
            if observed
            else first.get(run_title, 0.0) * (run_title not in SHARED_RUNS)
        )

    cells_left = sum(not _has_done_outcome(other) for other in cells[number + 1 :])
    later = sum(map(expected, runs[position + 1 :])) + cells_left * sum(map(expected, runs))
    return TimeLeft(now, later)


def _has_done_outcome(cell: CellFolder) -> bool:
    outcome = cell.read_outcome()
    return outcome is not None and outcome.state == "done"


def _seconds_by_run(cell: CellFolder) -> dict[str, float]:
    """Returns the seconds of each of the cell's runs; reused artefacts count as 0."""
    seconds_by_run: dict[str, float] = defaultdict(float)
    for cost in read_costs(cell.folder):
        seconds_by_run[f"{cost.stage} {cost.run}"] += cost.seconds
    return seconds_by_run


@dataclass(frozen=True)
class Stages:
    """Runs the stages of one cell.

    Attributes:
        cluster: how many processes each stage gets.
        folder: the cell's folder, which separate processes read and write as well; empty: none.
        code: the snapshot of the code that separate processes run.
        in_turn: whether this process runs the cells of the sweep one after another.
        slice: the slice of the detection, such as `2/8`, if only that is made.
    """

    cluster: ClusterConfig
    folder: Path = Path()
    code: Path = Path()
    in_turn: bool = False
    slice: str | None = None

    def inject(
        self,
        run_name: str,
        stage: InjectionStage,
        checked: Callable[[Tokenizer], None] | None = None,
    ) -> Artifact:
        """Runs the injection stage in this process.

        Args:
            run_name: distinguishes it from the cell's other runs of this stage.
            stage: what to make.
            checked: see `injection.run.run`.
        """
        import contamination.injection.run

        return self.make_artifact(
            "inject", run_name, partial(contamination.injection.run.run, stage, checked)
        )

    def train(self, run_name: str, stage: TrainingStage) -> Artifact:
        """Runs the training stage; `run_name` distinguishes it from the cell's other trainings."""
        import contamination.training.run

        start = self._process_starter("train", run_name, stage)
        return self.make_artifact(
            "train", run_name, partial(contamination.training.run.run, stage, start)
        )

    def detect(self, run_name: str, stage: DetectionStage) -> Artifact:
        """Runs the detection stage; `run_name` tells it from the cell's other detections."""
        import contamination.detection.run

        start, workers = self._process_starter("detect", run_name, stage), stage.detection.processes
        make = partial(contamination.detection.run.run, stage, start)
        return self.make_artifact("detect", run_name, make, workers)

    def detect_slice(self, run_name: str, stage: DetectionStage) -> None:
        """Runs this slice of a detection stage's passes, without scores."""
        import contamination.detection.run

        name, sliced_stage = f"{run_name} {self.slice}", replace(stage, slice=self.slice)
        start = self._process_starter("detect", path_part_of(name), sliced_stage)
        make = partial(contamination.detection.run.run_slice, sliced_stage, start)
        self.make_artifact("detect", name, make, stage.detection.processes)

    def make_artifact(
        self, stage_name: str, run_name: str, make: Callable[[], Made], processes: int = 1
    ) -> Made:
        """Returns what `make` returns; progress bars name the run, and its cost is recorded."""
        title = f"{stage_name} {run_name}"
        with (
            progress.set_in_environment(progress.STAGE, title),
            progress.set_in_environment(progress.LATER_RUNS, self._describe_time_left(title)),
        ):
            if self.folder == Path():  # there is no cell to record the cost
                return make()
            count = self.processes(stage_name).local_count if stage_name in PACKAGES else 1
            return make_and_record_cost(
                self.folder, stage_name, run_name, max(count, processes), make
            )

    def _describe_time_left(self, title: str) -> str:
        """Returns when the run and the sweep should end, for progress bars; empty if not known."""
        if not self.in_turn:
            return ""
        left = estimate_time_left(Launch(self.folder.parents[1]), CellFolder(self.folder), title)
        return progress.describe_later_runs("sweep", left.now, left.later) if left else ""

    def processes(self, stage: str) -> Processes:
        """Returns how a stage's processes are started."""
        return Processes(self.cluster, stage, self.folder, self.code)

    def _process_starter(
        self, stage_name: str, run_name: str, config: TrainingStage | DetectionStage
    ) -> Callable[[Path | None], None] | None:
        """Returns a function that starts a stage's processes; None: this process runs the stage."""
        processes = self.processes(stage_name)

        def start(artifact: Path | None) -> None:
            runtime = {"records": str(self.folder), "verify": integrity.current_hash_policy()}
            save_config(
                processes.config_folder(run_name),
                {**to_plain_data(config), **runtime},
                self.code / "conf",
            )
            processes.run_with_retries(run_name, artifact)

        return None if processes.is_in_process else start
