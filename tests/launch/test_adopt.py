"""`python -m launch adopt`: what comes from elsewhere is whole, found again, and ready to use."""

import errno
import json
import os
import shutil

import pytest
import yaml

from contamination.core.artifacts import WrittenFiles, build_or_open, open_artifact, run_folder
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.core.files import hashed_json
from contamination.core.hashing import (
    combined_digest,
    digests_by_name,
    file_digests_of_folder,
    folder_digest,
)
from contamination.core.integrity import MANIFEST, read_manifest
from contamination.detection.models.hf_model import HFModel
from contamination.injection.corpus import open_corpus
from contamination.launch.__main__ import main
from contamination.launch.adopt import adopt
from contamination.launch.check_runs import inspect_runs
from contamination.training.models import hf_folder, model_digest
from contamination.training.trained_model import ancestry_of, open_checkpoint, open_trained
from tests.detection.golden import GOLDEN


@pytest.fixture
def model(tmp_path):
    """A Hugging Face folder of the user's."""
    shutil.copytree(GOLDEN / "target", tmp_path / "hub" / "mine")
    (tmp_path / "hub" / "mine" / ".cache").write_text("hidden")
    return tmp_path / "hub" / "mine"


@pytest.fixture
def corpus(tmp_path):
    """A finished corpus of another runs folder."""

    def make(folder):
        (folder / "sequences").mkdir()
        (folder / "sequences" / "part").write_text("x")
        (folder / "notes.txt").write_text("a record")
        (folder / "left over").touch()
        return WrittenFiles(["sequences/part"], {"tokens": 3}, ["notes.txt"])

    folder = run_folder(tmp_path / "other", "corpus", "mine", {"seed": 0}, {})
    return build_or_open(folder, {"seed": 0}, {}, make).path


def states(runs):
    return [(found.path, found.state) for found in inspect_runs(runs)]


def test_a_model_becomes_an_artefact_once(tmp_path, model, capsys):
    runs = tmp_path / "runs"
    for _ in range(2):
        assert main_with("kind=model", f"path={model}", f"runs={runs}") == 0
    (folder,) = (runs / "model").iterdir()
    assert capsys.readouterr().out == f"model: {folder}\n" * 2
    assert folder.name.startswith("mine-")
    assert states(runs) == [(folder, "whole")]
    assert file_digests_of_folder(folder / "hf") == file_digests_of_folder(model)
    assert not (folder / "hf" / ".cache").exists()
    manifest = read_manifest(folder)
    assert manifest["inputs"] == {"model": folder_digest(model)}
    assert manifest["counts"]["parameters"] == 225_600
    found = HFModel.from_path("model.path", str(folder))
    assert (found.folder, found.digest) == (folder / "hf", manifest["digest"])
    assert hf_folder("model.path", str(folder)) == str(folder / "hf")
    assert model_digest("model.path", str(folder)) == manifest["digest"]
    assert ancestry_of("model.path", str(folder)).has_been(ancestry_of("x.path", str(model)))
    with pytest.raises(ConfigError, match="cells.model is .*adopted"):
        open_trained("cells.model", folder)
    moved = model.rename(model.with_name("moved"))  # the copy needs it no more
    assert adopt("model", str(moved), str(runs)).digest == open_checkpoint(folder).digest


def main_with(*words):
    """The exit status of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["launch", "adopt", *words])
        return main()


def test_a_corpus_keeps_its_name_and_its_manifest(tmp_path, corpus):
    runs = tmp_path / "runs"
    copies = [adopt("corpus", str(corpus), str(runs)) for _ in range(2)]
    assert {copy.path for copy in copies} == {runs / "corpus" / corpus.name}
    path = copies[0].path
    files = ("config.yaml", MANIFEST, "notes.txt", "sequences/part")
    assert sorted(file_digests_of_folder(path)) == sorted(files)
    assert all((path / name).read_bytes() == (corpus / name).read_bytes() for name in files)
    assert states(runs) == [(path, "whole")]
    assert open_corpus(path).artifact == open_artifact(path, "corpus")
    renamed = corpus.rename(corpus.with_name("renamed"))
    other = adopt("corpus", str(renamed), str(runs)).path
    assert other.name == f"renamed-{copies[0].digest[:12]}"


def test_an_attempt_that_was_cut_short_is_made_whole(tmp_path, corpus, model, monkeypatch):
    runs = tmp_path / "runs"

    copyfile = shutil.copyfile

    def full(source, place):
        if place.name != "config.yaml":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
        copyfile(source, place)

    for kind, path in (("corpus", corpus), ("model", model)):
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "copyfile", full)
            with pytest.raises(DataError, match="No space left"):
                adopt(kind, str(path), str(runs))
        (left,) = (runs / kind).iterdir()
        assert (left, "unfinished") in states(runs)
        for name in ("sequences", "hf"):
            (left / name).mkdir(exist_ok=True)
            (left / name / "half").touch()
        assert adopt(kind, str(path), str(runs)).path == left
        assert (left, "whole") in states(runs)


def test_what_another_command_began_is_kept(tmp_path, corpus):
    begun = tmp_path / "runs" / "corpus" / corpus.name / "tokens"
    begun.mkdir(parents=True)
    (begun / "part").write_text("hours of work")
    with pytest.raises(ArtifactError, match="is unfinished, and was not begun by an adoption"):
        adopt("corpus", str(corpus), str(tmp_path / "runs"))
    assert (begun / "part").read_text() == "hours of work"


def test_a_runs_folder_inside_of_the_path_is_refused(tmp_path, model):
    for runs in (model, model / "runs"):
        with pytest.raises(ConfigError, match="runs is .*: give a folder that is not in path"):
            adopt("model", str(model), str(runs))


def test_what_changes_meanwhile_is_refused(tmp_path, model, monkeypatch):
    copyfile = shutil.copyfile

    def changed(source, place):
        copyfile(source, place)
        place.write_bytes(place.read_bytes() + b" ")

    monkeypatch.setattr(shutil, "copyfile", changed)
    with pytest.raises(DataError, match="mine changed while it was copied"):
        adopt("model", str(model), str(tmp_path / "runs"))


def test_what_can_not_be_adopted_is_said(tmp_path, model, corpus):
    runs = str(tmp_path / "runs")
    own = adopt("corpus", str(corpus), runs).path
    trained = adopt("model", str(model), str(tmp_path / "other")).path
    empty = tmp_path / "empty"
    empty.mkdir()
    for kind, path, error, words in [
        ("modell", model, ConfigError, "kind is 'modell'"),
        ("model", tmp_path / "nowhere", ConfigError, "no such folder"),
        ("model", "", ConfigError, "path is ''"),
        ("model", empty, ConfigError, "^path is .*: it has neither manifest.json nor config.json"),
        ("corpus", empty, ConfigError, "no manifest.json"),
        ("corpus", model, ConfigError, "no manifest.json"),
        ("model", corpus, ArtifactError, "contains a corpus"),
        ("corpus", own, ConfigError, "an artefact of this runs folder already"),
        ("model", trained / "hf", ConfigError, f"a part of the artefact {trained}"),
    ]:
        with pytest.raises(error, match=words):
            adopt(kind, str(path), runs)
    assert len(list(tmp_path.glob("runs/*/*"))) == 1


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", "{", "can't be loaded as a AutoTokenizer"),
        ("tokenizer.json", None, "can't be loaded as a AutoTokenizer"),
        ("model.safetensors", None, "can't be loaded as a AutoModelForCausalLM"),
        ("config.json", {"num_hidden_layers": 3}, "its weights lack model.layers.2"),
    ],
    ids=str,
)
def test_a_folder_that_is_no_model_is_refused(tmp_path, model, file, content, words):
    place = model / file
    if isinstance(content, dict):
        content = json.dumps({**json.loads(place.read_text()), **content})
    place.unlink() if content is None else place.write_text(content)
    with pytest.raises(ConfigError, match=f"^path is .*{words}"):
        adopt("model", str(model), str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_another_one_of_the_same_name_is_kept(tmp_path, corpus):
    def make(folder):
        (folder / "x").write_text("other")
        return WrittenFiles(["x"])

    build_or_open(tmp_path / "runs" / "corpus" / corpus.name, {}, {}, make)
    with pytest.raises(ArtifactError, match="exists already, with other content"):
        adopt("corpus", str(corpus), str(tmp_path / "runs"))
    (corpus / "sequences" / "part").write_text("y")
    with pytest.raises(ArtifactError, match="damaged: sequences/part"):
        adopt("corpus", str(corpus), str(tmp_path / "third"))


@pytest.mark.parametrize("name", ["../../../pwn.txt", "/etc/hostname", "sequences/../../../x"])
def test_a_manifests_names_lead_nowhere_else(tmp_path, corpus, capsys, name):
    manifest = read_manifest(corpus)
    (tmp_path / "pwn.txt").write_text("own\n")
    content = (tmp_path / "pwn.txt").read_bytes()
    digest = digests_by_name({"": tmp_path / "pwn.txt"})[""]
    files, sizes = (
        {**manifest["files"], name: digest},
        {**manifest["bytes"], name: len(content)},
    )
    made = {**manifest, "files": files, "bytes": sizes, "digest": combined_digest(files)}
    (corpus / MANIFEST).write_text(hashed_json(made))
    before = {*tmp_path.rglob("*")}
    assert main_with("kind=corpus", f"path={corpus}", f"runs={tmp_path}/own/runs") == 2
    said = capsys.readouterr().err
    assert f"error: {corpus} is damaged: {MANIFEST} can't be used: it lists {name!r}" in said
    assert {*tmp_path.rglob("*")} - before <= {tmp_path / "own", tmp_path / "own" / "runs"}


def test_a_link_out_of_the_folder_is_not_copied(tmp_path, corpus, capsys):
    (tmp_path / "secret").write_text("x")
    (corpus / "sequences" / "part").unlink()
    (corpus / "sequences" / "part").symlink_to(tmp_path / "secret")
    assert main_with("kind=corpus", f"path={corpus}", f"runs={tmp_path}/runs") == 2
    assert "sequences/part is a link to a file outside the folder" in capsys.readouterr().err
    assert not [*(tmp_path / "runs").rglob("part")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("modell", "MODEL"), "kind is 'modell': give one of model, corpus."),
        (
            ("model", "gone"),
            "path is 'gone': there is no such folder. A hub id needs none: give it as model.path.",
        ),
        (
            ("corpus", "MODEL"),
            "path is '{}': it has no manifest.json. Give a finished corpus folder of another runs "
            "folder; documents become one with python -m injection corpus=local_jsonl "
            "corpus.paths=….",
        ),
        (("model", "MODEL", ""), "runs is '': give a folder that is not in path."),
        (
            ("model", "MODEL", "/dev/null/runs"),
            "runs is '/dev/null/runs': /dev/null is not a folder. Give another folder.",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_remedy(tmp_path, model, words, message):
    kind, path, runs = (*words, str(tmp_path / "runs"))[:3]
    with pytest.raises(ConfigError) as raised:
        adopt(kind, str(model) if path == "MODEL" else path, runs)
    assert str(raised.value) == message.format(model)


def test_an_adopted_model_names_its_source_and_a_part_its_whole(tmp_path, model):
    adopted = adopt("model", str(model), str(tmp_path / "runs"))
    config = yaml.safe_load((adopted.path / "config.yaml").read_text())
    assert config == {"adopted_from": str(model)}
    assert adopted.counts["parameters"] == 225_600
    assert [*adopted.files] == sorted(f"hf/{name}" for name in file_digests_of_folder(model))
    with pytest.raises(ConfigError) as raised:
        adopt("model", str(adopted.path / "hf"), str(tmp_path / "other"))
    assert str(raised.value) == (
        f"path is '{adopted.path / 'hf'}': it is a part of the artefact {adopted.path}: give that "
        "folder."
    )
    with pytest.raises(ConfigError) as raised:
        adopt("model", str(adopted.path), str(tmp_path / "runs"))
    assert str(raised.value) == (
        f"path is '{adopted.path}': it is an artefact of this runs folder already: use it as it is."
    )


def test_a_begun_or_another_folder_of_the_same_name_is_said_in_full(tmp_path, corpus):
    folder = tmp_path / "runs" / "corpus" / corpus.name
    folder.mkdir(parents=True)
    assert adopt("corpus", str(corpus), str(tmp_path / "runs")).path == folder  # it was empty
    begun = tmp_path / "more" / "corpus" / corpus.name
    begun.mkdir(parents=True)
    (begun / "config.yaml").touch()
    with pytest.raises(ArtifactError) as raised:
        adopt("corpus", str(corpus), str(tmp_path / "more"))
    assert str(raised.value) == (
        f"{begun} exists, is unfinished, and was not begun by an adoption: finish it by its own "
        "command, or remove it, or give another runs."
    )
    (begun / ".adopting").touch()
    (begun / "half").touch()
    assert adopt("corpus", str(corpus), str(tmp_path / "more")).path == begun
    assert not (begun / "half").exists()
    assert not (begun / ".adopting").exists()
    existing = tmp_path / "third" / "corpus" / corpus.name

    def make(folder):
        (folder / "x").write_text("other")
        return WrittenFiles(["x"])

    own_digest = read_manifest(corpus)["digest"]
    existing_digest = build_or_open(existing, {}, {}, make).digest
    with pytest.raises(ArtifactError) as raised:
        adopt("corpus", str(corpus), str(tmp_path / "third"))
    assert str(raised.value) == (
        f"{existing} exists already, with other content than {corpus} (its digest is "
        f"{existing_digest[:12]}…, not {own_digest[:12]}…): use that one, or give another runs."
    )
