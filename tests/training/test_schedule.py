"""The learning rates of the steps, beside those of transformers."""

from dataclasses import replace

import pytest
import torch
from transformers import get_scheduler

from contamination.core.errors import ConfigError
from contamination.training.config import SCHEDULES, TrainingConfig
from contamination.training.run import run
from contamination.training.schedules import learning_rate_of_step, share_of_peak_rate
from contamination.training.trained_model import open_checkpoint


def shares(schedule, warmup, steps, decay=1):
    config = TrainingConfig(schedule=schedule, warmup_steps=warmup, decay_steps=decay)
    return [share_of_peak_rate(config, step, steps) for step in range(1, steps + 1)]


def transformers_shares(schedule, warmup, steps, decay):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    options = None
    if schedule == "wsd":
        schedule, options = (
            "warmup_stable_decay",
            {"num_decay_steps": decay, "decay_type": "linear"},
        )
    scheduler = get_scheduler(schedule, optimizer, warmup, steps, scheduler_specific_kwargs=options)
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
    ours, theirs = shares(schedule, warmup, 20, 5), transformers_shares(schedule, warmup, 20, 5)
    assert ours[warmup:] == pytest.approx(theirs[warmup:], abs=1e-12)
    if schedule != "constant":  # which has none
        assert ours[:warmup] == pytest.approx(theirs[1 : warmup + 1], abs=1e-12)  # a step earlier


@pytest.mark.parametrize("schedule", ["constant_with_warmup", "linear", "cosine", "wsd"])
def test_a_warm_up_as_long_as_the_training_is_refused(change, schedule):
    said = r"training.warmup_steps is 12, but the training has 12 steps of 4 sequences: lower it"
    with pytest.raises(ConfigError, match=said):
        run(change(warmup_steps=12, schedule=schedule))


def test_a_constant_rate_has_no_warm_up(change, tmp_path):
    stage = replace(change(warmup_steps=99, schedule="constant"), runs=str(tmp_path))
    assert open_checkpoint(run(stage).path).metrics["learning_rate"].tolist() == [0.01] * 12


def test_a_decay_longer_than_what_follows_the_warm_up_is_refused(change):
    said = r"training.decay_steps is 11, but 10 of the training's 12 steps follow the warm-up"
    with pytest.raises(ConfigError, match=said):
        run(change(schedule="wsd", decay_steps=11))


def test_the_stable_phase_does_not_depend_on_the_length_of_the_training():
    short, long = (shares("wsd", 3, steps, decay=4) for steps in (12, 30))
    assert short[:8] == long[:8] == [1 / 3, 2 / 3, *[1.0] * 6]
    assert short[8:] == long[26:] == [1, 0.75, 0.5, 0.25]


def test_the_tail_has_a_rate_and_a_weight_decay_of_its_own(change, tmp_path):
    fields = {"schedule": "wsd", "warmup_steps": 2, "decay_steps": 2, "tail_after_steps": 6}
    stage = change(**fields, tail_learning_rate=2e-3, tail_weight_decay=0.5)
    config, expected = stage.training, [5e-3, *[1e-2] * 5, *[2e-3] * 5, 1e-3]
    assert [learning_rate_of_step(config, s, 12) for s in range(1, 13)] == pytest.approx(expected)
    trained = open_checkpoint(run(replace(stage, runs=str(tmp_path))).path)
    assert trained.metrics["learning_rate"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"tail_after_steps": 12}, "training.tail_after_steps is 12, but the training has 12 steps"),
     ({"tail_learning_rate": 1e-3}, "training.tail_learning_rate is 0.001: say where the tail"),
     ({"tail_weight_decay": 0.1}, "training.tail_weight_decay is 0.1: say where the tail")],
)  # fmt: skip
def test_a_tail_that_makes_no_sense_is_refused(change, fields, said):
    with pytest.raises(ConfigError, match=said):
        run(change(**fields))
