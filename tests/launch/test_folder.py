"""A launch's records, what status reads from them, and the snapshot."""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra.types import RunMode
from omegaconf import OmegaConf

from contamination.analysis.config import CellPaths
from contamination.core import process_records
from contamination.core.config import CONF, convert_config
from contamination.core.errors import ArtifactError, ConfigError, DataError, StoppedError
from contamination.core.files import hashed_json, verified_json
from contamination.core.progress import OUTER_TITLE
from contamination.core.task_runner import TasksConfig
from contamination.launch import run as running
from contamination.launch import snapshot
from contamination.launch.__main__ import main
from contamination.launch.cells import CellFolder, Launch, Outcome, overrides_digest
from contamination.launch.config import ClusterConfig, LaunchConfig, LaunchSettings, SecondStage
from contamination.launch.run_records import Cost, make_and_record_cost, read_costs
from contamination.launch.saved_config import is_saved, load_config, save_config
from contamination.launch.stage_runner import Stages
from contamination.launch.status import CellState, _shorten_overrides, read_cell_state, status


@pytest.fixture
def launch(tmp_path):
    made = Launch.of_command(str(tmp_path / "runs"), "study", ["seed=0,1,2,3"])
    made.register([[f"seed={seed}", "a=1"] for seed in range(4)])
    return made


def ago(cell, seconds):
    """Let the cell's last sign of life be that old."""
    then = time.time() - seconds
    os.utime(cell.folder / "running.json", (then, then))


def test_status_tells_what_became_of_each_cell(launch, tmp_path):
    done, failed, running, waiting = launch.cells()
    with done.record_run():
        done.write_outcome(Outcome("done", paths={}))
    with pytest.raises(DataError), failed.record_run():
        raise DataError("a text is empty")
    waiting.write_jobs({"inject": "7_3", "train": "8_3", "detect": "9_3"})
    with running.record_run("train"):
        process_records.record_progress(
            process_records.Progress("train tiny", 30, 120, "step", 600.0)
        )
        said = status(tmp_path / "runs").splitlines()
    assert said[0].endswith(": 1 done, 1 failed, 1 running, 1 waiting")
    assert said[2].split() == ["seed=0", "done"]
    assert said[3].split() == ["seed=1", "failed"]
    doing = re.escape("train tiny · step 30/120 (25%)")
    assert re.match(rf"seed=2  running  {doing}  10 min  {socket.gethostname()}", said[4])
    assert said[5].endswith("waiting  inject: job 7_3")
    assert said[6:] == ["seed=1: a text is empty"]
    waiting.write_outcome(Outcome("waiting", stage="inject"))
    assert read_cell_state(waiting) == CellState("waiting", "inject done; train: job 8_3")


def test_a_stopped_cell_waits_and_a_silent_one_has_failed(launch, monkeypatch):
    stopped, killed, *_ = launch.cells()
    with pytest.raises(StoppedError), stopped.record_run():
        raise StoppedError("SIGTERM was received at step 3 of 9.")
    assert read_cell_state(stopped) == CellState(
        "waiting", problem="stopped: SIGTERM was received at step 3 of 9."
    )
    with killed.record_run():
        ago(killed, 50)
        assert read_cell_state(killed).name == "running"
        ago(killed, 70)
        assert read_cell_state(killed).name == "failed"
        assert "no sign of life for 70 s" in read_cell_state(killed).problem
        ago(killed, 4)
        monkeypatch.setattr("psutil.pid_exists", lambda pid: pid != os.getpid())
        assert "no sign of life for 4 s" in read_cell_state(killed).problem


def test_the_slices_of_a_cell_are_counted_while_its_scores_wait(launch, tmp_path):
    cell, *_ = launch.cells()
    cell.write_outcome(Outcome("waiting", stage="train"))
    jobs = {f"detect {number}/4": f"8_{number}" for number in range(1, 5)}
    cell.write_jobs({"train": "7", **jobs, "detect": "9"})
    done, failed, running, _ = cell.slice_folders()
    for each in cell.slice_folders():
        each.folder.mkdir(parents=True)
    done.write_outcome(Outcome("done"))
    failed.write_failure(DataError("a text is empty"))
    of = "train done; of 4 slices 1 done, 1 failed, "
    assert read_cell_state(cell).doing == of + "2 waiting; detect: job 9"
    with running.record_run("detect"):
        doing = of + "1 running, 1 waiting; detect: job 9"
        assert read_cell_state(cell) == CellState("running", doing, problem="a text is empty")
    lines = [
        json.dumps(asdict(Cost("detect", f"clean {n}", 60.0, 1, "cuda", None))) for n in (1, 2)
    ]
    (done.folder / "costs.jsonl").write_text("\n".join(lines))
    assert [cost.run for cost in read_costs(cell.folder)] == ["clean 1", "clean 2"]
    assert len(launch.cells()) == 4


def test_a_slice_is_made_with_records_of_its_own(launch, monkeypatch):
    cell, *_ = launch.cells()
    cell.write_outcome(Outcome("waiting", stage="train"))
    cell.slice_folder("2/8").folder.mkdir(parents=True)
    made = []
    monkeypatch.setattr(running, "make_checked_cell_plan", lambda *_: "plan")
    monkeypatch.setattr(
        "contamination.launch.pipeline.run_cell",
        lambda plan, stages: made.append((stages.folder, stages.slice)),
    )
    settings = LaunchSettings(launch=LaunchConfig(cell=str(cell.folder), slice="2/8"))
    running._run_slice(OmegaConf.create(), settings, cell, "2/8")
    assert made == [(cell.folder / "slices" / "2-of-8", "2/8")]
    assert cell.slice_folder("2/8").read_outcome() == Outcome("done")
    assert cell.read_outcome() == Outcome("waiting", stage="train")
    with pytest.raises(ConfigError, match=r"^launch\.slice is '2/8': give cluster\.jobs\.detect"):
        LaunchConfig(slice="2/8")


@pytest.mark.parametrize("given", [None, "given"])
def test_a_cell_is_checked_before_it_runs_unless_its_plan_is_given(launch, monkeypatch, given):
    cell, ran = launch.cells()[0], []
    monkeypatch.setattr(running, "make_checked_cell_plan", lambda *_, **__: "checked")
    monkeypatch.setattr(
        "contamination.launch.pipeline.run_cell",
        lambda plan, stages, until: ran.append((plan, until)),
    )
    settings = LaunchSettings(launch=LaunchConfig(cell=str(cell.folder), stage="inject"))
    running._run_cell(OmegaConf.create(), settings, Stages(ClusterConfig(), cell.folder), given)
    assert ran == [(given or "checked", "inject")]
    assert cell.read_outcome() == Outcome("waiting", stage="inject")


def test_a_process_takes_away_its_own_sign_of_life_and_no_others(launch):
    """Two processes may be given the same cell."""
    cell = launch.cells()[0]
    with cell.record_run("train"):
        ours, _ = cell.read_running()
        assert (ours.host, ours.pid, ours.stage) == (socket.gethostname(), os.getpid(), "train")
    assert cell.read_running() is None
    theirs = replace(ours, host="elsewhere", pid=1)
    with cell.record_run("train"):
        place = cell.folder / "running.json"
        place.write_text(hashed_json(asdict(theirs)))
    assert cell.read_running()[0] == theirs


def test_a_report_is_on_the_cells_that_are_done(launch):
    done, failed, stopped, _ = launch.cells()
    paths = {"corpus": "c", "model": "m", "clean": "s", "contaminated": "t"}
    done.write_outcome(Outcome("done", paths=paths))
    failed.write_failure(DataError("a text is empty"))
    stopped.write_outcome(Outcome("stopped", error="SIGTERM was received."))
    assert launch.done_cell_paths() == [CellPaths(**paths)]
    costs = [Cost("train", "base", 1800, 8, "cuda", None), Cost("detect", "x", 60, 1, "cpu", None)]
    lines = "".join(json.dumps(asdict(cost)) + "\n" for cost in costs)
    (done.folder / "costs.jsonl").write_text(lines)
    assert launch.done_cell_paths() == [CellPaths(**paths, seconds=1860, gpu_hours=4)]


def test_another_run_of_a_done_cell_leaves_it_done(launch):
    cell = launch.cells()[0]
    with cell.record_run():
        cell.write_outcome(Outcome("done", paths={"corpus": "c"}))
    with cell.record_run():
        assert cell.read_outcome().state == "done"


def test_sigterm_stops_a_cell_where_nothing_else_answers_it(launch):
    cell = launch.cells()[0]
    with pytest.raises(StoppedError), cell.record_run():
        signal.raise_signal(signal.SIGTERM)
    stopped = (
        "stopped: SIGTERM was received. Finished work is kept: run the same command again to "
        "resume."
    )
    assert read_cell_state(cell) == CellState("waiting", problem=stopped)


def test_ctrl_c_concludes_nothing(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("contamination.launch.__main__.run_hydra_command", interrupted)
    monkeypatch.setattr(
        "contamination.launch.run.conclude_sweep", lambda: pytest.fail("it concluded")
    )
    monkeypatch.setattr(sys, "argv", ["launch", "-m", "seed=0,1"])
    with pytest.raises(KeyboardInterrupt):
        main()
    for code in (130, 143):
        monkeypatch.setattr(
            "contamination.launch.__main__.run_hydra_command", lambda *_, code=code: code
        )
        assert main() == code


def test_a_launch_is_the_same_wherever_and_however_far_it_runs():
    words = ["seed=0,1", "cluster=slurm", "+cluster.jobs.all.exclude=n7", "launch.stage=inject"]
    assert overrides_digest(words) == overrides_digest(["seed=0,1"]) != overrides_digest(["seed=0"])
    assert overrides_digest(["a=1", "b=2"]) == overrides_digest(["b=2", "a=1"])


def test_cells_of_an_earlier_sweep_are_left_out(launch):
    launch.register([["seed=0"], ["seed=9"]])
    assert [cell.read_overrides() for cell in launch.cells()] == [["seed=0"], ["seed=9"]]


def test_a_configuration_is_read_back_as_it_was(tmp_path):
    given = {"a": "1e-5", "b": 1e-5, "c": "${d} \\${e}", "n": None, "l": [1, "x: y"]}
    save_config(tmp_path, given, tmp_path)
    read = OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml"), resolve=True)
    assert {k: read[k] for k in given} == given
    assert is_saved(tmp_path, {**given, "launch": {"stage": "train"}})
    assert not is_saved(tmp_path, {**given, "b": 2e-5})
    assert not is_saved(tmp_path / "nowhere", given)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"jobs": {"all": {"time": "24:00:00"}}}, "cluster.jobs.all.time"),
        ({"jobs": {"all": {}}}, "cluster.jobs.all.time"),
        ({"jobs": {"all": {"time": 9}, "trian": {}}}, "cluster.jobs.trian"),
        ({"jobs": {"all": {"time": 9}, "detect": {"slices": 0}}}, "cluster.jobs.detect.slices"),
        ({"jobs": {"all": {"time": 9}}, "processes": 8}, "cluster.processes"),
    ],
)
def test_slurm_options_that_would_fail_later_are_refused(given, field):
    with pytest.raises(ConfigError, match=re.escape(field)):
        ClusterConfig(kind="slurm", **given)


def test_where_no_launch_is_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch", "status", f"runs={tmp_path}"])
    assert main() == 2
    assert "no launch is there" in capsys.readouterr().err


def test_a_snapshot_is_the_code_and_runs_from_any_folder(tmp_path):
    code = snapshot.take_snapshot(tmp_path)
    assert snapshot.take_snapshot(tmp_path) == code
    assert [p.name for p in tmp_path.iterdir()] == [code.name]
    assert (code / "conf" / "pipeline.yaml").is_file()
    assert (code / "changes.diff").exists()
    where = "import contamination.core.artifacts as a; print(a.__file__); print(a.code_revision())"
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=snapshot.HOME, capture_output=True, text=True,
        env={**os.environ, **snapshot.environment_variables(code)},
    )  # fmt: skip
    file, revision = done.stdout.splitlines()
    assert file == str(code / "core" / "artifacts.py")
    assert revision == (code / "REVISION").read_text().strip()


def test_a_snapshot_for_which_there_is_no_space_leaves_nothing(tmp_path, monkeypatch):
    real, copied = shutil.copyfile, []

    def copyfile(*names):
        copied.append(real(*names))
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    with pytest.raises(OSError, match="No space left"):
        snapshot.take_snapshot(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_cell_that_ends_on_a_full_disk_keeps_its_error(launch, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("contamination.launch.cells.CellFolder.write_outcome", full)
    with pytest.raises(DataError, match="the first"), launch.cells()[0].record_run():
        raise DataError("the first")


def test_an_edit_is_another_snapshot(tmp_path, monkeypatch):
    first = snapshot.take_snapshot(tmp_path / "runs")
    monkeypatch.setattr(snapshot, "HOME", first)
    (first / "conf" / "common.yaml").write_text("name: other\n")
    second = snapshot.take_snapshot(tmp_path / "runs")
    assert second != first
    assert (second / "conf" / "common.yaml").read_text() == "name: other\n"


def test_status_says_what_each_stage_cost(launch, monkeypatch, tmp_path):
    one, other, *_ = launch.cells()
    for cell, hours in ((one, 1), (other, 3)):
        lines = [Cost("train", "base", 3600 * hours, 8, "cuda", None)]
        lines.append(Cost("inject", "study", 60 * hours, 1, "cpu", "c"))
        text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        (cell.folder / "costs.jsonl").write_text(text + '{"torn')
    said = status(tmp_path / "runs", cost=True).splitlines()
    assert said[1].split() == ["cell", "state", "inject", "train", "GPU", "hours"]
    assert said[2].split() == ["seed=0", "waiting", "60", "s", "60", "min", "8.00"]
    assert said[-1].split() == ["all", "4", "min", "4", "h", "0", "min", "32.00"]


@pytest.mark.parametrize("work", ["made", "failed", "reused"])
def test_a_run_that_worked_is_recorded_with_its_devices(tmp_path, monkeypatch, work):
    made = SimpleNamespace(path=tmp_path / "artefact")
    made.path.mkdir()
    stages, clock = Stages(ClusterConfig(processes=4), tmp_path), iter([100.0, 107.0])
    monkeypatch.setattr(
        "contamination.launch.run_records.time", SimpleNamespace(time=lambda: next(clock))
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (made.path / "manifest.json").touch()
    written = 50 if work == "reused" else 105
    os.utime(made.path / "manifest.json", (written, written))

    def make():
        if work == "failed":
            raise DataError("not finite")
        return made

    with suppress(DataError):
        stages.make_artifact("train", "base", make)
    cost = Cost("train", "base", 7.0, 4, "cuda", str(made.path) if work == "made" else None)
    assert read_costs(tmp_path) == ([] if work == "reused" else [cost])
    assert not [*tmp_path.glob("begun-*")]


@pytest.mark.parametrize(
    ("stage", "package"), [("inject", "injection"), ("train", "training"), ("detect", "detection")]
)
def test_a_run_is_recorded_by_its_stage_and_name(tmp_path, monkeypatch, stage, package):
    artifact, config = SimpleNamespace(path=tmp_path), SimpleNamespace(processes=1)
    monkeypatch.setattr(f"contamination.{package}.run.run", lambda *_: artifact)
    (tmp_path / "manifest.json").touch()
    os.utime(tmp_path / "manifest.json", (2e9, 2e9))
    stages = Stages(ClusterConfig(), tmp_path)
    assert getattr(stages, stage)("study", SimpleNamespace(detection=config)) is artifact
    assert [(cost.stage, cost.run) for cost in read_costs(tmp_path)] == [(stage, "study")]


def test_a_run_counts_as_killed_from_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.pid_exists", lambda pid: pid != os.getpid())
    costs = []
    make_and_record_cost(tmp_path, "inject", "study", 2, lambda: costs.extend(read_costs(tmp_path)))
    (killed,) = costs
    assert replace(killed, seconds=0.0) == Cost("inject", "study", 0.0, 2, "cpu", None, killed=True)
    assert [cost.killed for cost in read_costs(tmp_path)] == [False]


KILLED = """
import os, pathlib, signal, sys, types
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=bool))
from contamination.launch.run_records import make_and_record_cost
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
make_and_record_cost(pathlib.Path(sys.argv[1]), "train", "study", 4, die)
"""


def test_a_killed_run_is_counted_up_to_its_last_sign_of_life_and_named(launch, tmp_path):
    cell = launch.cells()[1]
    cost = Cost("train", "study", 3600.0, 1, "cpu", "m")
    (cell.folder / "costs.jsonl").write_text(json.dumps(asdict(cost)) + "\n")
    subprocess.run([sys.executable, "-c", KILLED, str(cell.folder)], check=False)
    (begun,) = cell.folder.glob("begun-*.json")
    began = verified_json(begun.read_text())["began"]
    os.utime(begun, (began, began + 720))
    *_, killed = read_costs(cell.folder)
    assert killed == Cost("train", "study", 720.0, 4, "cpu", None, killed=True)
    said = status(tmp_path / "runs", cost=True).splitlines()
    assert said[3].split() == ["seed=1", "waiting", "≥", "72", "min"]
    assert said[-1] == "seed=1: train study was killed: at least 12 min, no record"
    assert said[-2].split() == ["all", "≥", "72", "min"]


@pytest.mark.parametrize(("host", "quiet", "is_killed"), [
    ("elsewhere", 50, False), ("elsewhere", 70, True), (socket.gethostname(), 50, False),
])  # fmt: skip
def test_a_run_that_still_shows_signs_of_life_is_not_counted(tmp_path, host, quiet, is_killed):
    now, file = time.time(), tmp_path / "begun-one.json"
    cost = asdict(Cost("train", "study", 0.0, 4, "cuda", None))
    file.write_text(
        hashed_json({"host": host, "pid": os.getpid(), "began": now - 90, "cost": cost})
    )
    os.utime(file, (now, now - quiet))
    assert [c.killed for c in read_costs(tmp_path)] == [True] * is_killed
    file.write_text("{torn")
    assert read_costs(tmp_path) == []


def test_status_shortens_the_fields_and_gives_cost_the_room(tmp_path, monkeypatch):
    launch = Launch.of_command(str(tmp_path), "study", [])
    cells = [[f"training.learning_rate={n}e-3", f"method.min_k.k=0.{n}"] for n in (1, 2)]
    launch.register(cells)
    cell = launch.cell(cells[1])
    (cell.folder / "costs.jsonl").write_text(
        json.dumps(asdict(Cost("train", "a", 9, 1, "cpu", None)))
    )
    monkeypatch.setattr("contamination.core.terminal.terminal_width", lambda: 50)
    with cell.record_run():
        process_records.record_progress(process_records.Progress("train a", 1, 2, "step", 3.0))
        said = status(tmp_path, cost=True).splitlines()
    assert said[2].split() == ["learning_rate=1e-3", "k=0.1", "waiting"]
    assert said[3].split() == ["learning_rate=2e-3", "k=0.2", "running", "9", "s"]
    assert said[-1].startswith("(not in 50 columns: doing, left, where;")
    assert (
        _shorten_overrides("method.min_k.k=0.1 method.max_k.k=0.2")
        == "method.min_k.k=0.1 method.max_k.k=0.2"
    )


def test_a_cells_place_is_the_sweeps_own_order(launch):
    launch.register([["seed=9"], ["seed=1"]])
    assert launch.describe_position(launch.cell(["seed=1"])) == "cell 2 of 2"
    assert launch.describe_position(launch.cell(["seed=3"])) == ""
    assert launch.cell_name(launch.cell(["seed=1"])) == "seed=1"
    assert launch.cell_name(launch.cell(["seed=3"])) == ""


def test_status_takes_the_folder_and_the_cost_in_any_order(launch, monkeypatch, capsys, tmp_path):
    for words in (["--cost", f"runs={tmp_path / 'runs'}"], [str(launch.folder), "--cost"]):
        monkeypatch.setattr(sys, "argv", ["launch", "status", *words])
        assert main() == 0
        assert "4 waiting" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["launch", "status", "one", "two"])
    assert main() == 2


BOMB = "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"a: &a [x, x]\n{BOMB}", "the alias"),
        ("a: !!python/object/apply:os.mkdir [canary]\n", "the tag"),
        ("a: !mine 1\n", "the tag !mine"),
        ("name: ${oc.env:HOME}\n", "not a mapping of plain values"),
        ("name: [\n", "while parsing"),
        ("[1, 2]\n", "not a mapping of plain values"),
    ],
)
def test_a_received_launchs_config_is_data(launch, tmp_path, monkeypatch, capsys, text, words):
    monkeypatch.chdir(tmp_path)
    seal = f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}"
    (launch.folder / "config.yaml").write_text(f"{seal}\n{text}")
    began = time.monotonic()
    monkeypatch.setattr(sys, "argv", ["launch", "report", str(launch.folder)])
    assert main() == 2
    assert time.monotonic() - began < 10
    said = capsys.readouterr().err
    assert f"error: {launch.folder}/config.yaml is damaged" in said
    assert words in said
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outcome", {"state": "done", "paths": {"colour": "red"}}),
        ("outcome", {"state": "done", "paths": {"corpus": 3}}),
        ("outcome", {"paths": 1}),
        ("outcome", {"state": "waiting", "stage": "nowhere"}),
        ("jobs", {"detect 1/2 3": "7", "": "8"}),
        ("running", {"host": "a"}),
        ("overrides", {"overrides": [1]}),
    ],
)
def test_a_record_of_another_form_is_no_traceback(launch, monkeypatch, capsys, name, value):
    save_config(launch.folder, {"name": "x"}, launch.folder)
    (launch.cells()[0].folder / f"{name}.json").write_text(hashed_json(value))
    for tool in ("status", "report"):
        monkeypatch.setattr(sys, "argv", ["launch", tool, str(launch.folder)])
        assert main() in (0, 1, 2)
        assert "Traceback" not in capsys.readouterr().err


def test_the_names_of_cells_lead_nowhere_else(launch):
    (launch.folder / "cells.json").write_text(hashed_json({"cells": ["../../x"]}))
    with pytest.raises(ArtifactError, match=r"cells\.json is damaged"):
        launch.cells_in_sweep_order()


SLURM = {"kind": "slurm", "jobs": {"all": {"time": 9}}}


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (
            ClusterConfig, {"nodes": 2},
            "cluster.nodes is 2: cluster.kind=local does not read it. Choose cluster=torchrun; "
            "with SLURM give cluster.jobs.train.nodes.",
        ),
        (
            ClusterConfig, {"node_rank": 1},
            "cluster.node_rank is 1: give 0 to 0: there are cluster.nodes=1.",
        ),
        (
            ClusterConfig, {"kind": "torchrun", "nodes": 3, "node_rank": -1},
            "cluster.node_rank is -1: give 0 to 2: there are cluster.nodes=3.",
        ),
        (
            ClusterConfig, {"hostfile": "hosts"},
            "cluster.hostfile is 'hosts': give one with cluster=deepspeed, and only there.",
        ),
        (
            ClusterConfig, {"kind": "deepspeed"},
            "cluster.hostfile is None: give one with cluster=deepspeed, and only there.",
        ),
        (
            ClusterConfig, {"kind": "deepspeed", "hostfile": "hosts", "processes": 2},
            "cluster.processes is 2: cluster.kind=deepspeed does not read it. Give "
            "cluster.jobs.train.ntasks_per_node, or slots in the hostfile.",
        ),
        (
            ClusterConfig, {"kind": "slurm"},
            "cluster.jobs.all.time is None: give the minutes that a job may take.",
        ),
        (
            ClusterConfig, {"jobs": {"train": {"time": "24:00:00"}}},
            "cluster.jobs.train.time is '24:00:00': give whole minutes.",
        ),
        (
            ClusterConfig, {"jobs": {"trian": {"time": 1}}},
            "cluster.jobs.trian is {'time': 1}: give options of all, inject, train, detect, "
            "analyse.",
        ),
        (
            ClusterConfig, {"jobs": {"detect": {"slices": 0}}},
            "cluster.jobs.detect.slices is 0: give 1 or more.",
        ),
        (
            ClusterConfig, {"jobs": {"detect": {"slices": "2"}}},
            "cluster.jobs.detect.slices is '2': give 1 or more.",
        ),
        (ClusterConfig, {"port": 65536}, "cluster.port is 65536: give 1 to 65535."),
        (ClusterConfig, {"port": 0}, "cluster.port is 0: give 1 to 65535."),
        (
            LaunchConfig, {"slice": "2/8"},
            "launch.slice is '2/8': give cluster.jobs.detect.slices with cluster=slurm: its jobs "
            "get one each.",
        ),
        (
            SecondStage, {"members_in": "pretraining"},
            "second_stage.instructions is {}: there is nothing to fine-tune on: choose some, such "
            "as nq_open.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_launch_is_named_with_its_remedy(config, fields, message):
    with pytest.raises(ConfigError) as raised:
        config(**fields)
    assert str(raised.value) == message


def test_fields_of_a_launch_at_the_ends_of_their_ranges_are_accepted():
    for kind in ("local", "torchrun", "datatrove"):
        assert ClusterConfig(kind=kind, processes=2).processes == 2
    assert ClusterConfig(kind="torchrun", nodes=2, node_rank=1, port=65535).port == 65535
    assert ClusterConfig(port=1, jobs={"detect": {"slices": 1}}).slices == 1
    assert LaunchConfig(cell="cells/one", slice="2/8").slice == "2/8"
    for members_in in (None, "finetuning", "both"):
        assert SecondStage(members_in).clean_sets == {}
    assert LaunchSettings() == LaunchSettings("runs", "run", LaunchConfig(), ClusterConfig())


def test_a_stages_job_options_are_its_own_before_those_of_all():
    jobs = {
        "all": {"time": 5, "partition": "a", "mem": None, "slices": 7},
        "detect": {"slices": 4, "time": None, "nodes": 2},
        "train": {"time": 60, "slices": 3, "partition": None},
    }
    cluster = ClusterConfig(kind="slurm", jobs=jobs)
    assert cluster.job_options("detect") == {"time": 5, "partition": "a", "nodes": 2}
    assert cluster.job_options("train") == {"time": 60, "partition": "a", "slices": 3}
    assert cluster.job_options("inject") == {"time": 5, "partition": "a", "slices": 7}
    assert cluster.slices == 4
    assert ClusterConfig(jobs=jobs).slices == 1
    assert ClusterConfig(**SLURM).slices == 1


def test_only_datatrove_makes_corpora_in_tasks():
    assert ClusterConfig(workers=3).tasks == TasksConfig()
    tasks = ClusterConfig(kind="datatrove", workers=3, retries=4).tasks
    assert (tasks.workers, tasks.retries) == (3, 4)
    assert type(tasks) is TasksConfig


def test_a_launchs_folder_is_named_by_its_overrides(tmp_path):
    """The first 12 digits of the SHA-256 of the sorted overrides, one a line."""
    words = ["seed=0,1", "+a.b=2", "~launch.cell", "++cluster.kind=slurm", "verify=all", "c=3"]
    digest = hashlib.sha256(b"+a.b=2\nc=3\nseed=0,1").hexdigest()[:12]
    assert overrides_digest(words) == digest
    launch = Launch.of_command(str(tmp_path / "x" / ".." / "runs"), "My study!", words)
    name = launch.folder.name
    assert launch.folder.parent == tmp_path / "runs" / "launches"
    assert name.endswith(f"-{digest}")
    assert "!" not in name
    assert "study" in name
    cell = launch.cell(["c=3", "+a.b=2", "seed=0,1"])
    assert cell.folder == launch.folder / "cells" / digest
    assert not launch.is_registered
    launch.register([words, ["seed=9"]])
    assert launch.is_registered
    registered = verified_json((launch.folder / "cells.json").read_text())
    assert registered == {"cells": [digest, overrides_digest(["seed=9"])]}
    assert [each.folder for each in launch.cells_in_sweep_order()] == [
        cell.folder, launch.cell(["seed=9"]).folder
    ]  # fmt: skip
    assert cell.read_overrides() == words


def test_cells_are_known_without_the_list_of_a_sweep(launch):
    (launch.folder / "cells.json").unlink()
    assert [cell.read_overrides()[0] for cell in launch.cells()] == [
        f"seed={seed}" for seed in range(4)
    ]
    assert launch.cells_in_sweep_order() == []
    assert launch.describe_position(launch.cells()[0]) == ""


def test_a_launch_reads_what_its_command_said(tmp_path, launch):
    save_config(launch.folder, {"name": "x", "runs": "elsewhere", "seed": 3}, tmp_path)
    config = launch.read_config()
    assert (config.name, config.runs, config.seed) == ("x", str(tmp_path / "runs"), 3)


def test_a_single_cell_has_no_name_and_no_number(tmp_path):
    launch = Launch.of_command(str(tmp_path), "study", ["seed=0"])
    launch.register([["seed=0", "a=1"]])
    (cell,) = launch.cells()
    assert launch.named_cells() == [("the only cell", cell)]
    assert (launch.cell_name(cell), launch.describe_position(cell)) == ("the only cell", "")
    launch.register([["seed=0", "a=1", "b=2"], ["seed=1", "a=1"]])
    assert [name for name, _ in launch.named_cells()] == ["seed=0 b=2", "seed=1"]
    places = [launch.describe_position(cell) for cell in launch.cells_in_sweep_order()]
    assert places == ["cell 1 of 2", "cell 2 of 2"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("a\nb"), Outcome("failed", error="ValueError: a b")),
        (DataError("a text is empty"), Outcome("failed", error="a text is empty")),
        (StoppedError("it was asked to"), Outcome("stopped", error="it was asked to")),
    ],
)
def test_why_a_cell_ended_is_recorded(launch, error, outcome):
    cell = launch.cells()[0]
    with pytest.raises(type(error)), cell.record_run("train"):
        raise error
    assert cell.read_outcome() == outcome
    assert read_cell_state(cell).name == ("waiting" if outcome.state == "stopped" else "failed")
    cell.write_waiting()
    assert cell.read_outcome() == Outcome("waiting")


def test_a_cell_that_waits_has_no_sign_of_life(launch):
    cell = launch.cells()[0]
    with cell.record_run():
        cell.write_waiting()
        assert not (cell.folder / "running.json").exists()


def test_a_running_cell_names_its_host_and_its_job(launch, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7_3")
    cell = launch.cells()[0]
    began = time.time()
    with cell.record_run("train"):
        running, silent = cell.read_running()
        assert (running.job, running.stage) == ("7_3", "train")
        assert began <= running.since <= time.time()
        assert -1 < silent < 60
        where = f"{socket.gethostname()}, job 7_3"
        assert read_cell_state(cell) == CellState("running", "", "", where)
        process_records.record_progress(process_records.Progress("train a", 7, 0, "step", None))
        assert read_cell_state(cell) == CellState("running", "train a · step 7", "", where)
        ago(cell, 120)
        assert read_cell_state(cell) == CellState(
            "failed", "train a · step 7",
            problem=f"no sign of life for 2 min on {where}: its process ended without a message. "
            "Run the same command again to resume.",
        )  # fmt: skip


def test_a_waiting_cell_names_its_next_stage_and_job(launch):
    cell = launch.cells()[0]
    jobs = {"inject": "1", "train": "2", "detect": "3"}
    assert read_cell_state(cell) == CellState("waiting")
    cell.write_jobs(jobs)
    for done, doing in (
        (None, "inject: job 1"),
        ("inject", "inject done; train: job 2"),
        ("train", "train done; detect: job 3"),
    ):
        cell.write_outcome(Outcome("waiting", stage=done))
        assert read_cell_state(cell) == CellState("waiting", doing)
    cell.write_jobs({})
    assert read_cell_state(cell) == CellState("waiting", "train done")
    cell.write_outcome(Outcome("done", paths={"corpus": "c"}))
    assert read_cell_state(cell) == CellState("done")


def test_problems_of_slices_are_told_together(launch):
    cell = launch.cells()[0]
    cell.write_outcome(Outcome("waiting", stage="train"))
    cell.write_jobs({"detect 1/2": "8_1", "detect 2/2": "8_2", "detect": "9"})
    for number, slice_folder in enumerate(cell.slice_folders(), 1):
        slice_folder.folder.mkdir(parents=True)
        slice_folder.write_failure(DataError(f"text {number} is empty"))
    assert [path.folder.name for path in cell.slice_folders()] == ["1-of-2", "2-of-2"]
    assert read_cell_state(cell) == CellState(
        "waiting", "train done; of 2 slices 2 failed; detect: job 9",
        problem="text 1 is empty; text 2 is empty",
    )  # fmt: skip


def test_status_is_of_all_launches_the_newest_last(tmp_path):
    for name, when in (("new", 2e9), ("old", 1e9)):
        launch = Launch.of_command(str(tmp_path), name, [])
        launch.register([[]])
        os.utime(launch.folder, (when, when))
    old, new = (Launch.of_command(str(tmp_path), name, []).folder for name in ("old", "new"))
    table = "cell           state\nthe only cell  waiting"
    assert status(tmp_path) == f"{old}: 1 waiting\n{table}\n\n{new}: 1 waiting\n{table}"
    assert status(new) == f"{new}: 1 waiting\n{table}"
    with pytest.raises(ConfigError) as raised:
        status(tmp_path / "nowhere")
    assert str(raised.value) == (
        f"runs is '{tmp_path}/nowhere': no launch is there. Give the folder of a launch's "
        "artefacts (runs=DIR), or one of its runs/launches/."
    )


def test_status_with_the_cost_is_written_out(tmp_path):
    launch = Launch.of_command(str(tmp_path), "study", [])
    launch.register([["a.seed=0"], ["a.seed=1"]])
    done, failed = launch.cells()
    done.write_outcome(Outcome("done", paths={}))
    failed.write_failure(DataError("a text is empty"))
    costs = [
        Cost("inject", "study", 30, 2, "cpu", "c"), Cost("train", "base", 3600, 2, "cuda", "m"),
        Cost("train", "study", 1800, 2, "cuda", "m"), Cost("detect", "clean", 60, 1, "cpu", "s"),
    ]  # fmt: skip
    for cell, costs_of_cell in ((done, costs), (failed, costs[:2])):
        lines = "".join(json.dumps(asdict(cost)) + "\n" for cost in costs_of_cell)
        (cell.folder / "costs.jsonl").write_text(lines)
    rows = [re.split("  +", line) for line in status(tmp_path, cost=True).splitlines()]
    assert rows == [
        [f"{launch.folder}: 1 done, 1 failed"],
        ["cell", "state", "inject", "train", "detect", "GPU hours"],
        ["seed=0", "done", "30 s", "1 h 30 min", "60 s", "3.00"],
        ["seed=1", "failed", "30 s", "60 min", "2.00"],
        ["all", "60 s", "2 h 30 min", "60 s", "5.00"],
        ["a.seed=1: a text is empty"],
    ]


def test_the_snapshot_has_the_packages_and_their_changes(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "launch"
    for name in ("core/a.py", "launch/b/c.py", "conf/d.yaml", "data/__pycache__/e.pyc", "docs/f"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    (home / "core" / "link").symlink_to("nowhere")
    monkeypatch.setattr(snapshot, "HOME", home)
    monkeypatch.setattr(snapshot, "code_revision", lambda: "c0ffee+")
    monkeypatch.setattr(snapshot, "_read_changes", lambda: "- a\n+ b\n")
    code = snapshot.take_snapshot(folder)
    content = hashlib.sha256()
    for name in ("conf/d.yaml", "core/a.py", "launch/b/c.py"):
        content.update(f"{name}\n{name}".encode())
    assert code == folder / f"code-{content.hexdigest()[:12]}"
    files = {str(path.relative_to(code)): path for path in code.rglob("*") if path.is_file()}
    assert {*files} == {
        "REVISION", "changes.diff", "conf/d.yaml", "contamination/__init__.py", "core/a.py",
        "launch/b/c.py",
    }  # fmt: skip
    assert files["REVISION"].read_text() == "c0ffee+\n"
    assert files["changes.diff"].read_text() == "- a\n+ b\n"
    assert files["core/a.py"].read_text() == "core/a.py"


def test_the_changes_of_a_snapshot_are_gits(tmp_path, monkeypatch):
    calls = []

    def git(call, **options):
        calls.append((call, options["cwd"]))
        return SimpleNamespace(stdout="- a\n", returncode=len(calls) - 1)

    monkeypatch.setattr(snapshot, "HOME", tmp_path)
    monkeypatch.setattr(snapshot.subprocess, "run", git)
    assert [snapshot._read_changes(), snapshot._read_changes()] == ["- a\n", ""]
    assert calls == [(["git", "diff", "HEAD"], tmp_path)] * 2
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    assert snapshot._read_changes() == ""
    monkeypatch.undo()
    monkeypatch.setattr(snapshot, "HOME", tmp_path)  # no checkout
    assert snapshot._read_changes() == ""


def test_python_finds_the_snapshots_code_before_other_folders(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    variables = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    assert snapshot.environment_variables(tmp_path) == variables
    monkeypatch.setenv("PYTHONPATH", "/a:/b")
    variables["PYTHONPATH"] += ":/a:/b"
    assert snapshot.environment_variables(tmp_path) == variables


def test_a_half_written_snapshot_is_removed_and_one_that_another_process_made_is_used(
    tmp_path, monkeypatch
):
    home = tmp_path / "home"
    (home / "core").mkdir(parents=True)
    (home / "core" / "a.py").write_text("a")
    monkeypatch.setattr(snapshot, "HOME", home)
    copy_code = snapshot._copy_code

    def copy_too_late(files, folder):
        copy_code(files, folder)
        other_copy = tmp_path / "launch" / f"code-{snapshot._files_and_digest(home)[1][:12]}"
        copy_code(files, other_copy)

    monkeypatch.setattr(snapshot, "_copy_code", copy_too_late)
    code = snapshot.take_snapshot(tmp_path / "launch")
    assert [*(tmp_path / "launch").iterdir()] == [code]


@pytest.mark.parametrize("part", ["core", "data", "detection", "conf"])
def test_a_snapshot_is_named_by_the_bytes_of_every_package(tmp_path, part):
    file = tmp_path / part / "deep" / "a.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("a")
    files, digest = snapshot._files_and_digest(tmp_path)
    assert files == [file]
    file.write_text("b")
    assert snapshot._files_and_digest(tmp_path)[1] != digest


def test_cells_without_a_result_are_logged_once_for_each_reason(launch, caplog):
    done, failed, stopped, _ = launch.cells()
    done.write_outcome(Outcome("done", paths={}))
    failed.write_failure(DataError("a text is empty"))
    stopped.write_outcome(Outcome("stopped", error="a text is empty"))
    assert running._log_cells_in_states(launch) == 1
    assert caplog.messages == [
        "failed: seed=1; seed=2: a text is empty",
        "failed: seed=3: its process ended before it did",
    ]
    caplog.clear()
    assert running._log_cells_in_states(launch, ("waiting",)) == 0
    assert caplog.messages == []


def test_the_report_on_a_launch_says_how_many_cells_are_done(launch, monkeypatch, caplog):
    reports = []
    monkeypatch.setattr(
        running,
        "_report_on_done_cells",
        lambda config, launch: reports.append((config, launch)),
    )
    save_config(launch.folder, {"name": "x"}, launch.folder)
    for cell in launch.cells():
        cell.write_outcome(Outcome("done", paths={"corpus": "c"}))
    with caplog.at_level("INFO"):
        assert running.report_on_launch(launch) == 0
        launch.cells()[0].write_outcome(Outcome("waiting", stage="train"))
        assert running.report_on_launch(launch) == 1
    assert caplog.messages == [
        "sweep: 4 of 4 cells done.",
        "failed: seed=0: its process ended before it did",
        "sweep: 3 of 4 cells done.",
    ]
    assert [(config.name, reported) for config, reported in reports] == [("x", launch)] * 2


@pytest.mark.parametrize(
    ("settings", "step", "status"),
    [
        ({}, "report", 5),
        ({"launch": {"dry_run": True}}, None, 0),
        ({"launch": {"stage": "train"}}, "log", 6),
        ({"cluster": {"kind": "slurm", "jobs": {"all": {"time": 5}}}}, "submit", 7),
    ],
)
def test_a_sweep_is_concluded_by_its_kind(launch, monkeypatch, settings, step, status):
    calls, code = [], launch.folder / "code-1"
    for name, title, answer in (
        ("report_on_launch", "report", 5),
        ("_log_cells_in_states", "log", 6),
        ("_submit_or_report", "submit", 7),
    ):
        monkeypatch.setattr(
            running, name, lambda *args, step=title, a=answer: calls.append((step, *args)) or a
        )
    config = OmegaConf.create({"launch": {"dry_run": False}, "runs": "x", "name": "y"})
    monkeypatch.setattr(running.SweepCallback, "config", OmegaConf.merge(config, settings))
    monkeypatch.setattr(running.SweepCallback, "code", code)
    monkeypatch.setenv(running.CODE, "old")
    assert running.conclude_sweep() == status
    assert running.CODE not in os.environ
    arguments = (code, *(call for call in calls[0][3:])) if step == "submit" else ()
    assert calls == ([(step, launch, *arguments)] if step else [])
    calls.clear()
    monkeypatch.setattr(running.SweepCallback, "code", None)
    assert running.conclude_sweep() == (0 if step is None else 1)
    monkeypatch.setattr(running.SweepCallback, "config", None)
    assert running.conclude_sweep() == 0
    assert calls == []


def test_jobs_are_submitted_for_the_cells_that_have_none_queued(launch, monkeypatch, caplog):
    submissions, cells = [], launch.cells()
    for cell, job in zip(cells, ("1", "2", "3", None), strict=True):
        cell.write_outcome(Outcome("waiting"))
        cell.write_jobs({"inject": job} if job else {})
    cells[2].write_outcome(Outcome("done", paths={}))
    queued = {"1", "9"}
    monkeypatch.setattr(running.slurm, "queued_job_ids", lambda cells: queued)
    monkeypatch.setattr(running.slurm, "submit_cells", lambda *args: submissions.append(args))
    monkeypatch.setattr(running, "report_on_launch", lambda launch: 5)
    settings = LaunchSettings(cluster=ClusterConfig(**SLURM), launch=LaunchConfig(stage="train"))
    with caplog.at_level("INFO"):
        assert running._submit_or_report(launch, launch.folder, settings) == 0
    assert submissions == [(launch, launch.folder, settings.cluster, [cells[1], cells[3]], "train")]
    assert "jobs of this launch that are still queued go on: 1 9" in caplog.messages
    queued.clear()
    for cell in cells:
        cell.write_outcome(Outcome("done", paths={}))
    assert running._submit_or_report(launch, launch.folder, settings) == 5
    assert len(submissions) == 1


def test_an_error_that_several_cells_have_is_logged_in_full_once(launch, monkeypatch, caplog):
    runs, cells = [], launch.cells()

    def fail(config, settings, stages):
        runs.append((config, settings, stages))
        raise [DataError("a text is empty"), DataError("a text is empty"), KeyError("x")][
            len(runs) - 1
        ]

    monkeypatch.setattr(running, "_run_or_prepare_cell", fail)
    monkeypatch.setattr(running, "_runs_in_turn", lambda settings: True)
    monkeypatch.setattr(running.SweepCallback, "errors_of_cells", set())
    code, settings = launch.folder / "code-1", LaunchSettings()
    monkeypatch.setenv(running.CODE, str(code))
    with caplog.at_level("INFO"):
        for cell in cells[:3]:
            running._run_sweep_cell("config", settings, cell.read_overrides())
    assert runs == [
        ("config", settings, Stages(settings.cluster, cell.folder, code, in_turn=True))
        for cell in cells[:3]
    ]
    *messages, trace = caplog.messages
    assert messages == [
        "cell 1 of 4: seed=0", "this cell failed: a text is empty",
        "cell 2 of 4: seed=1", "this cell failed: as an earlier one did",
        "cell 3 of 4: seed=2",
    ]  # fmt: skip
    assert trace.startswith("Traceback")
    assert "KeyError: 'x'" in trace
    monkeypatch.setattr(running, "_run_or_prepare_cell", lambda *_: None)
    with caplog.at_level("INFO"):
        running._run_sweep_cell("config", settings, ["seed=7", "a=2"])
    assert caplog.messages[-1] == "cell: seed=7 a=2"


def test_the_folders_of_a_done_cell_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {"corpus": "a", "model": "/b/../c", "exports": ["d", "/e"], "seconds": None}
    assert running._absolute_paths(paths) == {
        "corpus": f"{tmp_path}/a", "model": "/c", "exports": [f"{tmp_path}/d", "/e"]
    }  # fmt: skip


def test_a_cell_is_done_while_its_folders_are_complete(launch, tmp_path):
    cell, config = launch.cells()[0], {"seed": 0}
    save_config(cell.folder, config, tmp_path)
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
        (folder / "manifest.json").touch()
    paths = {"corpus": str(folders[0]), "model": str(folders[1]), "exports": [str(folders[2])]}
    assert not running._is_cell_done(cell, config)
    cell.write_outcome(Outcome("done", paths=paths, content={"x": "1"}))
    assert not running._is_cell_done(cell, config)
    assert running._is_cell_done(cell, config, {"x": "1"})
    assert not running._is_cell_done(cell, {"seed": 1}, {"x": "1"})
    for folder in folders:
        (folder / "manifest.json").unlink()
        assert not running._is_cell_done(cell, config, {"x": "1"})
        (folder / "manifest.json").touch()
    cell.write_outcome(Outcome("waiting"))
    assert not running._is_cell_done(cell, config)


def test_a_done_cell_whose_record_has_another_form_is_damaged(launch):
    cell = launch.cells()[0]
    cell.write_outcome(Outcome("done", paths={"colour": "red"}))
    with pytest.raises(ArtifactError) as raised:
        launch.done_cell_paths()
    message = str(raised.value)
    assert message.startswith(f"{cell.folder / 'outcome.json'} is damaged (")
    assert message.endswith("): give the launch's command again, which writes it.")


def test_a_gpu_is_asked_for_only_where_a_driver_is(monkeypatch):
    from contamination.launch import run_records

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert run_records._has_gpu()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(run_records, "DRIVERS", ("no-such-driver*",))
    assert not run_records._has_gpu()
    monkeypatch.setattr(run_records, "DRIVERS", ("no-such-driver*", "null"))
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    )
    assert not run_records._has_gpu()


def test_the_costs_of_a_cell_are_in_their_order(tmp_path):
    training = Cost("train", "a", 1.5, 1, "cpu", "m")
    injection = Cost("inject", "b", 2.0, 1, "cpu", None)
    training_on_gpus = Cost("train", "c", 1800.0, 4, "cuda", None)
    for folder, costs in (
        (tmp_path / "slices" / "2-of-2", [injection]),
        (tmp_path / "slices" / "1-of-2", [training]),
        (tmp_path, [training_on_gpus, training]),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(cost)) for cost in costs]
        (folder / "costs.jsonl").write_text("\n".join([lines[0], "{", *lines[1:]]))
    assert read_costs(tmp_path) == [training_on_gpus, training, training, injection]
    assert (training_on_gpus.gpu_hours, training.gpu_hours) == (2.0, 0.0)
    assert read_costs(tmp_path / "nowhere") == []


def test_a_saved_configuration_is_written_out(tmp_path):
    config = OmegaConf.create({"a": 1, "b": "${a}", "c": {"d": ["1e-5", None]}, "hydra": {"x": 1}})
    save_config(tmp_path / "x" / "y", config, tmp_path / "conf")
    text = (
        "defaults:\n- common\n- _self_\nhydra:\n  searchpath:\n"
        f"  - file://{tmp_path}/conf\na: 1\nb: 1\nc:\n  d:\n  - '1e-5'\n  - null\n"
    )
    seal = f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}\n"
    assert (tmp_path / "x" / "y" / "config.yaml").read_text() == seal + text
    save_config(tmp_path / "x" / "y", config, tmp_path / "conf")
    for node in ("launch", "cluster", "verify", "defaults"):
        assert is_saved(tmp_path / "x" / "y", OmegaConf.merge(config, {node: {"z": 1}}))
    assert not is_saved(tmp_path / "x" / "y", OmegaConf.merge(config, {"z": {"z": 1}}))


@pytest.mark.parametrize(
    ("value", "is_read"),
    [
        ({"a": [{"b": "${oc.env:HOME}"}]}, False),
        ({"a": {"b": ["x", "${c}"]}}, False),
        ({"a": [{"b": "\\${c}"}], "d": [1, None]}, True),
    ],
)
def test_a_configuration_that_refers_to_something_else_is_not_read(tmp_path, value, is_read):
    text = OmegaConf.to_yaml(OmegaConf.create(value))
    (tmp_path / "config.yaml").write_text(f"{running_seal(text)}\n{text}")
    if is_read:
        assert load_config(tmp_path)
        return
    with pytest.raises(ArtifactError) as raised:
        load_config(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/config.yaml is damaged, or an earlier version wrote it (it is not a mapping "
        "of plain values). Give the launch's command again, which writes it."
    )


def running_seal(text):
    return f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}"


def test_a_record_that_is_no_file_is_none(tmp_path):
    cell = CellFolder(tmp_path / "cell")
    assert cell.read_outcome() is None
    (cell.folder / "outcome.json").mkdir(parents=True)
    assert cell.read_outcome() is None
    (tmp_path / "file").touch()
    assert CellFolder(tmp_path / "file").read_outcome() is None
    assert (cell.read_overrides(), cell.read_jobs(), cell.read_total_cost()) == ([], {}, {})
    assert cell.read_running() is None
    assert cell.slice_folder("2/8").folder == tmp_path / "cell" / "slices" / "2-of-8"


@pytest.fixture
def hydra(monkeypatch):
    """Hydra's configuration of a command with these words, run by its own launcher."""
    hydra_config = SimpleNamespace(
        overrides=SimpleNamespace(task=["seed=0", "a=1"]), mode=RunMode.RUN,
        launcher={"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"},
    )  # fmt: skip
    monkeypatch.setattr(running.HydraConfig, "get", lambda: hydra_config)
    return hydra_config


def test_cells_run_in_turn_by_hydras_own_launcher_alone(hydra):
    assert running._runs_in_turn(LaunchSettings())
    assert not running._runs_in_turn(LaunchSettings(cluster=ClusterConfig(**SLURM)))
    hydra.launcher["_target_"] = (
        "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
    )
    assert not running._runs_in_turn(LaunchSettings())


def test_a_cell_that_runs_here_saves_its_configuration_first(launch, monkeypatch, hydra, tmp_path):
    cell, runs, config = launch.cell(["b=1"]), [], OmegaConf.create({"seed": 0, "launch": {}})
    stages = Stages(ClusterConfig(), cell.folder, tmp_path / "code")
    monkeypatch.setattr(running, "_run_cell", lambda *args, **kw: runs.append((args, kw)))
    monkeypatch.setattr(running, "_is_cell_done", lambda *_: True)
    for plan, was_done in (("a plan", False), (None, True)):
        running._run_or_prepare_cell(config, LaunchSettings(), stages, plan)
        arguments = (config, LaunchSettings(), stages, plan)
        assert runs.pop() == (arguments, {"cell_was_done": was_done})
    saved = load_config(cell.folder)
    assert (saved.seed, saved.launch.cell) == (0, str(cell.folder))
    assert saved.hydra.searchpath == [f"file://{tmp_path}/code/conf"]
    assert cell.read_overrides() == ["seed=0", "a=1"]
    assert "cell" not in config.launch


def test_a_cell_of_slurm_is_prepared_for_its_jobs(launch, monkeypatch, hydra, tmp_path):
    cell, config = launch.cells()[0], OmegaConf.create({"seed": 0, "launch": {}})
    settings = LaunchSettings(cluster=ClusterConfig(**SLURM))
    stages, queued, plans = Stages(settings.cluster, cell.folder, tmp_path), {"7"}, []

    def check(*arguments, **keywords):
        plans.append((arguments, keywords))
        return "the plan"

    monkeypatch.setattr(running.slurm, "queued_job_ids", lambda cells: queued & {"7"})
    monkeypatch.setattr(running, "make_checked_cell_plan", check)
    monkeypatch.setattr(running, "input_digests", lambda plan: {"x": plan})
    running._run_or_prepare_cell(config, settings, stages)
    assert not (cell.folder / "config.yaml").exists()
    queued.clear()
    running._run_or_prepare_cell(config, settings, stages)
    assert plans == [((config, settings, stages), {"cell_was_done": False})]
    assert load_config(cell.folder).launch.cell == str(cell.folder)
    assert cell.read_outcome() == Outcome("waiting")
    corpus = tmp_path / "made"
    corpus.mkdir()
    (corpus / "manifest.json").touch()
    done_outcome = Outcome("done", paths={"corpus": str(corpus)}, content={"x": "given"})
    cell.write_outcome(done_outcome)
    running._run_or_prepare_cell(config, settings, stages, "given")
    assert (cell.read_outcome(), len(plans)) == (done_outcome, 1)
    monkeypatch.setattr(
        running, "input_digests", lambda plan: (_ for _ in ()).throw(DataError("it is empty"))
    )
    with pytest.raises(DataError):
        running._run_or_prepare_cell(config, settings, stages, "given")
    assert cell.read_outcome() == Outcome("failed", error="it is empty")


@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_a_cell_that_ran_names_its_folders_and_with_slurm_its_inputs(
    launch, monkeypatch, tmp_path, kind
):
    monkeypatch.chdir(tmp_path)
    cell, runs = launch.cells_in_sweep_order()[1], []

    def run_cell(plan, stages, until):
        runs.append((plan, until, os.environ.get(OUTER_TITLE), cell.read_running()[0].stage))
        return CellPaths("c", "m", "s", "t", exports=["e"])

    monkeypatch.setattr("contamination.launch.pipeline.run_cell", run_cell)
    monkeypatch.setattr(running, "input_digests", lambda plan: {"x": plan})
    cluster = ClusterConfig(**SLURM) if kind == "slurm" else ClusterConfig()
    settings = LaunchSettings(cluster=cluster, launch=LaunchConfig(stage="detect"))
    running._run_cell(OmegaConf.create(), settings, Stages(cluster, cell.folder), "the plan")
    assert runs == [("the plan", "detect", "cell 2 of 4", "detect")]
    paths = {"corpus": "c", "model": "m", "clean": "s", "contaminated": "t"}
    outcome = cell.read_outcome()
    absolute_paths = {name: str(tmp_path / path) for name, path in paths.items()}
    content = {"x": "the plan"} if kind == "slurm" else None
    assert outcome.paths == {**absolute_paths, "exports": [str(tmp_path / "e")]}
    assert (outcome.state, outcome.content) == ("done", content)


def test_a_cell_of_a_labelled_benchmark_keeps_what_it_says(launch, monkeypatch):
    cell, settings = launch.cells()[0], LaunchSettings()
    stages = Stages(settings.cluster, cell.folder)
    outcome = Outcome("done", paths={"model": "m", "scores": "s"})
    monkeypatch.setattr(running.labelled_benchmark, "run_cell", lambda *_: outcome)
    running._run_cell(OmegaConf.create({"examples": {"x": 1}}), settings, stages)
    assert cell.read_outcome() == outcome


def test_a_launch_is_created_and_keeps_the_configuration_of_queued_jobs(tmp_path, monkeypatch):
    queries = []
    monkeypatch.setattr(running.snapshot, "take_snapshot", lambda folder: folder / "code-1")
    monkeypatch.setattr(
        running.slurm, "queued_job_ids", lambda cells: queries.append(cells) or {*queued}
    )
    config = {"runs": str(tmp_path), "name": "study", "cluster": {"kind": "slurm"}, "seed": 0}
    words, cells, queued = ["seed=0,1"], [["seed=0"], ["seed=1"]], []
    launch = Launch.of_command(str(tmp_path), "study", words)
    for seed, saved_seed in ((0, 0), (1, 1), (2, 1)):
        queued[:] = ["7"] * (seed == 2)
        launch_config = OmegaConf.create({**config, "seed": seed})
        assert running.create_launch(launch_config, words, cells) == launch.folder / "code-1"
        assert load_config(launch.folder).seed == saved_seed
    saved = load_config(launch.folder)
    assert saved.hydra.searchpath == [f"file://{launch.folder}/code-1/conf"]
    assert queries == [[], launch.cells(), launch.cells()]
    assert [cell.read_overrides() for cell in launch.cells()] == cells
    launch_config = OmegaConf.create({**config, "cluster": {"kind": "local"}, "seed": 3})
    running.create_launch(launch_config, words, cells[:1])
    assert (load_config(launch.folder).seed, len(launch.cells()), len(queries)) == (3, 1, 3)


def pipeline_config(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", ["experiment=quickstart", *words])


def test_a_job_runs_the_cell_or_the_slice_that_it_is_given(launch, monkeypatch, hydra):
    cell, calls = launch.cells()[0], []
    save_config(cell.folder, {"name": "x"}, launch.folder)
    monkeypatch.setattr(running, "_run_cell", lambda *args: calls.append(("cell", *args)))
    monkeypatch.setattr(running, "_run_slice", lambda *args: calls.append(("slice", *args)))
    config = pipeline_config(f"launch.cell={cell.folder}")
    assert running.run(config) is None
    settings = convert_config(config, LaunchSettings)
    stages = Stages(settings.cluster, cell.folder, snapshot.HOME)
    assert calls.pop() == ("cell", config, settings, stages)
    config = pipeline_config(f"launch.cell={cell.folder}", "launch.slice=2/8")
    assert running.run(config) is None
    assert calls.pop() == ("slice", config, convert_config(config, LaunchSettings), cell, "2/8")
    (cell.folder / "config.yaml").write_text("x: 1\n")
    with pytest.raises(ArtifactError, match=r"config\.yaml is damaged"):
        running.run(config)


def test_a_launch_is_one_process(monkeypatch, hydra):
    monkeypatch.setattr(running, "launched_process_count", lambda: 4)
    with pytest.raises(ConfigError) as raised:
        running.run(pipeline_config())
    assert str(raised.value) == (
        "4 processes run this at once: python -m launch is one, and starts the others itself: see "
        "cluster=local, torchrun, deepspeed, slurm and datatrove."
    )


@pytest.mark.parametrize("kind", ["local", "slurm", "read-only"])
def test_a_single_cell_is_checked_run_and_reported(tmp_path, monkeypatch, hydra, kind):
    calls, code = [], tmp_path / "code"
    for name, answer in (
        ("make_checked_cell_plan", "plan"), ("create_launch", code), ("_run_or_prepare_cell", None),
        ("_submit_or_report", 0), ("_report_on_done_cells", "report"),
        ("_report_from_read_only_folder", "old report"),
    ):  # fmt: skip
        monkeypatch.setattr(
            running, name,
            lambda *args, name=name, answer=answer, **kw: calls.append((name, args, kw)) or answer,
        )  # fmt: skip
    monkeypatch.setattr(running, "is_writable_folder", lambda runs: kind != "read-only")
    words = ["cluster=slurm"] if kind == "slurm" else []
    config = pipeline_config(f"runs={tmp_path}", "name=study", *words)
    settings = convert_config(config, LaunchSettings)
    words = ["seed=0", "a=1"]
    launch = Launch.of_command(str(tmp_path), "study", words)
    stages = Stages(settings.cluster, launch.cell(words).folder, code)
    report = running.run(config)
    check = ("make_checked_cell_plan", (config, settings, Stages(settings.cluster)),
             {"cell_was_done": False})  # fmt: skip
    if kind == "read-only":
        assert report == "old report"
        assert calls == [check, ("_report_from_read_only_folder", (config, "plan", None), {})]
        return
    last_call = ("_submit_or_report", (launch, code, settings), {})
    if kind == "local":
        last_call = ("_report_on_done_cells", (config, launch), {})
    assert report == (None if kind == "slurm" else "report")
    assert calls == [
        check, ("create_launch", (config, words, [words]), {}),
        ("_run_or_prepare_cell", (config, settings, stages, "plan"), {}), last_call,
    ]  # fmt: skip


def test_a_sweep_whose_folder_can_not_be_made_is_said_by_its_cells(monkeypatch, hydra):
    hydra.mode = RunMode.MULTIRUN
    monkeypatch.delenv(running.CODE, raising=False)
    monkeypatch.setattr(running.SweepCallback, "error", OSError("no space"))
    with pytest.raises(ConfigError) as raised:
        running.run(pipeline_config("runs=far"))
    assert str(raised.value) == (
        "runs is 'far': the launch's folder can't be made there (OSError('no space'))."
    )
    calls = []
    monkeypatch.setenv(running.CODE, "code")
    monkeypatch.setattr(running, "_run_sweep_cell", lambda *args: calls.append(args))
    config = pipeline_config()
    assert running.run(config) is None
    assert calls == [(config, convert_config(config, LaunchSettings), ["seed=0", "a=1"])]


def test_the_report_of_a_launch_is_on_its_done_cells(launch, monkeypatch):
    reports = []
    monkeypatch.setattr(
        "contamination.launch.pipeline.report", lambda *args: reports.append(args) or "report"
    )
    config = OmegaConf.create({"examples": None})
    assert running._report_on_done_cells(config, launch) is None
    paths = {"corpus": "c", "model": "m", "clean": "s", "contaminated": "t"}
    launch.cells()[1].write_outcome(Outcome("done", paths=paths))
    assert running._report_on_done_cells(config, launch) == "report"
    assert reports == [(config, [CellPaths(**paths)])]
    benchmark_reports = []
    monkeypatch.setattr(
        running.labelled_benchmark, "write_report", lambda *args: benchmark_reports.append(args)
    )
    benchmark = OmegaConf.create({"examples": {"x": 1}})
    assert running._report_on_done_cells(benchmark, launch) is None
    assert benchmark_reports == [(benchmark, launch)]
    assert len(reports) == 1
