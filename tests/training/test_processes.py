"""Training by real processes: killed, stopped, resumed, on another number of them."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from functools import partial

import pandas as pd
import pytest
import torch

from contamination.core.artifacts import open_artifact
from contamination.training import checkpoints
from contamination.training.trained_model import open_checkpoint
from tests.rounding import TRAINING
from tests.training.processes import (
    losses,
    only_folder,
    start,
    steps_done,
    stop_when,
    train,
    train_here,
)

STAGES = ("zero0", "zero1", "zero2", "zero3")
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")

OPTIONS = ("deepspeed=zero2", "training.evaluate_every_steps=5", "training.export_steps=[4]")


@pytest.fixture(scope="module")
def whole(corpus_folder, tmp_path_factory):
    """The model of one process that was left alone."""
    runs = tmp_path_factory.mktemp("whole")
    return train_here(corpus_folder, runs, *OPTIONS, f"validation_folder={corpus_folder}")


def test_sigterm_saves_and_exits_and_the_same_command_goes_on(corpus_folder, whole, tmp_path):
    options = (*OPTIONS, f"validation_folder={corpus_folder}")
    runs = tmp_path / "stopped"
    process = start(1, corpus_folder, runs, *options)
    said = stop_when(process, lambda: steps_done(runs) >= 2, signal.SIGTERM)
    assert process.returncode == 143
    assert "stopped: SIGTERM was received at step" in said
    assert "Traceback" not in said
    assert checkpoints.completed_folders(only_folder(runs) / "checkpoints")
    again = train_here(corpus_folder, runs, *options)
    assert losses(again) == losses(whole)
    assert open_artifact(again, "model").files == open_artifact(whole, "model").files


def test_two_processes_train_as_one(corpus_folder, whole, tmp_path):
    options = (*OPTIONS, f"validation_folder={corpus_folder}")
    two = train(2, corpus_folder, tmp_path, *options)
    assert losses(two) == pytest.approx(losses(whole), abs=TRAINING)
    found = [open_checkpoint(folder).evaluations for folder in (whole, two)]
    assert found[0]["step"].tolist() == [0, 5, 10, 12]
    pd.testing.assert_frame_equal(*found, atol=TRAINING)
    assert list(open_checkpoint(two).exports) == [4]
    exposures = [open_checkpoint(folder).exposures for folder in (whole, two)]
    assert exposures[0].equals(exposures[1])


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_processes_go_on_bit_for_bit(corpus_folder, tmp_path, stage):
    options = (
        f"deepspeed={stage}", "training.batch_sequences=2", "training.micro_batch_sequences=1",
        "training.checkpoint_every_steps=10",
    )  # fmt: skip
    whole = train(2, corpus_folder, tmp_path / "whole", *options)
    runs = tmp_path / "killed"
    stop_when(
        start(2, corpus_folder, runs, *options), lambda: steps_done(runs) >= 12, signal.SIGKILL
    )
    assert [p.name for p in checkpoints.completed_folders(only_folder(runs) / "checkpoints")] == [
        "step-00000010"
    ]
    again = train(2, corpus_folder, runs, *options)
    assert losses(again) == losses(whole)
    assert open_artifact(again, "model").files == open_artifact(whole, "model").files
    assert train(2, corpus_folder, runs, *options) == again  # finished: both end well at once


@pytest.mark.slow
def test_killed_in_the_middle_of_a_checkpoint_twenty_times(corpus_folder, tmp_path):
    runs, options = tmp_path / "killed", (
        "deepspeed=zero2", "training.batch_sequences=2", "training.micro_batch_sequences=1",
        "training.checkpoint_every_steps=1", "model.architecture.hidden_size=128",
    )  # fmt: skip
    torn, draw = 0, random.Random(0)
    for _ in range(60):
        done, began = steps_committed(runs), time.time()
        process = start(2, corpus_folder, runs, *options)
        stop_when(process, partial(torn_since, runs, began), signal.SIGKILL, draw.random() * 0.008)
        torn += torn_since(runs, began)
        assert steps_done(runs) >= steps_committed(runs) >= done
        if torn == 20:
            break
    assert torn == 20
    again = train(2, corpus_folder, runs, *options)
    assert losses(again) == losses(train(2, corpus_folder, tmp_path / "whole", *options))


def steps_committed(runs):
    """The step of the newest complete checkpoint."""
    found = list(runs.glob("model/*/checkpoints/step-*/complete.json"))
    return max((int(p.parent.name.removeprefix("step-")) for p in found), default=0)


def torn_since(runs, began):
    """Whether a checkpoint begun after that time is there without its marker."""
    for place in runs.glob("model/*/checkpoints/step-*"):
        with suppress(FileNotFoundError):  # an older one, which is being removed
            if place.stat().st_mtime > began and not (place / checkpoints.MARKER).exists():
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(
    corpus_folder, tmp_path, stage, before, after
):
    options = (f"deepspeed={stage}", "training.weight_decay=0.1")  # so that two groups differ
    whole = train(before, corpus_folder, tmp_path / "whole", *options)
    runs = tmp_path / "moved"
    process = start(before, corpus_folder, runs, *options)
    stop_when(process, lambda: steps_done(runs) >= 7, signal.SIGKILL)
    again = train(after, corpus_folder, runs, *options)
    assert losses(again) == pytest.approx(losses(whole), abs=TRAINING)


@pytest.mark.slow
def test_the_export_of_stage_3_gives_the_engines_logits(corpus_folder, tmp_path):
    import subprocess
    import sys

    from tests.training.processes import free_port

    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
         str(free_port()), "-m", "tests.training.stage3_logits", str(tmp_path)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    exported, engine = torch.load(tmp_path / "logits.pt")
    torch.testing.assert_close(exported, engine, rtol=0, atol=0)
