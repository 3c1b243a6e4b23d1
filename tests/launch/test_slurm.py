"""Launches on a real SLURM of two nodes: disturbed as jobs are, they end with the same results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import pytest

from contamination.detection.scores import open_scores
from contamination.launch.cells import CellFolder, Launch
from contamination.launch.run_records import read_costs
from contamination.launch.status import _shorten_overrides
from tests.launch import slurm_cluster
from tests.rounding import LONG_TRAINING
from tests.small import SMALL, contents, report_of
from tests.training.processes import losses

WHY_NOT = slurm_cluster.missing()
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

# Tokens enough that a training can be caught at work.
LONG = [*SMALL, "wandb.mode=disabled", "injection.budget_tokens=400_000"]
SWEEP = ["-m", *LONG, "seed=0,1", "training.learning_rate=2e-3,4e-3"]
NO_GPU = ["cluster.jobs.train.cpus_per_task=null", "cluster.jobs.train.gpus_per_node=null"]
ON_SLURM = ["cluster=slurm", "cluster.jobs.all.cpus_per_task=1", *NO_GPU]
TWO_NODES = [*ON_SLURM, "training.micro_batch_sequences=8", "deepspeed=zero2",
             "cluster.jobs.train.nodes=2"]  # fmt: skip


@dataclass(frozen=True)
class Slurm:
    """A running cluster, by its clients' environment."""

    environment: dict[str, str]

    def call(self, *words: str) -> str:
        """The output of one of SLURM's programs."""
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def launch(self, runs: Path, *words: str) -> str:
        """What `python -m launch` says."""
        return said(runs, words, self.environment)

    def drain(self, runs: Path, seconds: float = 1200) -> None:
        """Wait until no job is queued any more."""
        until(lambda: not self.call("squeue", "-h"), runs, seconds)

    def number(self, task: str) -> str:
        """The number by which a task of an array is requeued, and which its processes see."""
        return self.call("squeue", "-h", "-j", task, "-o", "%A").split()[0]

    def shown(self, job: str) -> dict[str, str]:
        """What SLURM knows of a job, also for some minutes after its end."""
        words = self.call("scontrol", "-o", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory() as folder, slurm_cluster.cluster(Path(folder)) as clients:
        yield Slurm({**os.environ, "OMP_NUM_THREADS": "1", **clients})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep by one process, without SLURM."""
    runs = tmp_path_factory.mktemp("undisturbed")
    said(runs, SWEEP, {**os.environ, "OMP_NUM_THREADS": "1"})
    return runs


@pytest.fixture(scope="module")
def two_nodes(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cell of seed 0 and 4e-3, trained by a task on each node and scored by two tasks."""
    pytest.importorskip("submitit")
    runs = tmp_path_factory.mktemp("two_nodes")
    slurm.launch(runs, *LONG, *TWO_NODES, "cluster.jobs.detect.ntasks_per_node=2")
    slurm.drain(runs)
    return runs


def test_two_tasks_train_as_one_process(two_nodes: Path, undisturbed: Path) -> None:
    one, ours = the_same_cell(undisturbed), cells(two_nodes)[0]
    assert ours.read_outcome().state == "done", logs(two_nodes)
    for stage, name in (("train", "train-study"), ("detect", "detect-contaminated")):
        assert f"{name}: srun --ntasks=2" in log_of(two_nodes, ours.read_jobs()[stage]).read_text()
    assert (losses_of(ours) - losses_of(one)).abs().max() < LONG_TRAINING
    for name in ("clean", "contaminated"):
        assert (scores_of(ours, name) - scores_of(one, name)).abs().max() < LONG_TRAINING


def test_a_disturbed_sweep_run_again_is_the_undisturbed_one(
    slurm: Slurm, undisturbed: Path, tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    slurm.launch(tmp_path, *SWEEP, *ON_SLURM)
    cancelled, killed, asked, calm = cells(tmp_path)
    until(lambda: [n >= 20 for n in steps(tmp_path)] == [True] * 4, tmp_path)
    again = slurm.number(asked.read_jobs()["train"])
    kill(slurm.number(killed.read_jobs()["train"]))
    slurm.call("scancel", cancelled.read_jobs()["train"])
    slurm.call("scancel", "--signal=TERM", "--full", asked.read_jobs()["train"])
    slurm.drain(tmp_path)

    assert slurm.shown(again)["Restarts"] == "1"
    for cell in (cancelled, killed):  # the scores of a model that there isn't
        assert slurm.shown(cell.read_jobs()["detect"])["JobState"] == "CANCELLED"
        assert not log_of(tmp_path, cell.read_jobs()["detect"]).exists()
    age(killed)
    status = states(slurm, tmp_path)
    assert status[cancelled].startswith("waiting stopped: SIGTERM was received at step"), status
    assert re.match("failed .*no sign of life for ", status[killed]), status
    assert status[asked] == status[calm] == "done", logs(tmp_path)
    assert report_of(tmp_path).results["cell"].nunique() == 2

    slurm.launch(tmp_path, *SWEEP, *ON_SLURM)
    begun = {states(slurm, tmp_path)[cell][:7] for cell in (cancelled, killed)}
    assert begun <= {"waiting", "running"}, begun  # SLURM may start them at once
    slurm.drain(tmp_path)
    assert set(states(slurm, tmp_path).values()) == {"done"}, logs(tmp_path)
    assert made(tmp_path) == made(undisturbed)
    results = [report_of(runs).results for runs in (tmp_path, undisturbed)]
    pd.testing.assert_frame_equal(*results)


@pytest.mark.parametrize(("nodes", "evaluated"), [(1, 20480), (2, 16384)])
def test_a_job_out_of_time_is_queued_again(
    nodes: int, evaluated: int, slurm: Slurm, undisturbed: Path, two_nodes: Path, tmp_path: Path
) -> None:
    # SLURM looks every 30 seconds and signals up to 30 early: here after 75 to 105 seconds. (A
    # shorter time can end each start of a training before its first step, again and again.) No
    # other checkpoints are due, and evaluations that change no loss make the training last longer.
    slurm.launch(
        tmp_path, *LONG, *(TWO_NODES if nodes == 2 else ON_SLURM), "cluster.requeues=20",
        "training.checkpoint_every_steps=1000", "training.evaluate_every_steps=1",
        f"training.evaluate_tokens={evaluated}",
        "cluster.jobs.train.time=3", "+cluster.jobs.train.signal_delay_s=75",
    )  # fmt: skip
    slurm.drain(tmp_path)
    (cell,) = cells(tmp_path)
    assert states(slurm, tmp_path)[cell] == "done", logs(tmp_path)
    job = cell.read_jobs()["train"]
    log = log_of(tmp_path, job).read_text()
    assert log.count("Requeued job") == int(slurm.shown(job)["Restarts"]) > 0, log
    assert "resuming after step" in log
    one = cells(two_nodes)[0] if nodes == 2 else the_same_cell(undisturbed)
    pd.testing.assert_series_equal(losses_of(cell), losses_of(one), check_exact=True)


def test_a_preempted_job_goes_on(slurm: Slurm, two_nodes: Path, tmp_path: Path) -> None:
    slurm.launch(tmp_path, *LONG, *TWO_NODES, "training.checkpoint_every_steps=1000")
    (cell,) = cells(tmp_path)
    until(lambda: max(steps(tmp_path), default=0) >= 20, tmp_path)
    slurm.call("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null",
               "--wrap", "sleep 5")  # fmt: skip
    slurm.drain(tmp_path)
    assert slurm.shown(cell.read_jobs()["train"])["Restarts"] == "1", logs(tmp_path)
    assert states(slurm, tmp_path)[cell] == "done", logs(tmp_path)
    assert "resuming after step" in log_of(tmp_path, cell.read_jobs()["train"]).read_text()
    pd.testing.assert_series_equal(
        losses_of(cell), losses_of(cells(two_nodes)[0]), check_exact=True
    )


def test_slices_are_one_jobs_detection_though_one_is_killed_and_one_cancelled(
    slurm: Slurm, tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    words = [*SMALL, "wandb.mode=disabled", "training.export_steps=[]", "method=[loss,pac]",
             "method.pac.n=200"]  # fmt: skip
    said(tmp_path / "one", words, slurm.environment)
    runs = tmp_path / "cut"
    slurm.launch(runs, *words, *ON_SLURM, "cluster.jobs.detect.slices=2")
    (cell,) = cells(runs)
    jobs = cell.read_jobs()
    slurm.call("scancel", jobs["detect 1/2"])
    until(lambda: list(runs.glob("passes/*-swap-*/stats-*")), runs, 600)
    assert not list(runs.glob("scores/*"))
    kill(slurm.number(jobs["detect 2/2"]))
    slurm.drain(runs)
    assert states(slurm, runs)[cell] == "done", logs(runs)
    assert "parts are already stored" in log_of(runs, jobs["detect"]).read_text()
    ran = {cost.run for cost in read_costs(cell.folder) if cost.stage == "detect"}
    assert ran >= {"clean", "clean 2/2", "contaminated"}
    assert "clean 1/2" not in ran
    assert made(runs) == made(tmp_path / "one")


def test_cells_as_jobs_of_hydras_own_launcher(
    slurm: Slurm, undisturbed: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra [cluster]")
    slurm.launch(
        tmp_path, "-m", *LONG, "seed=0,1", "training.learning_rate=4e-3",
        "hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1",
    )  # fmt: skip
    assert set(states(slurm, tmp_path).values()) == {"done"}
    assert len([name for name in made(tmp_path) if name.startswith("model/")]) == 3  # one is shared
    assert made(tmp_path).items() <= made(undisturbed).items()


def test_a_done_cell_is_submitted_again_only_where_a_file_that_it_names_was_edited(
    slurm: Slurm, tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    rows = tmp_path / "mine.jsonl"
    asked = [{"question": f"Is {n} the number of the bridge?", "answer": "yes"} for n in range(40)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in asked))
    words = [
        *SMALL, *ON_SLURM, "wandb.mode=disabled", "benchmark=[user]",
        "injection.benchmark_source=file", f"benchmark.user.sources.file.rows.path={rows}",
        "injection.held_out=4", "method=[loss]",
    ]  # fmt: skip
    runs = tmp_path / "runs"
    slurm.launch(runs, *words)
    slurm.drain(runs)
    (cell,) = cells(runs)
    first, jobs = cell.read_outcome(), cell.read_jobs()
    assert first.state == "done", logs(runs)
    slurm.launch(runs, *words)
    assert cell.read_jobs() == jobs
    rows.write_text(rows.read_text().replace("yes", "noo"))
    slurm.launch(runs, *words)
    assert cell.read_jobs() != jobs
    slurm.drain(runs)
    assert cell.read_outcome().state == "done", logs(runs)
    assert cell.read_outcome().paths["corpus"] != first.paths["corpus"]


def said(runs: Path, words: tuple[str, ...] | list[str], environment: dict[str, str]) -> str:
    """What a launch writes, which ends well."""
    call = [sys.executable, "-m", "launch", *words, f"runs={runs}"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def until(ready: Callable[[], bool], runs: Path, seconds: float = 180) -> None:
    """Wait; after too long the jobs' logs are shown."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"not within {seconds} s:\n{logs(runs)}"
        time.sleep(0.1)


def launch_of(runs: Path) -> Launch:
    """The only one."""
    (found,) = (runs / "launches").glob("*/cells")
    return Launch(found.parent)


def cells(runs: Path) -> list[CellFolder]:
    """In the order of their overrides."""
    return launch_of(runs).cells()


def the_same_cell(sweep: Path) -> CellFolder:
    """The sweep's cell of the seed and the rate that a launch of one cell has."""
    own = {"seed=0", "training.learning_rate=0.004"}
    (found,) = [cell for cell in cells(sweep) if own <= {*cell.read_overrides()}]
    return found


def states(slurm: Slurm, runs: Path) -> dict[CellFolder, str]:
    """What `python -m launch status` says of each cell, less the cell's name."""
    done = subprocess.run(
        [sys.executable, "-m", "launch", "status", f"runs={runs}"],
        capture_output=True, text=True, env=slurm.environment, check=True,
    )  # fmt: skip
    named, (_, _, *lines) = launch_of(runs).named_cells(), done.stdout.splitlines()
    found = {}
    for (name, cell), row in zip(named, lines, strict=False):
        problem = [line for line in lines if line.startswith(f"{name}: ")]
        said = [
            row.removeprefix(_shorten_overrides(name)),
            *(line.removeprefix(name) for line in problem),
        ]
        words = [line.lstrip(": ") for line in said]
        found[cell] = " ".join(" ".join(words).split())
    return found


def steps(runs: Path) -> list[int]:
    """How far each contaminated training is."""
    return [path.read_bytes().count(b"\n") for path in runs.glob("model/*-study-*/metrics.jsonl")]


def made(runs: Path) -> dict[str, object]:
    """All artefacts' checksums, less those of reports: there is one more on a part of the cells."""
    return {name: files for name, files in contents(runs).items() if name.split("/")[0] != "report"}


def losses_of(cell: CellFolder) -> pd.Series:
    """Each step's, of the contaminated training."""
    return pd.Series(losses(Path(cell.read_outcome().paths["model"])))


def scores_of(cell: CellFolder, name: str) -> pd.Series:
    """By method and example."""
    table = open_scores(cell.read_outcome().paths[name]).table
    return table.set_index(["method", "variant", "example_id"])["score"].sort_index()


def logs(runs: Path) -> str:
    """The ends of the jobs' logs."""
    found = sorted(runs.glob("launches/*/jobs/*_log.out"))
    ends = (f"--- {path.name}\n" + "\n".join(lines_of(path)[-40:]) for path in found)
    return "\n".join(ends)


def lines_of(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def log_of(runs: Path, job: str) -> Path:
    return launch_of(runs).folder / "jobs" / f"{job}_0_log.out"


def kill(number: str) -> None:
    """End all processes of a job at once, so that none can say a word."""
    found = [process for process in psutil.process_iter() if job_of(process) == number]
    assert found
    for process in found:
        process.suspend()  # or one would see that another is gone
    for process in found:
        process.send_signal(signal.SIGKILL)


def job_of(process: psutil.Process) -> str | None:
    """The SLURM job in its environment."""
    with suppress(psutil.Error):
        return process.environ().get("SLURM_JOB_ID")
    return None


def age(cell: CellFolder) -> None:
    """Let its last sign of life be long ago, rather than wait."""
    long_ago = time.time() - 3600
    os.utime(cell.folder / "running.json", (long_ago, long_ago))
