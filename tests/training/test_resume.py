"""A damaged checkpoint is never opened: training goes on from the one before."""

import logging
import os
import pickle
import shutil
from dataclasses import replace

import pytest

from training import loop, open_checkpoint, resume
from training.run import run

SAVED = ("step-00000003", "step-00000006")


@pytest.fixture(scope="module")
def interrupted(toy_stage, tmp_path_factory):
    """A run that was killed with two checkpoints, and its folder when it is whole."""
    folder = tmp_path_factory.mktemp("interrupted")
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
    made = run(replace(toy_stage, runs=str(runs)))
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
    assert run(replace(toy_stage, runs=str(runs))).files == interrupted[1].files
    assert "resuming after step 3" in caplog.text


def test_without_a_whole_one_training_starts_again(interrupted, toy_stage, tmp_path, caplog):
    runs = damaged(interrupted, tmp_path, SAVED, flip)
    assert run(replace(toy_stage, runs=str(runs))).files == interrupted[1].files
    assert "resuming" not in caplog.text
    assert caplog.text.count("is damaged") == 2


def test_a_file_that_was_put_beside_is_named(interrupted, toy_stage, tmp_path, caplog):
    runs = damaged(interrupted, tmp_path, SAVED[1:],
                   lambda file: file.with_name("more.pt").write_bytes(b"x"))  # fmt: skip
    assert run(replace(toy_stage, runs=str(runs))).files == interrupted[1].files
    assert "more.pt is not what was written" in caplog.text
