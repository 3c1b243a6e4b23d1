"""The learning rates of the steps, beside those of transformers."""

from dataclasses import replace

import pytest
import torch
from transformers import get_scheduler

from contamination.core.errors import ConfigError
from contamination.training.config import SCHEDULES, TrainingConfig
from contamination.training.deepspeed_engine import share_of_peak_rate
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint


def shares(schedule, warmup, steps):
    config = TrainingConfig(schedule=schedule, warmup_steps=warmup)
    return [share_of_peak_rate(config, step, steps) for step in range(1, steps + 1)]


def transformers_shares(schedule, warmup, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_scheduler(schedule, optimizer, warmup, steps)
    found = []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 7), (1, 2), (3, 9), (10, 11), (10, 824)])
def test_no_step_is_without_a_learning_rate(schedule, warmup, steps):
    found = shares(schedule, warmup, steps)
    assert min(found) > 0
    assert max(found) == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 4])
def test_only_the_warm_up_differs_from_transformers(schedule, warmup):
    ours, theirs = shares(schedule, warmup, 20), transformers_shares(schedule, warmup, 20)
    assert ours[warmup:] == pytest.approx(theirs[warmup:], abs=1e-12)
    if schedule != "constant":  # which has none
        assert ours[:warmup] == pytest.approx(theirs[1 : warmup + 1], abs=1e-12)  # a step earlier


@pytest.mark.parametrize("schedule", ["constant_with_warmup", "linear", "cosine"])
def test_a_warm_up_as_long_as_the_training_is_refused(change, schedule):
    said = r"training.warmup_steps is 12, but the training has 12 steps of 4 sequences: lower it"
    with pytest.raises(ConfigError, match=said):
        run(change(warmup_steps=12, schedule=schedule))


def test_a_constant_rate_has_no_warm_up(change, tmp_path):
    stage = replace(change(warmup_steps=99, schedule="constant"), runs=str(tmp_path))
    assert open_checkpoint(run(stage).path).metrics["learning_rate"].tolist() == [0.01] * 12
