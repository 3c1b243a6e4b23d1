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
from omegaconf import OmegaConf

from contamination.analysis.config import CellPaths
from contamination.core import process_records
from contamination.core.errors import ArtifactError, ConfigError, DataError, StoppedError
from contamination.core.files import hashed_json, verified_json
from contamination.launch import run as running
from contamination.launch import snapshot
from contamination.launch.__main__ import main
from contamination.launch.cells import Launch, Outcome, overrides_digest
from contamination.launch.config import ClusterConfig, LaunchConfig, LaunchSettings
from contamination.launch.run_records import Cost, make_and_record_cost, read_costs
from contamination.launch.saved_config import is_saved, save_config
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
