"""What a corpus is made of names its folder: by content, not by path, size or time."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import combined_digest
from contamination.data.config import BenchmarkConfig
from contamination.data.readers.files import FilesCorpus
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.injection.run import check_and_read_candidates, input_digests, run

GOLDEN = Path("tests/golden/target")


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def questions(right="yes"):
    return [{"question": f"Is {n} a number?", "answer": right, "note": "a"} for n in range(12)]


@pytest.fixture
def files(tmp_path):
    """The files that a corpus is made of, by what they are."""
    found = {"benchmark": tmp_path / "mine.jsonl", "corpus": tmp_path / "corpus" / "part.jsonl"}
    found["corpus"].parent.mkdir()
    found["benchmark"].write_text(jsonl(questions()))
    found["corpus"].write_text(jsonl({"text": f"a document of the number {n} "} for n in range(99)))
    shutil.copytree(GOLDEN, tmp_path / "tokenizer", ignore=lambda *_: ["model.safetensors"])
    shutil.copytree(GOLDEN, tmp_path / "reworder")
    return {**found, "tokenizer": tmp_path / "tokenizer", "rewording": tmp_path / "reworder"}


@pytest.fixture
def stage(files, tmp_path):
    rows = {
        "_target_": "contamination.data.readers.files.FileRows",
        "path": str(files["benchmark"]),
    }
    fields = {"question": "{question}", "answer": "{answer}"}
    return InjectionStage(
        runs=str(tmp_path / "runs"),
        corpus={"_target_": "contamination.data.readers.files.FilesCorpus", "name": "own",
                "paths": str(files["corpus"].parent)},
        benchmark={"mine": BenchmarkConfig(
            template="{question} {answer}", sources={"file": {"rows": rows, "fields": fields}}
        )},
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": 1},
        tokenizer=TokenizerConfig(path=str(files["tokenizer"])),
        injection=InjectionConfig(
            members=3, nonmembers=3, held_out=0, budget_tokens=1024, sequence_tokens=64,
            part="all", decontamination="off",
        ),
    )  # fmt: skip


def inputs(stage):
    return input_digests(
        stage, instantiate_node("corpus", stage.corpus), check_and_read_candidates(stage)
    )


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def rewrite(path, *swap):
    """Other content of the same size and, as far as `touch -r` can set it, the same time."""
    was = path.stat()
    path.write_bytes(path.read_bytes().replace(*(word.encode() for word in swap)))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)


@pytest.mark.parametrize(
    ("file", "swap", "name"),
    [
        ("benchmark", ("yes", "noo"), "benchmark.mine"),
        ("corpus", ("document", "DOCUMENT"), "corpus"),
    ],
)
def test_an_edited_file_gives_another_corpus(stage, files, file, swap, name):
    before = run(stage)
    os.utime(files[file], ns=(0, 0))
    assert run(stage).path == before.path  # only touched
    rewrite(files[file], *swap)
    after = run(stage)
    assert after.path != before.path
    assert changed(before.inputs, after.inputs) == {name}
    assert after.digest != before.digest
    rewrite(files[file], *reversed(swap))
    assert run(stage).path == before.path


def test_rows_count_by_what_is_read_of_them(stage, files, tmp_path):
    before = inputs(stage)
    files["benchmark"].write_text(jsonl([{**row, "note": "other"} for row in questions()[::-1]]))
    assert inputs(stage) == before  # neither their order nor what no field names
    files["benchmark"].write_text(jsonl([*questions(), questions()[0]]))
    assert changed(before, inputs(stage)) == {"benchmark.mine"}  # a duplicate is counted
    moved = json.loads(json.dumps(stage.benchmark["mine"].sources))
    moved["file"]["rows"]["path"] = str(tmp_path / "moved.jsonl")
    (tmp_path / "moved.jsonl").write_text(jsonl(questions()))
    own = replace(stage.benchmark["mine"], sources=moved)
    pool = replace(stage.injection, pool_seed=1)
    assert inputs(replace(stage, benchmark={"mine": own}, injection=pool)) == before


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_is_known_by_its_files(stage, files, file):
    before = inputs(stage)
    (files["tokenizer"] / "README.md").write_text("no part of it")
    assert inputs(stage) == before
    if file == "tokenizer.json":
        rewrite(files["tokenizer"] / file, '"add_prefix_space": true', '"add_prefix_space":false')
    else:
        rewrite(files["tokenizer"] / file, '"pad_token": "</s>"', '"pad_token": "<s>" ')
    assert changed(before, inputs(stage)) == {"tokenizer"}


def test_a_rewording_model_is_known_by_its_files(stage, files, monkeypatch):
    monkeypatch.setenv("HOME", str(files["rewording"].parent))
    stage = replace(
        stage,
        rewording={"_target_": "contamination.data.perturbation.MaskedLM", "path": "~/reworder"},
    )
    before = inputs(stage)
    (files["rewording"] / ".git").mkdir()
    (files["rewording"] / ".git" / "HEAD").write_text("not loaded")
    assert inputs(stage) == before
    rewrite(files["rewording"] / "config.json", '"silu"', '"gelu"')
    assert changed(before, inputs(stage)) == {"rewording"}


def test_files_that_change_while_they_are_read_make_nothing(stage, files, monkeypatch):
    first = inputs(stage)
    documents = FilesCorpus.documents

    def edited(self):
        yield from documents(self)
        rewrite(files["corpus"], "document", "DOCUMENT")

    monkeypatch.setattr(FilesCorpus, "documents", edited)
    with pytest.raises(DataError, match="files changed while they were read"):
        run(stage)
    (folder,) = (Path(stage.runs) / "corpus").iterdir()
    assert not (folder / "manifest.json").exists()
    assert not (folder / "tokens").exists()  # else the same content, put back, would find them
    monkeypatch.undo()
    rewrite(files["corpus"], "DOCUMENT", "document")
    assert inputs(stage) == first
    assert run(stage).path == folder


def test_the_corpus_of_one_file_is_known_by_its_sha256(stage, files):
    sha256 = hashlib.sha256(files["corpus"].read_bytes()).hexdigest()
    assert inputs(stage)["corpus"] == combined_digest({"part.jsonl": sha256})


class Bare:
    """A corpus of a user's own that says nothing of its content."""

    skipped: dict[str, int] = {}

    def documents(self):
        return iter(())


def test_a_corpus_that_does_not_say_what_it_holds_is_refused(stage):
    own = replace(stage, corpus={"_target_": f"{__name__}.Bare"})
    with pytest.raises(
        ConfigError, match="corpus._target_ is .*Bare.*has no fingerprint: see docs"
    ):
        run(own)
