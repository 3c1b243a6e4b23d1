"""A damaged checkpoint is never opened: training resumes from the one before."""

import json
import logging
import os
import pickle
import shutil
from dataclasses import replace

import pytest

from contamination.core.integrity import MANIFEST
from contamination.training import loop
from contamination.training.run import run
from contamination.training.trained_model import open_checkpoint

SAVED = ("step-00000003", "step-00000006")


def exporting(stage):
    """The stage with exports as the first checkpoint is saved, and between the two."""
    return replace(stage, training=replace(stage.training, export_steps=[3, 5]))


@pytest.fixture(scope="module")
def interrupted(toy_stage, tmp_path_factory):
    """A run that was killed with two checkpoints, and its folder when it is whole."""
    folder = tmp_path_factory.mktemp("interrupted")
    toy_stage = exporting(toy_stage)
    whole = open_checkpoint(run(replace(toy_stage, runs=str(folder / "whole"))).path).artifact
    real = loop._check_finite

    def killed(loss, norm, step, rows, place):
        if step == 8:
            raise KeyboardInterrupt
        real(loss, norm, step, rows, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_check_finite", killed)
        with pytest.raises(KeyboardInterrupt):
            run(replace(toy_stage, runs=str(folder / "killed")))
    return folder / "killed", whole


@pytest.fixture(autouse=True)
def _all_is_logged(caplog):
    caplog.set_level(logging.INFO)


def flip(file, part=2):
    content = bytearray(file.read_bytes())
    content[len(content) // part] ^= 1
    file.write_bytes(content)


class Planted:
    """Makes a file where it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def plant(file):
    file.write_bytes(pickle.dumps(Planted(file.parents[4] / "ran")))


def damaged(interrupted, tmp_path, steps, change):
    """A copy of the interrupted run in which one file of each of these checkpoints is damaged."""
    runs = shutil.copytree(interrupted[0], tmp_path / "runs")
    for step in steps:
        (file,) = sorted(runs.glob(f"model/*/checkpoints/{step}/*.pt"))[:1]
        change(file)
    return runs


@pytest.mark.parametrize("damage", [flip, plant])
def test_the_checkpoint_before_a_damaged_one_is_used(
    interrupted, toy_stage, tmp_path, caplog, damage
):
    runs = damaged(interrupted, tmp_path, SAVED[1:], damage)
    made = run(replace(exporting(toy_stage), runs=str(runs)))
    assert made.files == interrupted[1].files
    assert "resuming after step 3" in caplog.text
    assert f"{SAVED[1]} is damaged" in caplog.text
    assert not (runs / "ran").exists()


def test_without_a_whole_one_training_starts_again(interrupted, toy_stage, tmp_path, caplog):
    runs = damaged(interrupted, tmp_path, SAVED, flip)
    assert run(replace(exporting(toy_stage), runs=str(runs))).files == interrupted[1].files
    assert "resuming" not in caplog.text
    assert caplog.text.count("is damaged") == 2


@pytest.mark.parametrize(
    ("file", "resumed"),
    [("exports/step-00000005/model.safetensors", "resuming after step 3"),
     ("exports/step-00000003/config.json", None), ("metrics.jsonl", "")],
)  # fmt: skip
def test_a_damaged_export_or_record_is_made_again(
    interrupted, toy_stage, tmp_path, caplog, file, resumed
):
    runs = shutil.copytree(interrupted[0], tmp_path / "runs")
    (place,) = runs.glob(f"model/*/{file}")
    flip(place, 8)  # of a record: in the lines before the first checkpoint
    made = run(replace(exporting(toy_stage), runs=str(runs)))
    assert made.files == interrupted[1].files
    assert losses(made.path) == losses(interrupted[1].path)
    assert f"{file} is " in caplog.text
    assert "resuming" not in caplog.text if resumed is None else resumed in caplog.text


def losses(folder):
    """Each step's loss, which the record holds."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines]


@pytest.mark.parametrize("file", ["hf/model.safetensors", "exports/step-00000005/config.json"])
def test_without_a_manifest_nothing_of_the_model_is_taken_over(
    interrupted, toy_stage, tmp_path, file
):
    folder = shutil.copytree(interrupted[1].path, tmp_path / "model" / interrupted[1].path.name)
    (folder / MANIFEST).unlink()
    flip(folder / file)
    made = run(replace(exporting(toy_stage), runs=str(tmp_path)))
    assert made.files == interrupted[1].files
