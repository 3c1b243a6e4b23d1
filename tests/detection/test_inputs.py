"""What scores are made of is read once, and names their folder by its content."""

import json
import os
import shutil
import time

import pytest
from safetensors.torch import load_file, save_file

from contamination.core import hashing as hashing_module
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.run import run
from tests.detection.conftest import MEMORISED, UNSEEN

METHODS = {
    name: {"_target_": f"contamination.detection.methods.{name}.{kind}"}
    for name, kind in (("loss", "Loss"), ("reference", "Reference"), ("recall", "Recall"))
}


@pytest.fixture
def stage(toy_folders, tmp_path):
    for role in ("target", "reference"):
        shutil.copytree(toy_folders[role], tmp_path / role)
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": 1}) + "\n" for text in (MEMORISED, UNSEEN))
    )
    (tmp_path / "prefix.txt").write_text("Some words on a bridge.\n" * 12)
    return DetectionStage(
        runs=str(tmp_path / "runs"), method=METHODS, detection=DetectionConfig(device="cpu"),
        examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
        model=ScoredModelConfig(str(tmp_path / "target")),
        reference=ReferenceConfig(str(tmp_path / "reference")),
        prefix=PrefixConfig(str(tmp_path / "prefix.txt")),
    )  # fmt: skip


def rewrite(path, change):
    """Other content of the same size and, as far as a program can set it, the same time."""
    was = path.stat()
    change(path)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_size == was.st_size


def other_weights(path):
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1e-3
    save_file(tensors, path, metadata={"format": "pt"})


def other_words(path):
    path.write_text(path.read_text().replace("bridge", "Bridge"))


def other_texts(path):
    path.write_text(path.read_text().replace(UNSEEN, UNSEEN.swapcase()))


@pytest.mark.parametrize(
    ("file", "change", "name"),
    [
        ("target/model.safetensors", other_weights, "target"),
        ("reference/model.safetensors", other_weights, "reference"),
        ("prefix.txt", other_words, "prefix_texts"),
        ("texts.jsonl", other_texts, "examples"),
    ],
)
def test_another_content_gives_other_scores(stage, tmp_path, file, change, name):
    before = run(stage)
    os.utime(tmp_path / file, ns=(0, 0))
    assert run(stage).path == before.path  # only touched
    rewrite(tmp_path / file, change)
    after = run(stage)
    assert after.path != before.path
    assert {n for n in after.inputs if after.inputs[n] != before.inputs[n]} >= {name}


def test_labels_are_no_part_of_scores(stage, tmp_path):
    before = run(stage)
    texts = tmp_path / "texts.jsonl"
    texts.write_text(texts.read_text().replace('"label": 1', '"label": 0'))
    assert run(stage).path == before.path


def test_each_models_weights_are_read_once(stage, monkeypatch, tmp_path):
    """For their digest and for the model's past, in one process and in the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashing_module, "MIN_CACHED_BYTES", 10_000)
    now, read, hashing = time.time_ns, [], hashing_module._hash_file
    monkeypatch.setattr(hashing_module.time, "time_ns", lambda: now() + 10**10)

    def counted(path, *options):
        read.append(str(path))
        return hashing(path, *options)

    monkeypatch.setattr(hashing_module, "_hash_file", counted)
    for _ in range(2):
        run(stage)
    weights = [str(tmp_path / role / "model.safetensors") for role in ("target", "reference")]
    assert sorted(path for path in read if path in weights) == sorted(weights)
