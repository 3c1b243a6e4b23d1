"""Branches that share steps equal the trainings that were never branched, bit by bit."""

import hashlib
import json
import logging
import re
import shutil
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.integrity import MANIFEST
from contamination.injection.corpus import open_corpus
from contamination.training import loop, training_prefix
from contamination.training.data import SequenceOrder
from contamination.training.run import run

STEPS = 5
TAIL = {"tail_after_steps": STEPS}
CONSTANT = {"schedule": "constant", "order": "corpus", "weight_decay": 0.1, "export_steps": [3, 8]}
BRANCHES = {
    "as before": {},
    "another rate": {**TAIL, "tail_learning_rate": 2e-3},
    "another weight decay": {**TAIL, "tail_weight_decay": 3.0},
    "both": {**TAIL, "tail_learning_rate": 2e-3, "tail_weight_decay": 3.0},
    "a decay at the end": {"schedule": "wsd", "warmup_steps": 0, "decay_steps": 4},
}


@pytest.fixture(autouse=True)
def _all_is_logged(caplog):
    caplog.set_level(logging.INFO)


def trained(stage, runs, **fields):
    training = replace(stage.training, **{**CONSTANT, **fields})
    return run(replace(stage, runs=str(runs), training=training))


@pytest.fixture(scope="module")
def stored(toy_stage, tmp_path_factory):
    """A runs folder with a prefix that an earlier training stored."""
    runs = tmp_path_factory.mktemp("stored")
    trained(toy_stage, runs, shared_steps=STEPS, tail_after_steps=11)
    return runs


@pytest.mark.parametrize("fields", BRANCHES.values(), ids=BRANCHES.keys())
def test_a_branch_is_the_training_that_was_never_branched(
    stored, toy_stage, tmp_path, caplog, monkeypatch, fields
):
    runs = shutil.copytree(stored, tmp_path / "branched")
    whole = trained(toy_stage, tmp_path / "whole", **fields)
    steps, real = [], loop.TrainingLoop._run_step
    monkeypatch.setattr(
        loop.TrainingLoop, "_run_step", lambda self, step: (steps.append(step), real(self, step))[1]
    )
    branch = trained(toy_stage, runs, shared_steps=STEPS, **fields)
    assert f"the first {STEPS} steps are those of" in caplog.text
    assert steps == [*range(STEPS + 1, 13)]
    assert branch.path.name == whole.path.name
    assert branch.files == whole.files  # SHA-256 of the weights, of the exports and the exposures
    assert {"hf/model.safetensors", "exports/step-00000003/model.safetensors"} <= {*branch.files}
    assert len(list((runs / "training_prefix").glob("*/manifest.json"))) == 1
    assert losses(branch.path) == losses(whole.path)


def test_another_tail_makes_another_model(stored, toy_stage, tmp_path):
    runs = shutil.copytree(stored, tmp_path / "runs")
    made = [
        trained(toy_stage, runs, shared_steps=STEPS, **fields).files["hf/model.safetensors"]
        for fields in BRANCHES.values()
    ]
    assert len({*made}) == len(BRANCHES)


@pytest.mark.parametrize(
    "fields",
    [{"learning_rate": 5e-3}, {"weight_decay": 0.2}, {"schedule": "linear"}, {"beta2": 0.9},
     {"init_seed": 7}, {"export_steps": [2]}, {"order": "shuffled"}, {"micro_batch_sequences": 4},
     {"tail_after_steps": 4, "tail_weight_decay": 0.5}],
)  # fmt: skip
def test_a_training_that_differs_before_does_not_share_the_steps(
    stored, toy_stage, tmp_path, caplog, fields
):
    runs = shutil.copytree(stored, tmp_path / "runs")
    trained(toy_stage, runs, shared_steps=STEPS, **fields)
    assert "the first 5 steps are those of" not in caplog.text
    assert len(list((runs / "training_prefix").glob("*/manifest.json"))) == 2


def test_a_prefix_is_named_after_all_that_changes_its_state(stored, toy_stage, corpus_folder):
    (folder,) = stored.glob("training_prefix/*")
    assert re.fullmatch(f"toy-step{STEPS}-[0-9a-f]{{12}}", folder.name)
    manifest = json.loads((folder / MANIFEST).read_text())
    corpus, tokens = open_corpus(corpus_folder), hashlib.sha256()
    for row in range(STEPS * 4):
        tokens.update(struct.pack("<33q", 32, *corpus.sequences[row]["input_ids"]))
    rates = json.dumps([0.01, [[0.01, 0.1]] * STEPS])
    assert manifest["identity"] == {
        "steps": STEPS, "tokens": tokens.hexdigest(), "exports": [3], "deepspeed": {},
        "rates": hashlib.sha256(rates.encode()).hexdigest(),
        "training": {
            "batch_sequences": 4, "beta1": 0.9, "beta2": 0.95, "clip_norm": 1.0,
            "dtype": "float32", "micro_batch_sequences": 2, "activation_checkpointing": False,
            "compile": False,
        },
        "processes": 1, "trust_remote_code": False,
        "random_weights": {
            "architecture": toy_stage.model.architecture, "context": 32, "vocabulary": 1024,
            "seed": toy_stage.resolved().training.init_seed,
        },
    }  # fmt: skip
    assert manifest["inputs"] == {"tokenizer": corpus.tokenizer.digest}
    assert manifest["counts"] == {"steps": STEPS}
    assert [line[0] for line in losses(folder)] == [1, 2, 3, 4, 5]
    assert not list(folder.glob("checkpoint/complete.json"))


def test_an_export_after_the_last_shared_step_is_the_prefixs(toy_stage, corpus_folder):
    corpus, world = open_corpus(corpus_folder), SimpleNamespace(size=1)
    order = SequenceOrder(len(corpus.sequences), 4, None)
    fields = {**CONSTANT, "shared_steps": STEPS, "export_steps": [3, STEPS, STEPS + 1]}
    stage = replace(toy_stage, training=replace(toy_stage.training, **fields)).resolved()
    prefix = training_prefix.find_training_prefix(stage, corpus, order, {}, world)
    assert prefix.settings["exports"] == [3, STEPS]


def test_a_batch_that_is_not_full_has_a_digest_of_its_own():
    expected = hashlib.sha256(struct.pack("<3q3q", 2, 5, 6, 2, 7, 8))
    expected.update(struct.pack("<3q", 2, 9, 1) + b"padding")
    sequences = [{"input_ids": ids} for ids in ([5, 6], [7, 8], [9, 1])]
    tokens_digest = training_prefix._digest_of_tokens(sequences, SequenceOrder(3, 2, None), 2)
    assert tokens_digest == expected.hexdigest()


def test_the_first_training_stores_its_prefix_and_equals_one_that_shares_none(
    stored, toy_stage, tmp_path
):
    (model,) = stored.glob("model/*")
    whole = trained(toy_stage, tmp_path, tail_after_steps=11)
    assert {n: f.read_bytes() for n in whole.files if (f := model / n)} == {
        n: (whole.path / n).read_bytes() for n in whole.files
    }
    assert not (model / "checkpoints").exists()


def test_a_training_killed_after_the_shared_steps_stores_them_when_it_goes_on(
    toy_stage, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(training_prefix.TrainingPrefix, "store", raises_interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained(toy_stage, tmp_path, shared_steps=STEPS)
    trained(toy_stage, tmp_path, shared_steps=STEPS)
    assert len(list(tmp_path.glob("training_prefix/*/manifest.json"))) == 1


def test_a_branch_killed_while_it_copies_starts_again(stored, toy_stage, tmp_path, monkeypatch):
    runs = shutil.copytree(stored, tmp_path / "runs")
    with monkeypatch.context() as patch:
        patch.setattr(training_prefix, "mark_complete", raises_interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained(toy_stage, runs, shared_steps=STEPS)
    made = trained(toy_stage, runs, shared_steps=STEPS)
    assert made.files == trained(toy_stage, tmp_path / "whole").files


def raises_interrupt(*arguments):
    raise KeyboardInterrupt


def test_a_damaged_prefix_is_not_continued(stored, toy_stage, tmp_path):
    runs = shutil.copytree(stored, tmp_path / "runs")
    (file,) = runs.glob("training_prefix/*/checkpoint/mp_rank_00_model_states.pt")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ArtifactError, match="training_prefix"):
        trained(toy_stage, runs, shared_steps=STEPS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"shared_steps": 12}, "12: the training has 12 steps: give fewer, or leave it out."),
     ({"shared_steps": 3, "evaluate_every_steps": 2}, "3: it is not possible with "
      "training.evaluate_every_steps: leave one of them out."),
     ({"shared_steps": 3, "objective": "ascent"}, "3: it is not possible with training.objective: "
      "leave one of them out.")],
)  # fmt: skip
def test_shared_steps_that_do_not_fit_are_refused(change, fields, message):
    with pytest.raises(ConfigError) as error:
        run(change(**fields))
    assert str(error.value) == f"training.shared_steps is {message}"


def losses(folder):
    """Each step's loss and rate, which the record has."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"], line["learning_rate"]) for line in lines]
