"""Which ends of a stage's processes are tried again, and how they are started."""

from __future__ import annotations

import os
from dataclasses import asdict

import pytest

from contamination.core.errors import UserError
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
