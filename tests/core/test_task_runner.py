"""Tasks in worker processes, and as datatrove's executors are asked for them."""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.core.task_runner import StoredTask, TaskRunner, TasksConfig, run_unless_stored

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Squares:
    """A task whose result is the square of each piece's number."""

    folder: Path
    pieces: int

    def __len__(self):
        return self.pieces

    def files(self, piece):
        return [self.folder / f"{piece}.txt"]

    def process_piece(self, piece):
        self.files(piece)[0].write_text(str(piece**2))
        return {"square": piece**2}


executor_calls = []
lost_pieces = []
"""The pieces that are lost in each run of the executor; none in the others."""


@pytest.fixture
def modules(monkeypatch):
    """Those of datatrove and Ray, which are replaced; and the messages they were given."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # so that what a task sets is undone
    messages = []
    is_initialized = [False]
    ray = SimpleNamespace(
        is_initialized=lambda: is_initialized[0], init=lambda **options: messages.append(options)
    )
    executors = SimpleNamespace(LocalPipelineExecutor=LocalExecutor, RayPipelineExecutor=Executor)
    for name, module in {
        "ray": ray,
        "datatrove": SimpleNamespace(),
        "datatrove.executor": executors,
        "datatrove.executor.slurm": SimpleNamespace(SlurmPipelineExecutor=SlurmExecutor),
        "loguru": SimpleNamespace(
            logger=SimpleNamespace(disable=lambda name: messages.append(f"no log of {name}"))
        ),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    executor_calls.clear()
    lost_pieces.clear()
    return SimpleNamespace(messages=messages, is_initialized=is_initialized)


class Executor:
    """In the place of datatrove's: it runs the pieces here, one after another."""

    def __init__(self, pipeline, tasks, *positional, **options):
        self.pipeline, self.tasks = pipeline, tasks
        self.positional, self.options = positional, options

    def run(self):
        executor_calls.append((len(self.pipeline), self.tasks, self.positional, self.options))
        lost_now = lost_pieces.pop(0) if lost_pieces else ()
        for rank in {*range(self.tasks)} - {*lost_now}:
            self.pipeline[0](None, rank, self.tasks)


class LocalExecutor(Executor):
    def _run_for_rank(self, rank, local_rank):
        executor_calls.append((self.tasks, self.positional, self.options, rank, local_rank))
        self.pipeline[0](None, rank, self.tasks)


class SlurmExecutor(Executor):
    error = None

    def launch_merge_stats(self):
        raise AssertionError("another job is submitted")

    def run(self):
        super().run()
        self.launch_merge_stats()
        if self.error:
            raise self.error


SQUARES = [{"square": 0}, {"square": 1}, {"square": 4}, {"square": 9}]
RAY = {"kind": "datatrove", "executor": "ray"}


def run_squares(tmp_path, pieces=4, **cluster):
    return TaskRunner(tmp_path / "tasks", TasksConfig(**cluster)).run(
        "squares", Squares(tmp_path, pieces)
    )


@pytest.mark.parametrize("is_initialized", [False, True])
def test_ray_runs_each_piece_with_the_workers_and_memory_of_the_config(
    tmp_path, modules, is_initialized
):
    modules.is_initialized[0] = is_initialized
    assert run_squares(tmp_path, **RAY, workers=2, memory_gb=3) == SQUARES
    logs = str(tmp_path / "tasks" / "squares")
    assert executor_calls == [(1, 4, (2,), {"logging_dir": logs, "mem_per_cpu_gb": 3})]
    options = {
        "runtime_env": {"env_vars": {"PYTHONPATH": str(ROOT)}},
        "log_to_driver": False,
        "include_dashboard": False,
    }  # a cluster that is there already is used
    assert modules.messages == ["no log of datatrove", *[options] * (not is_initialized)]
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


class Bar:
    """A progress bar that keeps its options and its updates."""

    def __init__(self, **options):
        self.n, self.updates = 0, [options]

    def __enter__(self):
        bars.append(self)
        return self

    def __exit__(self, *_):
        pass

    def update(self, finished):
        self.n += finished
        self.updates.append(finished)


bars = []


def test_lost_pieces_are_run_again_and_the_progress_counts_the_finished_ones(
    tmp_path, modules, monkeypatch
):
    monkeypatch.setattr("contamination.core.task_runner.progress_bar", Bar)
    bars.clear()
    folder = tmp_path / "tasks" / "squares"
    (folder / "completions").mkdir(parents=True)
    for piece in range(4):  # datatrove's own marks, as if all had ended
        (folder / f"completions/{piece:05d}").touch()
    lost_pieces[:] = [(1, 2, 3), (2,)]
    assert run_squares(tmp_path, **RAY) == SQUARES
    assert len(executor_calls) == 3
    options = {"total": 4, "desc": "squares", "stage": "inject", "unit": "task"}
    assert bars[0].updates == [options, 0, 1, 2, 1]
    assert not [*(folder / "completions").iterdir()]
    assert run_squares(tmp_path, **RAY) == SQUARES  # of the stored results
    assert len(executor_calls) == 3
    assert bars[1].updates == [options, 4]


@pytest.mark.parametrize("retries", [0, 1])
def test_pieces_without_a_result_after_all_retries_are_an_error(tmp_path, modules, retries):
    lost_pieces[:] = [(1, 3)] * 5
    folder = tmp_path / "tasks" / "squares"
    message = (
        f"squares: 2 of 4 tasks ended without a result; the first is 1: see {folder}/logs/"
        "task_00001.log. Run the same command again: finished parts of a corpus are kept."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        run_squares(tmp_path, **RAY, retries=retries)
    assert len(executor_calls) == retries + 1


def test_a_damaged_result_of_an_earlier_run_is_computed_again(tmp_path, modules, caplog):
    assert run_squares(tmp_path) == SQUARES
    (tmp_path / "2.txt").write_text("damaged")
    time_before = (tmp_path / "tasks/squares/00001.json").stat().st_mtime_ns
    assert run_squares(tmp_path, **RAY) == SQUARES
    assert (tmp_path / "2.txt").read_text() == "4"
    assert (tmp_path / "tasks/squares/00001.json").stat().st_mtime_ns == time_before
    result_file = tmp_path / "tasks/squares/00002.json"
    assert caplog.messages == [f"{result_file} of an earlier run is damaged: it is computed again"]


@pytest.mark.parametrize("name", ["datatrove.executor", "loguru", "ray"])
def test_a_package_that_is_not_installed_is_named(tmp_path, modules, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"^cluster=datatrove needs {name}, which is not inst"):
        run_squares(tmp_path, **RAY)


class Pool:
    """In the place of worker processes: it runs the calls here."""

    def __init__(self, processes):
        pools.append(self)
        self.processes, self.jobs = processes, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, pieces):
        return map(function, pieces)

    def submit(self, function, *words):
        self.jobs.append(job := Future())
        if broken and words[-1] in broken:
            job.set_exception(BrokenProcessPool())
        elif not broken:
            job.set_result(function(*words))
        return job


pools, broken = [], []


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr("contamination.core.task_runner.worker_pool", Pool)
    pools.clear()
    broken.clear()


@pytest.mark.parametrize(("pieces", "processes", "started"), [(4, 3, [3]), (2, 3, [2]), (4, 1, [])])
def test_local_processes_are_no_more_than_the_pieces(tmp_path, pool, pieces, processes, started):
    runner = TaskRunner(tmp_path / "a" / "tasks", num_proc=processes)
    assert runner.run("squares", Squares(tmp_path, pieces)) == SQUARES[:pieces]
    assert [pool.processes for pool in pools] == started
    assert runner.run("squares", Squares(tmp_path, pieces)) == SQUARES[:pieces]


LOCAL = {"kind": "datatrove", "executor": "local"}


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 2), (9, 4)])
def test_datatroves_local_executor_runs_each_piece_in_a_worker(
    tmp_path, modules, pool, workers, processes
):
    assert run_squares(tmp_path, **LOCAL, workers=workers) == SQUARES
    assert [pool.processes for pool in pools] == [processes]
    options = {"logging_dir": str(tmp_path / "tasks" / "squares")}
    assert executor_calls == [(4, (), options, piece, 1) for piece in range(4)]


def test_the_pieces_of_a_killed_worker_are_started_again(tmp_path, modules, pool, caplog):
    broken.append(2)
    with pytest.raises(DataError, match="squares: 4 of 4 tasks ended without a result"):
        run_squares(tmp_path, **LOCAL, retries=1)
    assert caplog.messages == ["a worker was killed; its unfinished tasks are started again"] * 2
    states = [job.cancelled() for job in pools[0].jobs]
    assert states == [True, True, False, True]


def scancel(command, **options):
    executor_calls.append((command, options))


@pytest.fixture
def slurm(modules, monkeypatch):
    places = {"sbatch": "/usr/bin/sbatch"}
    monkeypatch.setattr("contamination.core.task_runner.shutil.which", places.get)
    monkeypatch.setattr("contamination.core.task_runner.subprocess.run", scancel)
    return places


SLURM = {"kind": "datatrove", "executor": "slurm", "partition": "short"}


def run_on_slurm(tmp_path, pieces=4, **cluster):
    runner = TaskRunner(tmp_path / "a corpus (1)" / "x" / "tasks", TasksConfig(**SLURM, **cluster))
    return runner.run("squares", Squares(tmp_path, pieces))


def test_slurm_runs_an_array_job_in_the_place_of_earlier_ones(tmp_path, slurm, monkeypatch):
    monkeypatch.setattr("contamination.core.task_runner.MAX_ARRAY_JOBS", 3)
    options = {"workers": 5, "memory_gb": 7, "time": "1:00:00", "sbatch": {"account": "mine"}}
    assert run_on_slurm(tmp_path, **options) == SQUARES
    folder = tmp_path / "a corpus (1)" / "x" / "tasks" / "squares"
    python = Path(sys.executable).parent
    assert executor_calls == [
        (["scancel", "--me", "--name=a-corpus-1-squares"], {"capture_output": True}),
        (1, 4, ("1:00:00", "short"), {
            "workers": 5,
            "mem_per_cpu_gb": 7,
            "job_name": "a-corpus-1-squares",
            "qos": None,
            "env_command": f"export PATH={python}:$PATH PYTHONPATH={ROOT}",
            "sbatch_args": {"wait": "", "dependency": "singleton", "account": "mine"},
            "tasks_per_job": 2,
            "logging_dir": str(folder),
            "with_srun": False,
        }),
    ]  # fmt: skip
    assert run_on_slurm(tmp_path, pieces=6)[4:] == [{"square": 16}, {"square": 25}]
    assert executor_calls[-1][-1]["tasks_per_job"] == 1  # two are missing


def test_slurm_without_its_command_is_an_error(tmp_path, slurm):
    slurm.clear()
    message = (
        "cluster.executor is slurm, but there is no sbatch here: run the command on a machine "
        "that can submit jobs, or choose cluster.executor=local."
    )
    with pytest.raises(ConfigError, match=f"^{message}$"):
        run_on_slurm(tmp_path)
    assert not executor_calls


def test_a_refused_job_is_an_error_and_a_failed_one_is_tried_again(tmp_path, slurm, monkeypatch):
    failure = subprocess.CalledProcessError(3, "sbatch", output="Submitted batch job 7")
    monkeypatch.setattr(SlurmExecutor, "error", failure)
    lost_pieces[:] = [(1,)]
    assert run_on_slurm(tmp_path) == SQUARES
    assert len(executor_calls) == 4  # twice
    refusal = subprocess.CalledProcessError(3, "sbatch", output="")
    monkeypatch.setattr(SlurmExecutor, "error", refusal)
    with pytest.raises(ConfigError, match=r"slurm, but sbatch failed with status 3; its message"):
        run_on_slurm(tmp_path, pieces=5)


@pytest.mark.parametrize(
    ("cluster", "is_refused"),
    [
        (SLURM, False),
        ({**SLURM, "partition": None}, True),
        ({**SLURM, "partition": None, "kind": "local"}, False),
        (RAY, False),
    ],
)
def test_slurm_needs_a_partition(cluster, is_refused):
    if not is_refused:
        assert TasksConfig(**cluster).partition == cluster.get("partition")
        return
    message = r"^cluster\.partition is None: give the partition for the tasks\.$"
    with pytest.raises(ConfigError, match=message):
        TasksConfig(**cluster)


def test_a_result_is_stored_after_its_files_and_is_used_while_they_are_whole(tmp_path, monkeypatch):
    synced, file, result_file = [], tmp_path / "data" / "a.txt", tmp_path / "result.json"
    file.parent.mkdir()
    monkeypatch.setattr("contamination.core.task_runner.sync_to_disk", synced.append)

    def make():
        assert not result_file.exists()
        file.write_text("abc")
        synced.clear()
        return {"rows": 3}

    def fail():
        raise AssertionError("it is computed again")

    assert run_unless_stored(result_file, [file], make) == {"rows": 3}
    assert {*synced} == {file, file.parent}
    record = json.loads(result_file.read_text())
    assert record["made"] == {"rows": 3}
    assert record["sha256"] == [hashlib.sha256(b"abc").hexdigest()]
    assert run_unless_stored(result_file, [file], fail) == {"rows": 3}
    file.write_text("abd")
    assert run_unless_stored(result_file, [file], make) == {"rows": 3}
    assert file.read_text() == "abc"
    file.write_text("abd")
    result_file.write_text("{")
    assert StoredTask(tmp_path).result(0) is None
    assert run_unless_stored(result_file, [file], make) == {"rows": 3}
    assert file.read_text() == "abc"
