"""The processes of a launcher or of SLURM, and work of rank 0 alone."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
import torch

from contamination.core import distributed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "x")  # so that what is set here is undone
        monkeypatch.delenv(name)


def step(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)


def test_a_task_of_srun_finds_its_place(monkeypatch):
    step(monkeypatch, STEP_NUM_TASKS="16", PROCID="9", LOCALID="1", JOB_ID="77", STEP_ID="3",
         STEP_NODELIST="n[1-2]")  # fmt: skip
    monkeypatch.setenv("MASTER_ADDR", "node1")
    assert distributed.launched_process_count() == 16
    assert distributed.os.environ["RANK"] == "9"
    assert distributed.os.environ["LOCAL_RANK"] == "1"
    assert 10000 <= int(distributed.os.environ["MASTER_PORT"]) < 30000


def test_a_batch_script_is_one_process_whatever_its_jobs_tasks(monkeypatch):
    step(monkeypatch, NTASKS="16", PROCID="0", LOCALID="0", JOB_ID="77")
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    assert distributed.launched_process_count() == 1
    assert "RANK" not in distributed.os.environ


def test_torchruns_own_names_come_first(monkeypatch):
    step(monkeypatch, STEP_NUM_TASKS="2", PROCID="1", LOCALID="0", JOB_ID="77", STEP_ID="3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert distributed.launched_process_count() == 16
    assert "RANK" not in distributed.os.environ


def test_without_a_first_node_the_remedy_is_named(monkeypatch):
    step(monkeypatch, STEP_NUM_TASKS="2", PROCID="1", LOCALID="0", JOB_ID="77", STEP_ID="3",
         STEP_NODELIST="n[1-2]")  # fmt: skip
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(distributed.ConfigError, match="set MASTER_ADDR"):
        distributed.launched_process_count()


def test_rank_0s_work_alone():
    alone = distributed.World(0, 1, torch.device("cpu"))
    assert alone.on_rank_0(lambda: 3) == 3


@pytest.fixture
def two_ranks(monkeypatch):
    """Runs work on rank 0 of two, each in a thread of this process; returns what both get of it.

    The work is called with an event, which rank 1 sets once it has a message.
    """
    messages, received = SimpleQueue(), Event()
    monkeypatch.setattr(distributed, "HEARTBEAT_SECONDS", 0.01)

    class LinkedWorld(distributed.World):
        def broadcast_from_rank_0(self, value):
            if self.is_rank_0:
                messages.put(value)
                return value
            message = messages.get(timeout=10)
            received.set()
            return message

    def on_rank_0(work):
        worlds = [LinkedWorld(rank, 2, torch.device("cpu")) for rank in (0, 1)]
        with ThreadPoolExecutor(2) as pool:
            return [pool.submit(world.on_rank_0, lambda: work(received)) for world in worlds]

    return on_rank_0


def test_every_rank_gets_the_result_of_work_that_is_done_once(two_ranks):
    calls = []

    def work(_):
        calls.append("work")
        return len(calls)

    assert [rank.result() for rank in two_ranks(work)] == [1, 1]
    assert calls == ["work"]


def test_the_others_get_messages_while_rank_0_works(two_ranks):
    assert [rank.result() for rank in two_ranks(lambda received: received.wait(10))] == [True, True]


@pytest.mark.parametrize(
    ("error", "status"), [(distributed.ConfigError("words"), 2), (ValueError("words"), 1)]
)
def test_rank_0_raises_the_error_of_its_work_and_the_others_exit_with_its_status(
    two_ranks, error, status
):
    def work(_):
        raise error

    rank_0, rank_1 = (rank.exception() for rank in two_ranks(work))
    assert rank_0 is error
    assert isinstance(rank_1, SystemExit)
    assert rank_1.code == status


def test_a_process_that_ends_during_its_imports_does_not_import_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemError('imported halfway, once before')")
    code = "from contamination.core.distributed import exit_process; exit_process(143)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (143, "")
