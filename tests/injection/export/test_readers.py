"""Exports read by the trainers' own readers (tests/readers/make.sh), token by token."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from datasets import load_dataset

from contamination.injection.config import ExportStage
from contamination.injection.export.run import export_corpus, open_export
from contamination.training.config import WhichStepStage
from contamination.training.which_step import format_step_table
from tests.injection.export.conftest import node

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parents[2] / "readers"
PLACE = Path(os.environ.get("READERS", SCRIPTS.parents[1] / ".readers"))


def read(name, folder, *words):
    """What the reader saved, by name."""
    python = PLACE / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: tests/readers/make.sh {name} makes it")
    out = folder / f"{name}.npz"
    call = [str(python), str(SCRIPTS / f"read_{name}.py"), *map(str, words), str(out)]
    ran = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(np.load(out)), ran.stdout


@pytest.fixture(params=["small", "many"])
def made(request, tmp_path, exported):
    """A corpus of real data, and one of a large vocabulary: both in the given format."""

    def of(name):
        if request.param == "many":
            corpus, artifact = exported(name, "many")
        else:
            corpus = request.getfixturevalue("corpus")
            stage = ExportStage(str(tmp_path), str(corpus.artifact.path), format=node(name))
            artifact = export_corpus(stage)
        sequences = np.array(corpus.sequences["input_ids"])
        return corpus, open_export(artifact.path), sequences

    return of


def prove(corpus, export, found, sequences, capsys):
    """Each token is the corpus's, and each row of the ledger stands where it says."""
    assert found.shape == sequences.shape
    differences = int((found != sequences).sum())
    texts = dict(zip(export.examples["example_id"], export.examples["text"], strict=True))
    size, flat = export.artifact.counts["bytes_a_token"], found.ravel()
    for row in export.ledger.itertuples():
        copy = corpus.tokenizer.encode(texts[row.example_id])[row.copy_start :]
        length = row.token_end - row.token_start
        assert flat[row.byte_start // size : row.byte_end // size].tolist() == copy[:length]
        assert found[row.document, row.token_start : row.token_end].tolist() == copy[:length]
    with capsys.disabled():
        print(f"\n{export.artifact.path.name.split('-')[0]}: {found.size} tokens, {differences} "
              f"differences, {len(export.ledger)} ledger rows")  # fmt: skip
    assert differences == 0


def test_megatron(made, tmp_path, capsys):
    corpus, export, sequences = made("megatron")
    width, place = sequences.shape[1], export.artifact.path
    found, _ = read("megatron", tmp_path, place / "tokens", width, tmp_path / "cache")
    prove(corpus, export, found["documents"], sequences, capsys)
    assert found["ends"].tolist() == [*range(len(sequences) + 1)]
    # a sample is a whole document; the last one drawn is only its neighbour's last label
    order = found["order"]
    assert len(order) == len(found["samples"]) == len(sequences) - 1
    assert np.array_equal(found["samples"], sequences[order])
    np.save(tmp_path / "order.npy", order)
    stated = {"corpus_folder": str(place), "order": str(tmp_path / "order.npy"), "batch": 4}
    for name, places in export.ledger.groupby("example_id")["sequence"]:
        _, *lines = format_step_table(WhichStepStage(**stated, example_id=name)).splitlines()
        rows = [words for line in lines if (words := line.split())[0] == name]  # others are notes
        assert len(rows) == sum(places.isin(order))
        for row in rows:
            sequence, start, stop, step = map(int, row[2:6])
            batch = found["samples"][4 * (step - 1) : 4 * step]
            own = sequences[sequence, start:stop]
            assert any(np.array_equal(sample[start:stop], own) for sample in batch)


def test_datatrove(made, tmp_path, capsys):
    corpus, export, sequences = made("datatrove")
    counts, width = export.artifact.counts, sequences.shape[1]
    words = export.artifact.path, width - 1, counts["bytes_a_token"]
    found, _ = read("datatrove", tmp_path, *words)
    prove(corpus, export, found["windows"], sequences, capsys)
    assert np.array_equal(found["positions"], np.tile(np.arange(width), (len(sequences), 1)))


def test_olmo(made, tmp_path, capsys):
    corpus, export, sequences = made("olmo")
    words = (
        export.artifact.path / "tokens.npy",
        sequences.shape[1],
        corpus.vocabulary_size,
        tmp_path,
    )
    found, said = read("olmo", tmp_path, *words)
    prove(corpus, export, found["instances"], sequences, capsys)
    assert export.artifact.counts["dtype"] in said  # as OLMo-core chooses
    whole = [tuple(row) for row in found["packed"].tolist()]
    assert sorted(whole) == sorted(map(tuple, sequences.tolist()))


def test_text(made, tmp_path, capsys):
    """What torchtitan calls; a line is what stands between two BOS in the corpus."""
    corpus, export, sequences = made("text")
    path = str(export.artifact.path / "documents.jsonl")
    found = load_dataset("json", data_files=path, split="train", cache_dir=str(tmp_path))["text"]
    flat = sequences.ravel()
    starts = np.flatnonzero(flat == corpus.tokenizer.hf.bos_token_id)
    lines = [corpus.tokenizer.decode(ids) for ids in np.split(flat, starts[1:])]
    assert [*found] == lines
    texts = dict(zip(export.examples["example_id"], export.examples["text"], strict=True))
    copies = {}
    for row in export.ledger.itertuples():
        key = row.example_id, row.copy
        copies[key] = copies.get(key, "") + found[row.line][row.char_start : row.char_end]
    assert all(text == texts[example] for (example, _), text in copies.items())
    with capsys.disabled():
        size = sum(map(len, lines))
        print(f"\ntext: {size} characters, 0 differences, {len(export.ledger)} ledger rows")
