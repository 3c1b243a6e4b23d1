"""A reference that is the target's own past is called an upper bound, wherever it comes from."""

import json
import shutil

import pytest
import yaml

from core.artifacts import MANIFEST, SCHEMA, folder_digest
from detection import open_scores
from detection.config import (
    DetectionConfig,
    DetectionStage,
    ExamplesConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from detection.run import run
from detection.scored_model import ScoredModel, open_model

from .conftest import MEMORISED, UNSEEN

METHODS = {
    name: {"_target_": f"detection.methods.{name}.{name.capitalize()}"}
    for name in ("loss", "reference")
}


@pytest.fixture
def trained(tmp_path, toy_folders):
    """Makes a finished training's folder: its weights, and what it started from."""

    def make(name, weights, start=None, path=None, exports=()):
        folder = tmp_path / "runs" / "model" / name
        shutil.copytree(toy_folders[weights], folder / "hf")
        for step in exports:
            export = folder / "exports" / f"step-{step:08d}"
            shutil.copytree(toy_folders["reference"], export)
            (export / "README").write_text(str(step))  # as their weights would differ
        manifest = {"kind": "model", "schema": SCHEMA, "digest": f"digest of {name}",
                    "inputs": {"model": start} if start else {}, "counts": {"steps": 40},
                    "files": {}}  # fmt: skip
        (folder / "config.yaml").write_text(yaml.safe_dump({"model": {"path": path and str(path)}}))
        (folder / MANIFEST).write_text(json.dumps(manifest))
        return folder

    return make


@pytest.fixture
def methods(tmp_path):
    """The names under which the methods' scores of a target against a reference are stored."""
    file = tmp_path / "x.jsonl"
    file.write_text("".join(json.dumps({"text": t}) + "\n" for t in (MEMORISED, UNSEEN)))

    def score(target, reference):
        stage = DetectionStage(
            runs=str(tmp_path / "runs"), method=METHODS, examples=ExamplesConfig(str(file)),
            model=ScoredModelConfig(str(target)), reference=ReferenceConfig(str(reference)),
            detection=DetectionConfig(device="cpu"),
        )  # fmt: skip
        return {*open_scores(run(stage).path).table["method"]} - {"loss"}

    return score


UPPER, FAIR = {"reference_upper_bound"}, {"reference"}


def test_what_the_target_was_trained_from_is_an_upper_bound(trained, methods, caplog):
    first = trained("first", "reference")
    second = trained("second", "reference", "digest of first", first)
    target = trained("target", "target", "digest of second", second, exports=(10,))
    for past in (first, second, target, target / "exports" / "step-00000010"):
        assert methods(target, past) == UPPER
    assert "reference.path is the target's own past, which no attacker has" in caplog.text
    assert methods(target / "exports" / "step-00000010", first) == UPPER
    shutil.rmtree(second)
    assert methods(target, first) == FAIR  # the way there is lost


def test_a_plain_folder_that_the_target_was_trained_from_is_one_too(trained, methods, toy_folders):
    base = toy_folders["reference"]
    target = trained("target", "target", folder_digest(base), base)
    assert methods(target, base) == UPPER
    assert methods(toy_folders["target"], toy_folders["target"]) == UPPER


def test_another_model_is_a_fair_reference(trained, methods, toy_folders, caplog):
    base = trained("base", "reference")
    other = trained("other", "reference")
    target = trained("target", "target", "digest of base", base)
    assert methods(target, other) == FAIR
    assert methods(toy_folders["target"], toy_folders["reference"]) == FAIR
    assert "no attacker has" not in caplog.text


def test_a_hub_model_is_known_by_its_name(tmp_path):
    base = ScoredModel("reference.path", tmp_path, "commit", "m", known_as="hub:org/m")
    target = ScoredModel("model.path", tmp_path, "x", "t", started_from=("hub:org/m",))
    assert target.has_been(base)
    assert not base.has_been(target)


def test_a_step_after_the_targets_is_not_its_past(trained):
    target = trained("target", "target", exports=(10, 20))
    steps = [open_model("model.path", str(target / f"exports/step-000000{n}")) for n in (10, 20)]
    assert steps[1].has_been(steps[0])
    assert not steps[0].has_been(steps[1])


def test_a_models_own_code_does_not_hide_it(trained):
    base = trained("base", "reference")
    target = open_model("model.path", str(trained("target", "target", "digest of base", base)))
    assert target.has_been(open_model("reference.path", str(base), trust_remote_code=True))
