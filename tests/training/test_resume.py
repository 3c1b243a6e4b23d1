"""A damaged checkpoint is never opened: training goes on from the one before."""

import json
import logging
import os
import pickle
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from core.artifacts import MANIFEST
from core.world import World
from training import loop, open_checkpoint, resume
from training.run import run

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
    real = loop._guard

    def killed(loss, norm, step, rows, place):
        if step == 8:
            raise KeyboardInterrupt
        real(loss, norm, step, rows, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_guard", killed)
        with pytest.raises(KeyboardInterrupt):
            run(replace(toy_stage, runs=str(folder / "killed")))
    return folder / "killed", whole


@pytest.fixture(autouse=True)
def _all_is_logged(caplog):
    caplog.set_level(logging.INFO)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def zero(file):
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        stream.write(bytes(min(4096, file.stat().st_size // 2)))


class Planted:
    """Makes a file where it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


DAMAGE = {
    "a bit": flip,
    "zeros": zero,
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "emptied": lambda file: os.truncate(file, 0),
    "deleted": lambda file: file.unlink(),
    "planted": lambda file: file.write_bytes(pickle.dumps(Planted(file.parents[4] / "ran"))),
}


def damaged(interrupted, tmp_path, steps, change, pattern="*.pt"):
    """A copy of the interrupted run in which one file of each of these checkpoints is damaged."""
    runs = shutil.copytree(interrupted[0], tmp_path / "runs")
    for step in steps:
        (file,) = sorted(runs.glob(f"model/*/checkpoints/{step}/{pattern}"))[:1]
        change(file)
    return runs


@pytest.mark.parametrize("kind", DAMAGE)
def test_the_checkpoint_before_a_damaged_one_is_used(
    interrupted, toy_stage, tmp_path, caplog, kind
):
    runs = damaged(interrupted, tmp_path, SAVED[1:], DAMAGE[kind])
    made = run(replace(exporting(toy_stage), runs=str(runs)))
    assert made.files == interrupted[1].files
    assert "resuming after step 3" in caplog.text
    assert f"{SAVED[1]} is damaged" in caplog.text
    assert not (runs / "ran").exists()


@pytest.mark.parametrize("content", ["", "{", '{"step": 6}', "[]"])
def test_a_damaged_marker_is_a_damaged_checkpoint(
    interrupted, toy_stage, tmp_path, caplog, content
):
    runs = damaged(interrupted, tmp_path, SAVED[1:], lambda file: file.write_text(content),
                   resume.MARKER)  # fmt: skip
    assert run(replace(exporting(toy_stage), runs=str(runs))).files == interrupted[1].files
    assert "resuming after step 3" in caplog.text


def test_without_a_whole_one_training_starts_again(interrupted, toy_stage, tmp_path, caplog):
    runs = damaged(interrupted, tmp_path, SAVED, flip)
    assert run(replace(exporting(toy_stage), runs=str(runs))).files == interrupted[1].files
    assert "resuming" not in caplog.text
    assert caplog.text.count("is damaged") == 2


def test_a_file_that_was_put_beside_is_named(interrupted, toy_stage, tmp_path, caplog):
    runs = damaged(interrupted, tmp_path, SAVED[1:],
                   lambda file: file.with_name("more.pt").write_bytes(b"x"))  # fmt: skip
    assert run(replace(exporting(toy_stage), runs=str(runs))).files == interrupted[1].files
    assert "more.pt is not what was written" in caplog.text


@pytest.mark.parametrize("kind", ["a bit", "truncated", "deleted"])
@pytest.mark.parametrize(
    ("file", "resumed"),
    [("exports/step-00000005/model.safetensors", "resuming after step 3"),
     ("exports/step-00000003/config.json", None), ("metrics.jsonl", "")],
)  # fmt: skip
def test_a_damaged_export_or_record_is_made_again(
    interrupted, toy_stage, tmp_path, caplog, file, kind, resumed
):
    runs = shutil.copytree(interrupted[0], tmp_path / "runs")
    (place,) = runs.glob(f"model/*/{file}")
    if kind == "a bit":
        content = bytearray(place.read_bytes())
        content[len(content) // 8] ^= 1  # of a record: in the lines before the first checkpoint
        place.write_bytes(content)
    else:
        DAMAGE[kind](place)
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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
@pytest.mark.parametrize(("free", "raised"), [(0, "No space left"), (2**30, "inline_container")])
def test_torchs_error_on_a_full_disk_is_the_disks(tmp_path, monkeypatch, free, raised):
    class Engine:
        def save_checkpoint(self, *_, **__):
            torch.save({"weights": torch.zeros(10**6)}, "/dev/full")

    world = World(0, 1, torch.device("cpu"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises((OSError, RuntimeError), match=raised):
        resume.save(Engine(), tmp_path, resume.next_save(tmp_path, 3, world, {}), 1, world)
