"""The command: what it makes, what it refuses, how it ends."""

import logging
import pathlib
import pickle
import shutil
import sys
from contextlib import nullcontext

import pytest
import yaml

from contamination.core.artifacts import WrittenFiles, write_manifest
from contamination.core.errors import ArtifactError, ConfigError, DataError, StoppedError
from contamination.injection.__main__ import main
from contamination.injection.config import ExportStage
from contamination.injection.export.run import export_corpus, open_export
from contamination.injection.export.token_formats import Olmo
from tests.injection.export import conftest
from tests.injection.export.conftest import node, toy_corpus


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
    assert export_corpus(stage).path == folder
    found = open_export(folder)
    assert (found.artifact.digest, found.artifact.files) == (made.digest, made.files)
    assert found.examples.equals(corpus.examples)
    assert found.tokenizer.digest == corpus.tokenizer.digest
    status, said = call("verify", folder)
    rows, tokens = len(corpus.ledger), corpus.artifact.counts["tokens"]
    proved = f"{rows} ledger rows proved in {tokens} tokens: all right"
    assert (status, said.out.splitlines()[-1]) == (0, proved)


def test_the_progress_of_an_export_ends_at_the_tokens_of_the_corpus(tmp_path, monkeypatch):
    class Bar(nullcontext):
        def __init__(self, total, **options):
            super().__init__(self)
            self.total, self.n = total, 0
            bars.append(self)

        def update(self, n):
            self.n += n

    bars = []
    monkeypatch.setattr("contamination.injection.export.base.progress_bar", Bar)
    corpus = toy_corpus(tmp_path)
    export_corpus(ExportStage(str(tmp_path), str(corpus.artifact.path), node("megatron")))
    assert bars[0].n == bars[0].total == corpus.artifact.counts["tokens"]


def test_a_proof_that_fails_ends_with_1(exported, tmp_path, call):
    made = exported("megatron")[1]
    folder = tmp_path / "export" / "edited"
    shutil.copytree(made.path, folder)
    data = bytearray((folder / "tokens.bin").read_bytes())
    data[open_export(made.path).ledger["byte_start"][0]] ^= 1
    (folder / "tokens.bin").write_bytes(data)
    assert call("verify", folder)[0] == 2  # damaged
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    status, said = call("verify", folder)
    assert status == 1
    assert "FAILURES\na copy 0: sequence" in said.out


def test_an_export_that_was_stopped_is_made_again(exported, tmp_path, monkeypatch):
    corpus, made = exported("olmo")
    stage = ExportStage(str(tmp_path), str(corpus.artifact.path), format=node("olmo"))

    def stop(*_):
        raise StoppedError("SIGTERM was received")

    with monkeypatch.context() as patched:
        patched.setattr(Olmo, "prove", stop)
        with pytest.raises(StoppedError):
            export_corpus(stage)
    (folder,) = (tmp_path / "export").iterdir()
    (folder / "tokenizer" / "left.json").touch()
    with pytest.raises(ArtifactError, match="unfinished"):
        open_export(folder)
    assert (export_corpus(stage).path, export_corpus(stage).files) == (folder, made.files)


def test_what_can_not_be_exported_is_said(exported, tmp_path, call):
    corpus, made = exported("olmo")
    place = str(corpus.artifact.path)
    assert "Known: datatrove, megatron, olmo, text." in call("export", "format=olmi")[1].err
    with pytest.raises(ConfigError, match="corpus_folder is ''"):
        export_corpus(ExportStage(str(tmp_path), format=node("olmo")))
    with pytest.raises(ArtifactError, match="not a corpus"):
        export_corpus(ExportStage(str(tmp_path), str(made.path), format=node("olmo")))
    for target in ("os.system", "no.such.Class", None):
        with pytest.raises(ConfigError, match="format._target_ .* conf/format/"):
            export_corpus(
                ExportStage(str(tmp_path), place, format={"_target_": target, "command": "x"})
            )
    assert not [*tmp_path.iterdir()]
    unfinished = toy_corpus(tmp_path).artifact.path
    (unfinished / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="unfinished"):
        export_corpus(ExportStage(str(tmp_path), str(unfinished), format=node("olmo")))


@pytest.mark.parametrize("name", ["megatron", "text"])
def test_a_corpus_whose_ledger_is_wrong_is_not_exported(tmp_path, monkeypatch, name):
    right = conftest.ledger_of
    monkeypatch.setattr(conftest, "ledger_of", lambda owners: right([None, *owners[:-1]]))
    place = str(conftest.toy_corpus(tmp_path).artifact.path)
    with pytest.raises(DataError, match="FAILURES"):
        export_corpus(ExportStage(str(tmp_path), place, format=node(name)))
    assert not [*tmp_path.glob("export/*/manifest.json")]


PAYLOAD = """
import pathlib
pathlib.Path({canary!r}).touch()
from contamination.injection.export.token_formats import Megatron
class Mine(Megatron): pass
"""


class Opened:
    """Unpickled, it makes the canary."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.canary),)


def payloads(folder, canary):
    """Formats of a stored config that would run code, each with the canary as its trace."""
    pickled = folder / "payload.pickle"
    pickled.write_bytes(pickle.dumps(Opened(canary)))
    (folder / "payload.py").write_text(PAYLOAD.format(canary=canary))
    path = {"_target_": "pathlib.Path", "_args_": [canary]}
    inner = {
        "pandas": {"_target_": "pandas.read_pickle", "filepath_or_buffer": str(pickled)},
        "joblib": {"_target_": "joblib.load", "filename": str(pickled)},
        "sympy": {"_target_": "sympy.sympify", "a": f"__import__('os').mkdir({canary!r})"},
        "a writer of the project": {
            "_target_": "contamination.core.files.write_text_atomically",
            "path": path,
            "text": "x",
        },
        "a deleter of the project": {"_target_": "shutil.rmtree", "path": f"{canary}-kept"},
    }
    megatron = "contamination.injection.export.token_formats.Megatron"
    nested = {name: {"_target_": megatron, "dtype": node} for name, node in inner.items()}
    return {
        **nested,
        "in a list": {"_target_": megatron, "dtype": [inner["pandas"]]},
        "a module in the folder": {"_target_": "payload.Mine"},
    }


NAMES = ("pandas", "joblib", "sympy", "a writer of the project", "a deleter of the project",
         "in a list", "a module in the folder")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_received_export_runs_no_code(exported, tmp_path, call, monkeypatch, name):
    made = exported("megatron")[1]
    folder, canary = tmp_path / "export" / "received", tmp_path / "canary"
    shutil.copytree(made.path, folder)
    kept = tmp_path / "canary-kept"
    kept.mkdir()
    node = payloads(folder, str(canary))[name]
    (folder / "config.yaml").write_text(yaml.safe_dump({**made.config(), "format": node}))
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    status, said = call("verify", folder)
    assert (canary.exists(), kept.exists()) == (False, True)
    assert status == 2, said
    assert f"error: {folder}/config.yaml: format" in said.err
    assert "a stored file does not select code" in said.err


def test_ones_own_format_is_proved_where_the_command_names_it(
    exported, tmp_path, call, monkeypatch
):
    made = exported("megatron")[1]
    folder, canary = tmp_path / "export" / "mine", tmp_path / "canary"
    shutil.copytree(made.path, folder)
    node = {"_target_": "payload.Mine"}
    (tmp_path / "payload.py").write_text(PAYLOAD.format(canary=str(canary)))
    (folder / "config.yaml").write_text(yaml.safe_dump({**made.config(), "format": node}))
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    monkeypatch.syspath_prepend(tmp_path)
    assert call("verify", folder)[0] == 2
    assert call("verify", folder, "format._target_=other.Mine")[0] == 2
    assert not canary.exists()
    status, said = call("verify", folder, "format._target_=payload.Mine")
    assert (status, said.out.splitlines()[-1][-9:]) == (0, "all right")


@pytest.mark.parametrize("name", ["ledger.parquet", "examples.parquet", "tokenizer/tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"{}", b"[" * 10**5])
def test_a_file_that_can_not_be_parsed_is_an_error_of_one_line(
    exported, tmp_path, call, name, content
):
    """Though the manifest's hashes are those of the file as it is."""
    made = exported("megatron")[1]
    folder = tmp_path / "export" / "edited"
    shutil.copytree(made.path, folder)
    (folder / name).write_bytes(content)
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    status, said = call("verify", folder)
    errors = said.err.splitlines()
    assert (status, len(errors)) == (2, 1), said.err
    assert errors[0].startswith("error: ")
    assert str(folder) in errors[0]
    assert name.split("/")[0] in errors[0]
