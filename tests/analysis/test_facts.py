"""What a cell is and how it was made, in words."""

from __future__ import annotations

import os
import platform
import socket
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis import provenance
from contamination.analysis.config import CellPaths
from contamination.analysis.methods import glossary_entries
from contamination.analysis.provenance import (
    CellRecord,
    cell_facts,
    format_utc,
    ledger_counts,
    loss_table,
    open_record,
    report_provenance,
    training_facts,
)
from contamination.core.artifacts import Artifact, code_revision
from contamination.core.files import hashed_json, write_text_atomically
from contamination.core.terminal import format_duration
from contamination.detection.methods.min_k import MinK
from contamination.injection.finetuning.config import STAGE_TITLES
from contamination.injection.pool_sizes import ADAPTED_SIZES


@dataclass(frozen=True)
class Trained:
    artifact: Artifact
    metrics: pd.DataFrame


def test_a_cells_facts_are_those_of_its_configs_and_examples(cell):
    assert cell_facts(cell, None) == {
        "cell": cell.name,
        "model": "tiny_llama",
        "parameters": "–",
        "corpus tokens": "400,000",
        "learning rate": "0.001",
        "occurrences": "1, 2, 4, 8",
        "examples": "64 + 64",
        "seed": "0",
    }


def test_a_record_adds_how_it_was_trained(cell, record):
    assert cell_facts(cell, record).items() > record.training.items()


def test_the_time_is_the_sum_over_steps(tmp_path):
    """100 tokens at 50 a second, 100 at 1, 40 at 20: 2 + 100 + 2 seconds, about 2 minutes."""
    parts = dict.fromkeys(("inputs", "counts", "files", "records", "bytes"), {})
    made = {"kind": "model", "schema": 4, "revision": "abc+", "digest": "0" * 64}
    write_text_atomically(tmp_path / "manifest.json", hashed_json({**made, **parts}))
    steps = {"tokens": [100, 200, 240], "tokens_per_second": [50.0, 1.0, 20.0]}
    model = Trained(Artifact(tmp_path, "model", "", {}, {}, {}), pd.DataFrame(steps))
    found = training_facts(model)
    written = format_utc((tmp_path / "manifest.json").stat().st_mtime)
    assert found == {
        "steps": "3",
        "time in steps": "2 min",
        "trained": written,
        "code": "abc+",
    }


def test_a_cell_of_two_stages_says_where_its_members_were_and_what_was_scored(cell):
    examples = cell.examples.assign(occurrences=0)
    two_stages = replace(
        cell, stage="finetuning", scope="output", epochs=3, parameters=1_234_567,
        budget_tokens=1_500, learning_rate=2e-5, seed=4, examples=examples.head(50),
    )  # fmt: skip
    assert cell_facts(two_stages, None) == {
        "cell": cell.name,
        "model": "tiny_llama",
        "parameters": "1,234,567",
        "corpus tokens": "1,500",
        "learning rate": "2e-05",
        "occurrences": "0",
        "examples": "32 + 18",
        "members in": STAGE_TITLES["finetuning"],
        "scored": "output",
        "epochs": "3",
        "seed": "4",
    }
    assert list(cell_facts(two_stages, None)) == list(cell_facts(cell, None))[:7] + [
        "members in", "scored", "epochs", "seed"
    ]  # fmt: skip


def test_a_ledger_says_which_benchmarks_have_fewer_examples_than_asked_for():
    ledger = pd.DataFrame({
        "example_id": ["a", "b", "b"], "document_id": ["x", "y", "z"],
        "truncated": [True, True, False], "reworded": [None, "again", "anew"],
    })  # fmt: skip
    sizes = {"members": 3, "nonmembers": 4, "asked_members": 10, "asked_nonmembers": 20}
    counts = {
        "members": 7, "nonmembers": 8, "unexposed_members": 2, "inserted_tokens": 900,
        "documents": 5, ADAPTED_SIZES: {"imdb": sizes},
    }  # fmt: skip
    assert list(ledger_counts(ledger, counts).items()) == [
        ("members", 7),
        ("non-members", 8),
        ("members never inserted", 2),
        ("inserted tokens", 900),
        ("members of imdb (10 asked for)", 3),
        ("non-members of imdb (20 asked for)", 4),
        ("inserted copies", 3),
        ("examples inserted", 2),
        ("documents that carry a copy", 3),
        ("copies cut short", 2),
        ("copies reworded", 2),
    ]


def make_record(evaluations: pd.DataFrame) -> CellRecord:
    return CellRecord("m", evaluations, np.arange(3), {}, {}, {}, {})


def test_the_loss_table_has_the_mean_and_the_range_of_the_seeds_that_have_the_loss():
    first_seed = pd.DataFrame({"step": [0, 9], "loss_members": [5.0, 1.0], "tokens": [1, 2]})
    first_seed["loss_validation"] = [4, np.nan]
    second_seed = pd.DataFrame({"step": [0, 9], "loss_members": [7.0, 2.0]})
    second_seed["loss_nonmembers"] = [6.0, 3.0]
    table = loss_table([make_record(first_seed), make_record(second_seed)])
    expected = pd.DataFrame(
        [
            ("members", 0, 6.0, 5.0, 7.0),
            ("members", 9, 1.5, 1.0, 2.0),
            ("non-members", 0, 6.0, 6.0, 6.0),
            ("non-members", 9, 3.0, 3.0, 3.0),
            ("validation", 0, 4.0, 4.0, 4.0),
        ],
        columns=["side", "step", "loss", "low", "high"],
    )
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def write_manifest(folder: Path, **parts) -> Artifact:
    folder.mkdir()
    empty = dict.fromkeys(("inputs", "counts", "files", "records", "bytes"), {})
    required = {"kind": "model", "schema": 4, "revision": "abc", "digest": "0" * 64}
    write_text_atomically(folder / "manifest.json", hashed_json({**required, **empty, **parts}))
    return Artifact(folder, "model", folder.name, {}, {}, {})


def test_a_record_is_read_of_the_corpus_the_model_and_the_scores(tmp_path, monkeypatch):
    corpus = SimpleNamespace(
        artifact=replace(
            write_manifest(tmp_path / "corpus", identity={"injection": {"a": 1}}),
            counts={"members": 7},
        ),
        ledger=pd.DataFrame({"example_id": ["a"], "document_id": ["x"], "truncated": [False],
                             "reworded": [None]}),
    )  # fmt: skip
    model = SimpleNamespace(
        artifact=write_manifest(tmp_path / "model", identity={"training": {"b": 2}}),
        metrics=pd.DataFrame({"tokens": [100], "tokens_per_second": [50.0]}),
        evaluations=pd.DataFrame({"step": [3]}),
        exposures=pd.DataFrame({"example_id": ["a", "b"], "step": [4, 5]}),
    )
    nodes = {"loss": {"_target_": "x.Loss"}, "mine": {"k": 1}}
    scores = SimpleNamespace(artifact=SimpleNamespace(config=lambda: {"method": nodes}))
    paths = CellPaths("c", "m", "clean", "s", seconds=7200.0, gpu_hours=4.0)
    monkeypatch.setattr(provenance, "open_corpus", {"c": corpus}.__getitem__)
    monkeypatch.setattr(
        provenance, "open_trained", lambda *args: {("cells.model", "m"): model}[args]
    )
    monkeypatch.setattr(provenance, "open_scores", {"s": scores}.__getitem__)
    record = open_record(paths)
    assert record.model == "model"
    assert record.evaluations is model.evaluations
    assert record.exposures.tolist() == [4, 5]
    assert record.ledger["members"] == 7
    assert record.ledger["inserted copies"] == 1
    assert record.settings == {"injection": {"a": 1}, "training": {"b": 2}}
    assert record.methods == {"loss": "x.Loss", "mine": ""}
    training = dict(record.training)
    assert training.pop("wall time") == format_duration(7200.0)
    assert training.pop("GPU hours") == "4.00"
    assert training == training_facts(model)
    training_without_gpu = open_record(replace(paths, gpu_hours=None)).training
    assert "wall time" in training_without_gpu
    assert "GPU hours" not in training_without_gpu
    assert "wall time" not in open_record(replace(paths, seconds=None)).training


def test_dates_are_of_one_zone():
    assert format_utc(0) == "1970-01-01 00:00 UTC"


def test_the_command_can_be_given_again(monkeypatch):
    line = ["/usr/bin/python", "-m", "launch", "experiment=quickstart", "name=two words"]
    monkeypatch.setattr(sys, "orig_argv", line)
    provenance = report_provenance()
    assert provenance["command"] == "python -m launch experiment=quickstart 'name=two words'"
    assert list(provenance) == ["command", "code", "written", "machine", "versions"]
    packages = ("contamination-testbed", "torch", "transformers", "deepspeed", "numpy",
                "scikit-learn")  # fmt: skip
    names = [text.rpartition(" ")[0] for text in provenance["versions"].split(", ")]
    assert names == ["Python", *packages]
    assert provenance["code"] == code_revision()
    report_time = datetime.strptime(provenance["written"], "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - report_time) < timedelta(minutes=2)
    machine = f"{socket.gethostname()}: {platform.system()} {platform.machine()}"
    assert provenance["machine"] == f"{machine}, {os.cpu_count()} CPU cores"


def test_a_method_is_told_in_the_words_of_its_class(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    Path(tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no GPU')")
    classes = {"min_k": "contamination.detection.methods.min_k.MinK", "mine": "broken_plugin.Mine"}
    first, upper, mine, unknown = glossary_entries(
        ["min_k", "min_k_upper_bound", "mine", "x"], classes
    )
    assert first.summary == MinK.__doc__.partition("\n")[0]
    assert first.equation.startswith("score(x) = the mean of the ⌊k·n⌋ lowest log p")
    assert upper[1:] == first[1:]
    assert mine[1:] == unknown[1:] == ("", "")


MODULES = ("payload.Mine", "payloads.inner.Mine", "payloads.Mine", "this.s", "antigravity.fly",
           "payload.minds.Mine")  # fmt: skip


@pytest.mark.parametrize("target", MODULES)
def test_a_class_that_received_scores_name_is_not_imported(tmp_path, monkeypatch, target):
    touch = f"import pathlib\npathlib.Path({str(tmp_path / 'canary')!r}).touch()\nclass Mine: 'x'\n"
    (tmp_path / "payloads").mkdir()
    for name in ("payload.py", "payloads/__init__.py", "payloads/inner.py", "antigravity.py"):
        (tmp_path / name).write_text(touch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    modules = {*sys.modules}
    assert glossary_entries(["mine"], {"mine": target})[0][1:] == ("", "")
    assert {*sys.modules} == modules
    assert not (tmp_path / "canary").exists()


def test_ones_own_method_is_told_where_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "own_method.py").write_text(
        "from contamination.detection.methods.loss import Loss\n"
        "class Mine(Loss):\n    'Mine, of my paper.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    classes = {"mine": "own_method.Mine"}
    assert glossary_entries(["mine"], classes)[0].summary == ""
    import_module("own_method")
    assert glossary_entries(["mine"], classes)[0].summary == "Mine, of my paper."
