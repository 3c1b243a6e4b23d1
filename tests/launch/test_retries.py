"""Which ends of a stage's processes are tried again, and how they are started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from contamination.core.errors import ConfigError, UserError
from contamination.core.files import hashed_json
from contamination.core.process_records import FAILURES_FOLDER, Failure
from contamination.launch import snapshot
from contamination.launch.config import ClusterConfig
from contamination.launch.processes import CrashedError, Processes

WELL = "touch $PLACE/artefact/manifest.json; exit 0"


class Scripted(Processes):
    """Processes whose n-th start does what `end<n>` says."""

    def command(self, run):
        return ["sh", "-c", "env > $PLACE/environment; n=$(cat $PLACE/starts 2>/dev/null | wc -l); "
                            "echo >> $PLACE/starts; . $PLACE/end$n"]  # fmt: skip


@pytest.fixture
def started(tmp_path, monkeypatch):
    """How often processes that end like that are started, and the error."""
    monkeypatch.setenv("PLACE", str(tmp_path))
    artefact, cell = tmp_path / "artefact", tmp_path / "cell"
    artefact.mkdir()

    def run(*ends, retries=2):
        for number, end in enumerate(ends):
            (tmp_path / f"end{number}").write_text(end)
        cluster = ClusterConfig(processes=2, retries=retries)
        error = None
        try:
            made = artefact if artefact.is_dir() else None
            Scripted(cluster, "train", cell, snapshot.HOME).run_with_retries("study", made)
        except UserError as raised:
            error = raised
        return (tmp_path / "starts").read_text().count("\n"), error

    return run


@pytest.fixture
def said(tmp_path):
    """The end of processes of which one has said why, in these words."""

    def end(words, trace="Traceback …", status=1):
        failure = Failure(0, "here", 1.0, "ValueError", status, words, trace)
        place = tmp_path / f"sign {words}"
        place.write_text(hashed_json(asdict(failure)))
        folder = f"$PLACE/cell/{FAILURES_FOLDER}"
        return f'mkdir -p {folder}; cp "{place}" {folder}/rank-0.json; exit {status}'

    return end


def test_a_crash_without_a_word_is_tried_again_as_often_as_is_asked(started):
    starts, error = started(*["kill -9 $$"] * 9, retries=3)
    assert starts == 4
    assert isinstance(error, CrashedError)
    assert "died without an error message" in str(error)


def test_the_same_words_twice_are_enough_and_others_are_not(started, said):
    starts, error = started(said("one"), said("two"), said("two"), said("three"), retries=5)
    assert starts == 3
    assert "ValueError: two" in str(error)


def test_a_crash_after_another_is_tried_again_to_a_good_end(started, said):
    assert started(said("one"), "kill -9 $$", said("one"), WELL, retries=3) == (4, None)


def test_a_users_mistake_is_not_tried_again(started, said):
    starts, error = started(said("lower it", trace="", status=2), WELL)
    assert (starts, str(error)) == (1, "lower it")
    assert not isinstance(error, CrashedError)


def test_what_is_made_well_is_made_once(started, tmp_path, monkeypatch):
    """Its processes have the snapshot's code, and not the place of this one."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "7")
    assert started(WELL, WELL) == (1, None)
    lines = (tmp_path / "environment").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    assert not given.keys() & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    assert given["PYTHONPATH"].split(os.pathsep)[0] == str(snapshot.HOME)


def test_what_makes_no_artefact_is_done_once_it_ends_well(started, tmp_path):
    (tmp_path / "artefact").rmdir()
    assert started("kill -9 $$", "exit 0") == (2, None)


def test_srun_starts_a_task_for_each_of_the_jobs():
    jobs = {"all": {"time": 9}, "train": {"nodes": 2, "ntasks_per_node": 4, "cpus_per_task": 3}}
    cluster = ClusterConfig(kind="slurm", jobs=jobs, options=["--mpi=none"])
    train, detect = (
        Processes(cluster, stage, snapshot.HOME, snapshot.HOME) for stage in ("train", "detect")
    )
    assert (train.count, train.is_in_process, detect.count, detect.is_in_process) == (
        8,
        False,
        1,
        True,
    )
    assert train.command("study")[:5] == [
        "srun", "--ntasks=8", "--kill-on-bad-exit=1", "--cpus-per-task=3", "--mpi=none",
    ]  # fmt: skip


def test_deepspeed_starts_as_many_as_its_hosts_have_slots(tmp_path):
    (tmp_path / "hosts").write_text("one slots=2\ntwo slots=3 # GPUs\n")
    cluster = ClusterConfig(kind="deepspeed", hostfile=str(tmp_path / "hosts"))
    found = Processes(cluster, "train", snapshot.HOME, snapshot.HOME)
    assert (found.count, found.is_in_process) == (5, False)


HERE = [sys.executable, "-m"]
CELL = Path("runs/launches/study-1/cells/abc")


def command(stage="train", **cluster):
    return Processes(ClusterConfig(**cluster), stage, CELL, snapshot.HOME).command("study")


READ = ["--config-path", str(CELL / "stages" / "train-study"), "--config-name", "config"]


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (
            {"processes": 2, "options": ["--max-restarts=1"]},
            ["--standalone", "--nproc-per-node=2", "--shutdown-timeout=600", "--max-restarts=1"],
        ),
        (
            {"kind": "torchrun", "nodes": 3, "node_rank": 1, "address": "head", "port": 4000,
             "grace_seconds": 9},
            ["--nnodes=3", "--node-rank=1", "--master-addr=head", "--master-port=4000",
             "--rdzv-conf=timeout=3600", "--nproc-per-node=1", "--shutdown-timeout=9"],
        ),
        (
            {"kind": "torchrun", "nodes": 2, "rendezvous": "c10d", "address": "head"},
            ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=head:29500",
             "--rdzv-id=abc-train-study", "--rdzv-conf=join_timeout=3600", "--nproc-per-node=1",
             "--shutdown-timeout=600"],
        ),
    ],
)  # fmt: skip
def test_torchruns_command_is_written_out(cluster, words):
    assert command(**cluster) == [
        *HERE, "torch.distributed.run", *words, "-m", "contamination.training", *READ
    ]  # fmt: skip


def test_the_commands_of_deepspeed_and_srun_are_written_out(tmp_path):
    hosts = tmp_path / "hosts"
    deepspeed_command = command(
        kind="deepspeed",
        hostfile=str(hosts),
        address="head",
        port=4000,
        options=["--launcher", "x"],
    )
    assert deepspeed_command == [
        *HERE, "deepspeed.launcher.runner", "--hostfile", str(hosts), "--master_addr", "head",
        "--master_port", "4000", "--no_local_rank", "--launcher", "x", "--module",
        "contamination.training", *READ,
    ]  # fmt: skip
    jobs = {"all": {"time": 9}, "detect": {"nodes": 2}}
    assert command("detect", kind="slurm", jobs=jobs) == [
        "srun", "--ntasks=2", "--kill-on-bad-exit=1", *HERE, "contamination.detection",
        "--config-path", str(CELL / "stages" / "detect-study"), "--config-name", "config",
    ]  # fmt: skip


def test_how_many_processes_a_stage_has_here_and_in_all(tmp_path):
    (tmp_path / "hosts").write_text("# a comment\none slots=4 # four\n\ntwo slots=4\n")
    deepspeed = {"kind": "deepspeed", "hostfile": str(tmp_path / "hosts")}
    for fields, count, local, is_in_process in (
        ({}, 1, 1, True),
        ({"processes": 3}, 3, 3, False),
        ({"kind": "torchrun", "nodes": 2, "processes": 3}, 6, 3, False),
        (deepspeed, 8, 8, False),
        ({**deepspeed, "options": ["--no_ssh"]}, 8, 4, False),
        ({"kind": "slurm", "jobs": {"all": {"time": 9, "nodes": 2}}}, 2, 2, False),
        ({"kind": "slurm", "jobs": {"all": {"time": 9}}}, 1, 1, True),
    ):
        processes = Processes(ClusterConfig(**fields), "train", CELL, snapshot.HOME)
        assert (processes.count, processes.local_count, processes.is_in_process) == (
            count, local, is_in_process
        ), fields  # fmt: skip
    (tmp_path / "hosts").write_text("one slots=1\n")
    assert not Processes(ClusterConfig(**deepspeed), "train", CELL, CELL).is_in_process


@pytest.mark.parametrize("text", ["one", "one slots=0", "one slots=x", "one gpus=2", ""])
def test_a_bad_hostfile_is_said_with_its_form(tmp_path, text):
    hosts = tmp_path / "hosts"
    hosts.write_text(text)
    cluster = ClusterConfig(kind="deepspeed", hostfile=str(hosts))
    with pytest.raises(ConfigError) as raised:
        assert Processes(cluster, "train", CELL, CELL).count
    assert str(raised.value) == (
        f"cluster.hostfile is '{hosts}': write one line per host, such as worker-1 slots=8."
    )
    hosts.unlink()
    with pytest.raises(ConfigError) as raised:
        assert Processes(cluster, "train", CELL, CELL).count
    assert str(raised.value).startswith(f"cluster.hostfile is '{hosts}': it can't be read (")


def write_failure(folder, **fields):
    folder = folder / FAILURES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    failure = Failure(**{"rank": 0, "host": "here", "time": 1.0, "kind": "ValueError", "status": 1,
                         "message": "bad", "trace": "Traceback …", **fields})  # fmt: skip
    (folder / f"rank-{failure.rank}.json").write_text(hashed_json(asdict(failure)))


def test_why_processes_ended_is_said_in_full(tmp_path):
    processes = Processes(ClusterConfig(processes=2), "train", tmp_path, snapshot.HOME)
    error = processes._error_of_exit(9, stopped=False)
    died = (
        "A process of train died without an error message (the launcher's exit status is 9): it "
        "was killed, perhaps because memory ran out, or can't be reached. The launcher names it "
        "above"
    )
    assert (str(error), error.known, error.status) == (died, False, 1)
    write_failure(tmp_path, rank=1)
    error = processes._error_of_exit(9, stopped=False)
    assert (str(error), error.known) == (
        "rank 1 on here failed first: ValueError: bad (its traceback is above, and in "
        f"{tmp_path / FAILURES_FOLDER})",
        True,
    )


def test_a_start_after_a_crash_is_announced(started, said, caplog):
    with caplog.at_level("INFO"):
        assert started(said("one"), "kill -9 $$", WELL, retries=2) == (3, None)
    lines = caplog.messages
    announcement = "Starting again from the last checkpoint; {} more after this."
    assert len(lines) == 5
    assert lines[0] == lines[2] == lines[4]
    assert lines[0].startswith("train-study: sh -c ")
    assert "ValueError: one" in lines[1]
    assert lines[1].endswith("\n" + announcement.format(1))
    assert lines[3].endswith("\n" + announcement.format(0))
    assert "died without an error message" in lines[3]


def test_processes_are_asked_to_stop_by_their_launcher(tmp_path, monkeypatch):
    requests = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(subprocess, "run", lambda call, **_: requests.append(call))
    process = SimpleNamespace(pid=1, send_signal=requests.append)
    for cluster in ({"kind": "slurm", "jobs": {"all": {"time": 9}}}, {}):
        Processes(ClusterConfig(**cluster), "train", CELL, CELL)._ask_to_stop(process)
    assert requests == [["scancel", "--signal=TERM", "7"], signal.SIGTERM]


def test_the_first_node_of_a_job_is_the_one_that_starts_it(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.setenv("KEPT", "x")
    slurm = {"kind": "slurm", "jobs": {"all": {"time": 9}}}
    for cluster, address in ((slurm, socket.gethostname()), ({}, None)):
        environment = Processes(ClusterConfig(**cluster), "train", CELL, CELL)._environment()
        assert environment.get("MASTER_ADDR") == address
        assert "RANK" not in environment
        assert (environment["KEPT"], environment["PYTHONSAFEPATH"]) == ("x", "1")
        assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(CELL)
