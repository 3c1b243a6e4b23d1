"""The command: what it makes, what it refuses, how it ends."""

import logging
import shutil
import sys

import pytest

from core.artifacts import Built, commit
from core.errors import ArtifactError, ConfigError, DataError, StoppedError
from injection.__main__ import main
from injection.export.olmo import Olmo
from injection.export.run import ExportStage, export, open_export

from . import conftest
from .conftest import node, toy_corpus


@pytest.fixture
def call(monkeypatch, capfd):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["injection", *map(str, words)])
        return main(), capfd.readouterr()

    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield run
    root.handlers[:], root.level = before, level  # Hydra's go to this test's standard error


def test_the_command_makes_an_export_once_and_verify_proves_it(exported, tmp_path, call):
    corpus, made = exported("megatron")
    words = "format=megatron", f"corpus_folder={corpus.artifact.path}", f"runs={tmp_path}"
    assert call("export", *words)[0] == 0
    stage = ExportStage(str(tmp_path), str(corpus.artifact.path), node("megatron"))
    folder = tmp_path / "export" / made.path.name
    assert export(stage).path == folder
    found = open_export(folder)
    assert (found.artifact.digest, found.artifact.files) == (made.digest, made.files)
    assert found.examples.equals(corpus.examples)
    assert found.tokenizer.digest == corpus.tokenizer.digest
    status, said = call("verify", folder)
    rows, tokens = len(corpus.ledger), corpus.artifact.counts["tokens"]
    proved = f"{rows} ledger rows proved in {tokens} tokens: all right"
    assert (status, said.out.splitlines()[-1]) == (0, proved)


def test_a_proof_that_fails_ends_with_1(exported, tmp_path, call):
    made = exported("megatron")[1]
    folder = tmp_path / "export" / "edited"
    shutil.copytree(made.path, folder)
    data = bytearray((folder / "tokens.bin").read_bytes())
    data[open_export(made.path).ledger["byte_start"][0]] ^= 1
    (folder / "tokens.bin").write_bytes(data)
    assert call("verify", folder)[0] == 2  # damaged
    commit(folder, made.inputs, Built([*made.files], made.counts))
    status, said = call("verify", folder)
    assert status == 1
    assert "FAILURES\na copy 0: sequence" in said.out


def test_an_export_that_was_stopped_is_made_again(exported, tmp_path, monkeypatch):
    corpus, made = exported("olmo")
    stage = ExportStage(str(tmp_path), str(corpus.artifact.path), format=node("olmo"))

    def stop(*_):
        raise StoppedError("SIGTERM came")

    with monkeypatch.context() as patched:
        patched.setattr(Olmo, "prove", stop)
        with pytest.raises(StoppedError):
            export(stage)
    (folder,) = (tmp_path / "export").iterdir()
    (folder / "tokenizer" / "left.json").touch()
    with pytest.raises(ArtifactError, match="unfinished"):
        open_export(folder)
    assert (export(stage).path, export(stage).files) == (folder, made.files)


def test_what_can_not_be_exported_is_said(exported, tmp_path, call):
    corpus, made = exported("olmo")
    place = str(corpus.artifact.path)
    assert "Known: datatrove, megatron, olmo, text." in call("export", "format=olmi")[1].err
    with pytest.raises(ConfigError, match="corpus_folder is ''"):
        export(ExportStage(str(tmp_path), format=node("olmo")))
    with pytest.raises(ArtifactError, match="not a corpus"):
        export(ExportStage(str(tmp_path), str(made.path), format=node("olmo")))
    for target in ("os.system", "no.such.Class", None):
        with pytest.raises(ConfigError, match="format._target_ .* conf/format/"):
            export(ExportStage(str(tmp_path), place, format={"_target_": target, "command": "x"}))
    assert not [*tmp_path.iterdir()]
    unfinished = toy_corpus(tmp_path).artifact.path
    (unfinished / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="unfinished"):
        export(ExportStage(str(tmp_path), str(unfinished), format=node("olmo")))


@pytest.mark.parametrize("name", ["megatron", "text"])
def test_a_corpus_whose_ledger_is_wrong_is_not_exported(tmp_path, monkeypatch, name):
    right = conftest.ledger_of
    monkeypatch.setattr(conftest, "ledger_of", lambda owners: right([None, *owners[:-1]]))
    place = str(conftest.toy_corpus(tmp_path).artifact.path)
    with pytest.raises(DataError, match="FAILURES"):
        export(ExportStage(str(tmp_path), place, format=node(name)))
    assert not [*tmp_path.glob("export/*/manifest.json")]
