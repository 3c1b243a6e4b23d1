"""SLURM's batch scripts and what a job does, by programs of SLURM's names: no SLURM is needed."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from contamination.core.errors import ConfigError
from contamination.launch import slurm
from contamination.launch.cells import Launch, Outcome
from contamination.launch.config import ClusterConfig

pytest.importorskip("submitit")

CLUSTER = ClusterConfig(
    kind="slurm", retries=2, requeues=5,
    jobs={
        "all": {"time": 240, "partition": "cpu", "cpus_per_task": 2, "signal_delay_s": 90,
                "setup": ["module load cuda"], "additional_parameters": {"exclude": "n7"}},
        "train": {"time": 600, "partition": "gpu", "nodes": 2, "ntasks_per_node": 4,
                  "gpus_per_node": 4, "cpus_per_task": None},
        "analyse": {"time": 60, "signal_delay_s": 30},
    },
)  # fmt: skip
PROGRAMS = {
    "srun": "",
    "sbatch": 'n=$(ls $SPOOL | wc -l)\ncp "$1" "$SPOOL/$n"\n[ $n = "$REFUSED" ] && exit 1\n'
              "echo Submitted batch job $((100 + n))",
    "squeue": "printf '100_0\\n555_1\\n'",
    "scontrol": 'echo "$@" >> $SPOOL/scontrol\n[ $1 = show ] && echo JobState=$STATE || true',
}  # fmt: skip


@pytest.fixture
def spool(tmp_path, monkeypatch):
    """A folder where the programs leave what they are given; the n-th job is 100 + n."""
    place, programs = tmp_path / "spool", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    for name, body in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SPOOL", str(place))
    return place


@pytest.fixture
def launch(tmp_path):
    made = Launch(tmp_path / "runs" / "launches" / "study-1")
    made.register([[f"seed={seed}"] for seed in range(3)])
    return made


def options(script):
    """What a batch script asks for."""
    found = re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {name: "".join(shlex.split(value)) for name, value in found}


def described(launch, cells, until=None, job="<the job before>"):
    """Each stage's script."""
    text = slurm.render_batch_scripts(launch, launch.folder / "code-1", CLUSTER, cells, until)
    found = ["#!/bin/bash" + part for part in text.split("#!/bin/bash")[1:]]
    names = [options(script)["job-name"].removeprefix("study-1-") for script in found]
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize(("cells", "before"), [(3, "aftercorr"), (1, "afterok")])
def test_a_dry_run_says_the_jobs_where_there_is_no_slurm(launch, cells, before, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    scripts = described(launch, cells)
    common = {
        "job-name", "open-mode", "output", "requeue", "wckey", "exclude", "nodes",
        "time", "partition", "signal", "cpus-per-task",
    }  # fmt: skip
    array = {"array": f"0-2%{cells}"} if cells > 1 else {}
    waits = {"dependency": f"{before}:<the job before>", "kill-on-invalid-dep": "yes"}
    cpu = {"time": "240", "partition": "cpu", "cpus-per-task": "2", "signal": "B:USR2@90"}
    expected = {
        "inject": {**array, **cpu, "nodes": "1"},
        "train": {**array, **cpu, **waits, "time": "600", "partition": "gpu", "nodes": "2",
                  "ntasks-per-node": "4", "gpus-per-node": "4"},
        "detect": {**array, **cpu, **waits, "nodes": "1"},
        "analyse": {**cpu, "dependency": "afterany:<the job before>", "time": "60", "nodes": "1",
                    "signal": "B:USR2@30"},
    }  # fmt: skip
    assert list(scripts) == list(expected)
    for stage, script in scripts.items():
        found = options(script)
        assert {name: found.get(name) for name in expected[stage]} == expected[stage]
        assert found.keys() - expected[stage].keys() <= common
        assert found["exclude"] == "n7"
        *_, last = script.strip().splitlines()
        assert last.startswith(f"exec {sys.executable} -u -m submitit.core._submit {launch.folder}")
        setup = script.splitlines()
        code = f"export PYTHONPATH={launch.folder}/code-1"
        assert "module load cuda" in setup
        assert any(line.startswith(code) for line in setup)
    assert list(described(launch, cells, "inject")) == ["inject"]
    assert list(described(launch, cells, "train")) == ["inject", "train"]


def submitted(launch, job):
    """What a task is given: (its job's retries and requeues, its command, time-outs to spare)."""
    given = pickle.loads((launch.folder / "jobs" / f"{job}_submitted.pkl").read_bytes())
    (call,) = given.args
    return (given.function.retries, given.function.requeues), call, given._timeout_countdown


def test_what_is_submitted_is_what_was_described(launch, spool):
    cells = launch.cells()
    slurm.submit_cells(launch, launch.folder / "code-1", CLUSTER, cells, None)
    said = described(launch, 3)
    for number, (stage, script) in enumerate(said.items()):
        before = f"{99 + number}"
        expected = script.replace("'aftercorr:<the job before>'", f"aftercorr:{before}")
        expected = expected.replace("'afterany:<the job before>'", f"afterany:{before}")
        assert (spool / str(number)).read_text().split() == expected.split(), stage
    for place, cell in enumerate(cells):
        assert cell.read_jobs() == {
            stage: f"{100 + n}_{place}" for n, stage in enumerate(("inject", "train", "detect"))
        }
        for stage, job in cell.read_jobs().items():
            rules, call, timeouts = submitted(launch, job)
            assert (rules, timeouts) == ((2, 5), 5)
            assert call[:3] == [sys.executable, "-m", "contamination.launch"]
            assert call[call.index("--config-path") + 1] == str(cell.folder)
            assert call[-1] == f"launch.stage={stage}"
    _, call, _ = submitted(launch, "103")
    assert call == [sys.executable, "-m", "contamination.launch", "report", str(launch.folder)]


def test_slices_of_a_cells_detection_come_before_its_scores(launch, spool):
    jobs = {**CLUSTER.jobs, "detect": {"slices": 3, "time": 30}}
    cluster, code = replace(CLUSTER, jobs=jobs), launch.folder / "code-1"
    cells = launch.cells()[:2]
    slurm.submit_cells(launch, code, cluster, cells, None)
    for place, (cell, first) in enumerate(zip(cells, (102, 104), strict=True)):
        slices, scores = (options((spool / str(n - 100)).read_text()) for n in (first, first + 1))
        trained, stops = f"afterok:101_{place}", {"kill-on-invalid-dep": "yes", "time": "30"}
        expected = {"array": "0-2%3", "dependency": trained, **stops}
        assert {**slices, **expected} == slices
        assert slices["job-name"] == "study-1-detect-slices"
        expected = {"dependency": f"{trained},afterany:{first}", **stops}
        assert {**scores, **expected} == scores
        assert "array" not in scores
        own = {f"detect {n}/3": f"{first}_{n - 1}" for n in (1, 2, 3)}
        before = {"inject": f"100_{place}", "train": f"101_{place}"}
        assert cell.read_jobs() == {**before, **own, "detect": str(first + 1)}
        for n, each in enumerate(cell.slice_folders(), 1):
            assert each.read_outcome() == Outcome("waiting")
            rules, call, _ = submitted(launch, f"{first}_{n - 1}")
            assert (rules, call) == ((2, 5), slurm.task_command("detect", cell.folder, f"{n}/3"))
            assert call[-2:] == ["launch.stage=detect", f"launch.slice={n}/3"]
        assert submitted(launch, str(first + 1))[1] == slurm.task_command("detect", cell.folder)
    assert options((spool / "6").read_text())["dependency"] == "afterany:103:105"
    said = slurm.render_batch_scripts(launch, code, cluster, 2, None)
    assert "# these two jobs for each of 2 cells:" in said
    *_, slices, scores, _ = ("#!/bin/bash" + part for part in said.split("#!/bin/bash")[1:])
    for number, script in ((2, slices), (3, scores)):
        made = options((spool / str(number)).read_text())
        waits = made["dependency"].replace("101_0", "<the job before>")
        waits = waits.replace("102", "<the slices>")
        assert options(script) == {**made, "dependency": waits}


def test_a_job_that_is_refused_is_named_and_those_before_it_stay(launch, spool, monkeypatch):
    monkeypatch.setenv("REFUSED", "1")
    (cell, *_) = launch.cells()
    with pytest.raises(ConfigError, match=r"^cluster\.jobs\.train: "):
        slurm.submit_cells(launch, launch.folder, CLUSTER, [cell], "detect")
    assert cell.read_jobs() == {"inject": "100"}
    assert options((spool / "1").read_text())["dependency"] == "afterok:100"


def test_without_slurm_nothing_is_submitted_and_that_is_said(launch, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="there is no sbatch here.*dry_run=true"):
        slurm.submit_cells(launch, launch.folder, CLUSTER, launch.cells(), None)


def test_queued_are_the_cells_own_jobs_that_slurm_still_has(launch, spool):
    one, other, _ = launch.cells()
    assert slurm.queued_job_ids([one]) == set()
    one.write_jobs({"inject": "100_0", "train": "101_0"})
    other.write_jobs({"inject": "100_1"})
    assert slurm.queued_job_ids([one, other]) == {"100_0"}


@pytest.mark.parametrize(
    ("ends", "starts", "status"),
    [
        (["exit 0"], 1, None),
        (["exit 3"], 1, 3),
        (["kill -9 $$", "exit 0"], 2, None),
        (["exit 137", "kill -9 $$", "exit 5"], 3, 5),
        (["kill -9 $$"] * 4, 3, 137),
        (["exit 143"], 1, 143),
    ],
)
def test_a_jobs_command_is_started_again_where_it_was_killed(
    ends, starts, status, spool, monkeypatch
):
    """Two retries; 143 is a command that saved: the job is queued again, where SLURM lets it."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("STATE", "COMPLETING")
    for number, end in enumerate(ends):
        (spool / f"end{number}").write_text(end)
    run = "n=$(cat $SPOOL/starts 2>/dev/null | wc -l); echo >> $SPOOL/starts; . $SPOOL/end$n"
    if status is None:
        slurm.Job(2, 5)(["sh", "-c", run])
    else:
        with pytest.raises(SystemExit) as ended:
            slurm.Job(2, 5)(["sh", "-c", run])
        assert ended.value.code == status
    assert (spool / "starts").read_text().count("\n") == starts


@pytest.mark.parametrize(
    ("state", "restarts", "again"),
    [("RUNNING", "0", True), ("RUNNING", "4", True), ("RUNNING", "5", False),
     ("COMPLETING", "0", False)],
)  # fmt: skip
def test_a_job_that_saved_is_queued_again_a_bounded_number_of_times(
    state, restarts, again, spool, monkeypatch
):
    for name, value in {"JOB_ID": "7", "RESTART_COUNT": restarts}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("STATE", state)
    with pytest.raises(SystemExit):
        slurm.Job(2, 5)(["sh", "-c", "exit 143"])
    assert ("requeue 7" in (spool / "scontrol").read_text().splitlines()) == again


@pytest.mark.parametrize(
    ("stage", "task"),
    [
        ("inject", "--config-path CELL --config-name config launch.stage=inject"),
        ("train", "--config-path CELL --config-name config launch.stage=train"),
        ("detect", "--config-path CELL --config-name config launch.stage=detect"),
        ("analyse", "report {folder}"),
    ],
)
def test_a_batch_script_says_what_its_tasks_run(launch, stage, task, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = described(launch, 3)[stage]
    command = f"{sys.executable} -m contamination.launch {task.format(folder=launch.folder)}"
    lines = script.strip().splitlines()
    start = lines.index("module load cuda")
    assert lines[start : start + 4] == [
        "module load cuda", f"# each task runs: {command}",
        f"export PYTHONPATH={launch.folder}/code-1", "export PYTHONSAFEPATH=1",
    ]  # fmt: skip
    batch_options = options(script)
    array = "%A_%a" if stage != "analyse" else "%j"
    assert batch_options["output"] == f"{launch.folder}/jobs/{array}_0_log.out"
    assert "error" not in batch_options
    assert "#SBATCH --requeue" in script
    assert "srun" not in lines[-1]
    assert lines[-1].startswith("exec ")


def test_scripts_of_slices_are_for_each_cell(launch):
    jobs = {**CLUSTER.jobs, "detect": {"slices": 2}}
    cluster, code = replace(CLUSTER, jobs=jobs), launch.folder / "code-1"
    for cells, note in ((1, 0), (2, 1)):
        text = slurm.render_batch_scripts(launch, code, cluster, cells, "detect")
        assert text.count(f"# these two jobs for each of {cells} cells:\n#!/bin/bash") == note
        *_, slices, scores = ("#!/bin/bash" + part for part in text.split("#!/bin/bash")[1:])
        assert "launch.stage=detect launch.slice=I/2\n" in slices
        assert "launch.stage=detect\n" in scores
        assert options(slices)["array"] == "0-1%2"
        assert options(slices)["job-name"] == "study-1-detect-slices"
        assert options(scores)["job-name"] == "study-1-detect"
        assert options(slices)["dependency"] == "afterok:<the job before>"
        assert options(scores)["dependency"] == ("afterok:<the job before>,afterany:<the slices>")
        assert options(slices)["kill-on-invalid-dep"] == "yes"
    whole_detection = replace(CLUSTER, jobs={**CLUSTER.jobs, "detect": {"slices": 1}})
    assert "launch.slice" not in slurm.render_batch_scripts(launch, code, whole_detection, 2, None)


def test_what_a_job_asks_for_by_default(launch):
    cluster = ClusterConfig(kind="slurm", jobs={"all": {"time": 5}})
    text = slurm.render_batch_scripts(launch, launch.folder / "code-1", cluster, 1, "inject")
    batch_options = options(text)
    assert (batch_options["signal"], batch_options["time"], batch_options["job-name"]) == (
        "B:USR2@120", "5", "study-1-inject"
    )  # fmt: skip
    assert "dependency" not in batch_options
    assert "array" not in batch_options
    named_job = ClusterConfig(kind="slurm", jobs={"all": {"time": 5, "job_name": "herons"}})
    text = slurm.render_batch_scripts(launch, launch.folder / "code-1", named_job, 1, "inject")
    assert options(text)["job-name"] == "herons"


def test_an_option_that_submitit_does_not_know_is_named(launch):
    cluster = ClusterConfig(kind="slurm", jobs={"all": {"time": 5}, "train": {"tiem": 5}})
    with pytest.raises(ConfigError, match=r"^cluster\.jobs\.train: .*tiem") as raised:
        slurm.render_batch_scripts(launch, launch.folder, cluster, 1, None)
    assert "\n" not in str(raised.value)


def test_a_job_out_of_time_lets_its_command_save_first(spool, monkeypatch):
    command = ["sh", "-c", f"trap 'echo saved > {spool}/saved; exit 143' TERM; "
               f"touch {spool}/began; while :; do sleep 0.01; done"]  # fmt: skip
    slurm.Job.child = None
    job = slurm.Job(2, 5)
    resubmission = job.checkpoint(command)
    assert (resubmission.function, resubmission.args) == (job, (command,))
    slurm.Job.child = child = subprocess.Popen(command)
    try:
        while not (spool / "began").exists():
            time.sleep(0.01)
        resubmission = job.checkpoint(command)
        assert (spool / "saved").read_text() == "saved\n"
        assert (resubmission.function, resubmission.args) == (job, (command,))
        assert child.wait() == 143
        job.checkpoint(command)  # it has ended, and been waited for
    finally:
        slurm.Job.child = None
        child.kill()
        child.wait()


def test_squeue_that_can_not_answer_is_an_error(launch, spool, monkeypatch):
    (cell, *_) = launch.cells()
    cell.write_jobs({"inject": "100_0"})
    (spool.parent / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    message = r"^cluster\.kind is slurm, but squeue can't say which jobs are queued \(.*status 1"
    with pytest.raises(ConfigError, match=message):
        slurm.queued_job_ids([cell])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"squeue can't say which .* No such file"):
        slurm.queued_job_ids([cell])


def test_squeue_and_scontrol_are_asked_for_the_users_own_job(spool, launch, monkeypatch):
    (spool.parent / "bin" / "squeue").write_text('#!/bin/sh\necho "$@" > $SPOOL/squeue\n')
    (cell, *_) = launch.cells()
    cell.write_jobs({"inject": "100_0"})
    assert slurm.queued_job_ids([cell]) == set()
    assert (spool / "squeue").read_text() == "--me --noheader --array --format=%i\n"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    monkeypatch.setenv("STATE", "RUNNING")
    slurm.Job(0, 1)._queue_again()
    assert (spool / "scontrol").read_text() == "show job 7\nrequeue 7\n"
    slurm.Job(0, 0)._queue_again()
    assert (spool / "scontrol").read_text() == "show job 7\nrequeue 7\nshow job 7\n"


def test_jobs_that_were_submitted_are_logged(launch, spool, caplog):
    with caplog.at_level("INFO"):
        slurm.submit_cells(launch, launch.folder / "code-1", CLUSTER, launch.cells(), "train")
    inject_script, inject_message, train_script, train_message = caplog.messages
    assert (inject_message, train_message) == ("inject: job 100", "train: job 101")
    scripts = described(launch, 3, "train")
    assert inject_script.split() == scripts["inject"].split()
    assert "afterok" not in train_script
    assert "aftercorr:100" in train_script
