"""Datatrove's own executors: the same bytes as the plain path, also where workers are killed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from contamination.core.task_runner import TasksConfig
from contamination.injection.run import run
from tests.injection.by_file import WEIGHTS, made_stage, write_files
from tests.launch import slurm_cluster

pytest.importorskip("datatrove", reason="pip install '.[datatrove]'")
WHY_NOT = slurm_cluster.missing()
SLURM = {"executor": "slurm", "partition": "main", "memory_gb": 1}
SLOW = "tests.injection.by_file.SlowFiles"
RUN = (
    "import pickle, sys; from contamination.injection.run import run; "
    "run(pickle.load(open(sys.argv[1], 'rb')))"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def plain(files, tmp_path_factory):
    """What the plain path makes of a mixture that is drawn from all files."""
    stage = made_stage(files, tmp_path_factory.mktemp("plain"), {"weights": WEIGHTS})
    return stage, run(stage)


def check(plain, runs, **cluster):
    stage, expected = plain
    made = run(replace(stage, runs=str(runs), cluster=TasksConfig(kind="datatrove", **cluster)))
    assert made.path.name == expected.path.name
    assert (made.files, made.counts) == (expected.files, expected.counts)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_local_executor_makes_the_same_bytes(plain, tmp_path, workers):
    check(plain, tmp_path, workers=workers)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_makes_the_same_bytes(plain, tmp_path):
    ray = pytest.importorskip("ray")
    try:
        check(plain, tmp_path, executor="ray", workers=2, memory_gb=1)
    finally:
        ray.shutdown()


@pytest.fixture(scope="module")
def clients():
    with (
        tempfile.TemporaryDirectory() as folder,
        slurm_cluster.cluster(Path(folder)) as environment,
    ):
        yield environment


@pytest.fixture
def slurm(clients, monkeypatch):
    """Set for each test: the environment is put back after each."""
    for name, value in clients.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slurm
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.usefixtures("slurm")
def test_slurm_makes_the_same_bytes(plain, tmp_path):
    check(plain, tmp_path, workers=2, **SLURM)


@pytest.fixture
def slow(files, tmp_path):
    """A stage whose tasks take a second or two, in a folder of its own."""
    return made_stage(files, tmp_path / "runs", {"_target_": SLOW, "weights": WEIGHTS})


def expected(slow, tmp_path):
    return run(replace(slow, runs=str(tmp_path / "plain")))


def started(stage, tmp_path, **cluster):
    """The stage by a process of its own."""
    file = tmp_path / "stage.pickle"
    stage = replace(stage, cluster=TasksConfig(kind="datatrove", **cluster))
    file.write_bytes(pickle.dumps(stage))
    return stage, subprocess.Popen([sys.executable, "-c", RUN, str(file)], start_new_session=True)


def until(found, driver):
    deadline = time.monotonic() + 600
    while not (result := found()):
        assert driver.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def kill_worker(tmp_path, driver):
    """Kill a process that writes a file's tokens."""

    def find():
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                paths = [Path(file.path) for file in process.open_files()]
                if any(path.suffix == ".ids" and tmp_path in path.parents for path in paths):
                    return process
        return None

    until(find, driver).kill()


def check_a_killed_worker(slow, tmp_path, **cluster):
    """What it was at is started again, while the driver waits."""
    whole = expected(slow, tmp_path)
    stage, driver = started(slow, tmp_path, **cluster)
    until(lambda: [*tmp_path.glob("runs/corpus/*/tokens/searched-files/*.ids")], driver)
    kill_worker(tmp_path, driver)
    assert driver.wait(900) == 0
    made = run(stage)
    assert (made.files, made.counts) == (whole.files, whole.counts)


@pytest.mark.slow
def test_a_killed_worker_is_started_again(slow, tmp_path):
    check_a_killed_worker(slow, tmp_path, workers=2)


@pytest.mark.slow
def test_after_its_driver_was_killed_the_same_command_goes_on(slow, tmp_path):
    whole = expected(slow, tmp_path)
    stage, driver = started(slow, tmp_path, workers=2)
    until(lambda: [*tmp_path.glob("runs/corpus/*/tokens/tasks/tokenise-0/*.json")], driver)
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    assert not psutil.wait_procs(children, timeout=60)[1]  # they ended with it
    done = {
        p: p.stat().st_mtime_ns
        for p in tmp_path.glob("runs/corpus/*/tokens/tasks/tokenise-0/*.json")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "contamination.injection.run.shutil.rmtree", lambda *a, **k: None
        )  # to look at them
        made = run(stage)
    assert (made.files, made.counts) == (whole.files, whole.counts)
    assert {path: path.stat().st_mtime_ns for path in done} == done


@pytest.mark.slurm
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.usefixtures("slurm")
def test_a_killed_slurm_task_is_submitted_again(slow, tmp_path):
    check_a_killed_worker(slow, tmp_path, workers=2, **SLURM)


@pytest.mark.slurm
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.usefixtures("slurm")
def test_after_its_driver_was_killed_the_same_command_takes_the_place_of_its_slurm_jobs(
    slow, tmp_path
):
    whole = expected(slow, tmp_path)
    stage, driver = started(slow, tmp_path, workers=1, **SLURM)
    until(lambda: [*tmp_path.glob("runs/corpus/*/tokens/searched-files/*.ids")], driver)
    driver.kill()
    driver.wait()
    queued = ["squeue", "--noheader", "--array"]
    assert len(subprocess.check_output(queued).splitlines()) > 1  # one at work, others wait
    made = run(stage)
    assert (made.files, made.counts) == (whole.files, whole.counts)
    assert not subprocess.check_output(queued)
