"""What a cell is and how it was made, in words."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from contamination.analysis.methods import glossary_entries
from contamination.analysis.provenance import (
    cell_facts,
    format_utc,
    report_provenance,
    training_facts,
)
from contamination.core.artifacts import Artifact
from contamination.core.files import hashed_json, write_text_atomically
from contamination.detection.methods.min_k import MinK


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


def test_dates_are_of_one_zone():
    assert format_utc(0) == "1970-01-01 00:00 UTC"


def test_the_command_can_be_given_again(monkeypatch):
    line = ["/usr/bin/python", "-m", "launch", "experiment=quickstart", "name=two words"]
    monkeypatch.setattr(sys, "orig_argv", line)
    found = report_provenance()
    assert found["command"] == "python -m launch experiment=quickstart 'name=two words'"
    assert "torch " in found["versions"]
    assert found["written"].endswith(" UTC")


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
