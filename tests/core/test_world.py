"""The processes of a launcher or of SLURM, and work of rank 0 alone."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_process_that_ends_during_its_imports_does_not_import_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemError('imported halfway, once before')")
    code = "from contamination.core.distributed import exit_process; exit_process(143)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (143, "")
