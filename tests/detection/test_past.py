"""A reference that is the target's own past is called an upper bound, wherever it comes from."""

import json
import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    started_or_resumed_folder,
    write_manifest,
)
from contamination.core.errors import ArtifactError
from contamination.core.hashing import folder_digest
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.training.trained_model import RANDOM_WEIGHTS, ancestry_of
from tests.detection.conftest import MEMORISED, UNSEEN

METHODS = {
    name: {"_target_": f"contamination.detection.methods.{name}.{name.capitalize()}"}
    for name in ("loss", "reference")
}


@pytest.fixture
def weights(toy_folders):
    """Writes a model like a toy one, with weights that `number` sets apart."""

    def write(folder, like, number):
        shutil.copytree(toy_folders[like], folder)
        file = folder / "model.safetensors"
        tensors = load_file(file)
        tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1e-4 * number
        save_file(tensors, file, metadata={"format": "pt"})

    return write


@pytest.fixture
def trained(tmp_path, weights):
    """Makes a finished training's folder: its weights, and what its manifest says of its start."""
    made = []

    def make(name, like, start=None, exports=(), recorded=True):
        folder = tmp_path / "runs" / "model" / name
        made.append(name)
        number = 10 * len(made)
        weights(folder / "hf", like, number)
        for step in exports:
            weights(folder / "exports" / f"step-{step:08d}", "reference", number + step / 100)
        before = ancestry_of("model.path", str(start)) if start else RANDOM_WEIGHTS
        files = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
        counts = {"steps": 40, **(before.manifest_entries() if recorded else {})}
        with started_or_resumed_folder(folder, {}):
            write_manifest(
                folder, {"model": digest_of(start)} if start else {}, WrittenFiles(files, counts)
            )
        return folder

    return make


def digest_of(start):
    """What a training records of its start among its inputs."""
    manifest = start / "manifest.json"
    return json.loads(manifest.read_text())["digest"] if manifest.exists() else folder_digest(start)


@pytest.fixture
def methods(tmp_path):
    """The names under which the methods' scores of a target against a reference are stored."""
    file = tmp_path / "x.jsonl"
    file.write_text("".join(json.dumps({"text": t}) + "\n" for t in (MEMORISED, UNSEEN)))

    def score(target, reference, trusted=False):
        stage = DetectionStage(
            runs=str(tmp_path / "runs"), method=METHODS, examples=ExamplesConfig(str(file)),
            model=ScoredModelConfig(str(target)), detection=DetectionConfig(device="cpu"),
            reference=ReferenceConfig(str(reference), trusted),
        )  # fmt: skip
        return {*open_scores(run(stage).path).table["method"]} - {"loss"}

    return score


UPPER, FAIR = {"reference_upper_bound"}, {"reference"}


def test_what_the_target_was_trained_from_is_an_upper_bound(trained, methods, caplog):
    first = trained("first", "reference", exports=(10,))
    second = trained("second", "reference", first)
    target = trained("target", "target", second, exports=(10,))
    step = "exports/step-00000010"
    for past in (first, first / "hf", first / step, second, target, target / "hf", target / step):
        assert methods(target, past) == UPPER, past
    assert "reference.path is the target's own past, which no attacker has" in caplog.text
    for own in (target / "hf", target / step):
        assert methods(own, first) == UPPER, own


def test_a_deleted_folder_on_the_way_hides_nothing(trained, methods):
    first = trained("first", "reference")
    second = trained("second", "reference", first)
    target = trained("target", "target", second)
    shutil.rmtree(second)
    assert methods(target, first) == UPPER


def test_a_copy_is_known_by_its_weights(trained, methods, tmp_path, toy_folders):
    base = trained("base", "reference")
    target = trained("target", "target", base)
    copy = shutil.copytree(base / "hf", tmp_path / "renamed")
    (copy / "README.md").write_text("A model of my own.")
    assert methods(target, copy) == UPPER
    from_copy = trained("from-copy", "target", copy)
    assert methods(from_copy, base) == UPPER
    shutil.copytree(base, tmp_path / "runs" / "model" / "moved")
    assert methods(target, tmp_path / "runs" / "model" / "moved") == UPPER
    assert methods(toy_folders["target"], toy_folders["target"]) == UPPER


def test_files_that_are_called_otherwise_or_stand_beside_hide_nothing(trained, methods, tmp_path):
    base = trained("base", "reference")
    target = trained("target", "target", base)
    copy = shutil.copytree(base / "hf", tmp_path / "copy")
    (copy / "model.safetensors").rename(copy / "model-00001-of-00001.safetensors")
    index = {
        "metadata": {},
        "weight_map": dict.fromkeys(names_in(copy), "model-00001-of-00001.safetensors"),
    }
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert methods(target, copy) == UPPER
    more = shutil.copytree(base / "hf", tmp_path / "more")
    (more / "original").mkdir()
    save_file({"a": torch.ones(2)}, more / "original" / "consolidated.safetensors")
    assert methods(target, more) == UPPER


def names_in(folder):
    return load_file(folder / "model-00001-of-00001.safetensors")


def test_what_is_unknown_of_the_start_stays_unknown(trained, methods, toy_folders, caplog):
    target = trained("target", "target", toy_folders["target"])
    later = trained("later", "target", target)
    other = trained("other", "reference")
    with caplog.at_level(logging.INFO):
        assert methods(later, other) == FAIR
    assert f"It is not recorded what model.path ({later / 'hf'}) was trained" in caplog.text


def test_the_start_of_an_earlier_version_is_known_by_its_inputs(trained, methods):
    base = trained("base", "reference")
    assert methods(trained("target", "target", base, recorded=False), base) == UPPER
    other = trained("other", "target", base / "hf", recorded=False)
    assert methods(other, base) == UPPER


def test_what_began_at_a_step_has_not_been_the_later_ones(trained, methods):
    first = trained("first", "reference", exports=(10, 20, 30))
    target = trained("target", "target", first / "exports" / "step-00000020")
    known = [methods(target, first / f"exports/step-000000{n}") for n in (10, 20, 30)]
    assert known == [UPPER, UPPER, FAIR]
    assert methods(target, first) == FAIR
    assert methods(first / "exports" / "step-00000020", first / "exports/step-00000010") == UPPER
    assert methods(first / "exports" / "step-00000010", first / "exports/step-00000020") == FAIR


def test_another_model_is_a_fair_reference(trained, methods, caplog):
    base = trained("base", "reference")
    other = trained("other", "reference")
    target = trained("target", "target", base)
    with caplog.at_level(logging.INFO):
        assert methods(target, other) == FAIR
        assert methods(base, target) == FAIR
    assert "no attacker has" not in caplog.text
    assert "Nothing records" not in caplog.text


def test_that_nothing_is_known_of_a_plain_folder_is_said(methods, toy_folders, caplog):
    with caplog.at_level(logging.INFO):
        assert methods(toy_folders["target"], toy_folders["reference"]) == FAIR
    assert (
        f"It is not recorded what model.path ({toy_folders['target']}) was trained" in caplog.text
    )


def test_a_hub_model_is_known_by_its_name(trained, monkeypatch):
    monkeypatch.setattr(f"{__name__}.digest_of", lambda start: "its commit's")
    target = ancestry_of("model.path", str(trained("target", "target", "org/m")))
    base = ancestry_of("reference.path", "org/m")
    assert target.has_been(base)
    assert not base.has_been(target)
    assert not target.has_been(ancestry_of("reference.path", "org/other"))


def test_a_models_own_code_does_not_hide_it(trained, methods):
    base = trained("base", "reference")
    assert methods(trained("target", "target", base), base, trusted=True) == UPPER


def test_a_gguf_file_is_known_by_its_bytes(tmp_path):
    files = [tmp_path / name for name in ("model.gguf", "copy.gguf", "other.gguf")]
    for file, content in zip(files, (b"GGUF one", b"GGUF one", b"GGUF two"), strict=True):
        file.write_bytes(content)
    model, copy, other = (ancestry_of("reference.path", str(file)) for file in files)
    assert model.has_been(copy)
    assert not model.has_been(other)


@pytest.mark.parametrize(
    "counts", [{"past": "abc"}, {"past": [1]}, {"past": {"a": 1}}, {"past_is_whole": "yes"}]
)
def test_a_past_of_another_form_is_damage(tmp_path, counts):
    def made(folder):
        (folder / "hf").mkdir()
        (folder / "hf" / "config.json").write_text("{}")
        return WrittenFiles(["hf/config.json"], counts)

    folder = build_or_open(tmp_path / "runs" / "model" / "a-1", {}, {}, made).path
    (name,) = counts
    with pytest.raises(ArtifactError, match=rf"manifest.json counts\.{name}\S* is "):
        ancestry_of("model.path", str(folder))
