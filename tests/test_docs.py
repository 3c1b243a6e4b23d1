"""What the guides show is run as it stands."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import yaml

from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import ORIGINAL, Example, TokenStats
from tests.detection.golden import GOLDEN

DOCS = Path(__file__).resolve().parents[1] / "docs"
SNIPPETS = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.S)


METHOD = (DOCS / "add-a-method.md").read_text()


def test_the_method_of_the_guide_is_built_and_scores(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", METHOD, re.S)
    (node,) = re.findall(r"```yaml\n(.*?)```", METHOD, re.S)
    module = ModuleType("contamination.detection.methods.my_method")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    built = build_methods(yaml.safe_load(node))
    assert [*built] == [("my_method", "k=0.1"), ("my_method", "k=0.2")]
    example = Example("x", "", {ORIGINAL: [TokenStats(logprob=np.arange(-10.0, 0))]})
    assert [m.score(example) for m in built.values()] == [-10, -9.5]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").symlink_to(GOLDEN / "target")
    words = ["The heron waits by the river", "A ladder leans on the wall", "Rain falls on the road"]
    texts = [f"{words[i % 3]}, and it is day {i}." for i in range(30)]
    frame = pd.DataFrame({"text": texts, "label": [i % 2 for i in range(30)]})
    frame.to_csv("texts.csv", index=False)
    return tmp_path


def test_texts_are_scored_and_evaluated(here, capsys):
    exec(SNIPPETS[0], {})
    shown = capsys.readouterr().out
    for words in ("min_k_plus_plus", "auroc", "blind"):
        assert words in shown
    assert {path.name for path in here.iterdir()} == {"models", "texts.csv"}


@pytest.mark.slow
def test_stages_are_run(here, capsys):
    found = {}
    for _ in range(2):
        exec(SNIPPETS[1], found)
    occurrences, folder = capsys.readouterr().out.splitlines()[-1].split()
    assert int(occurrences) >= 20
    assert (Path(folder) / "model.safetensors").is_file()
    assert len([*(here / "runs" / "model").iterdir()]) == 1


def test_every_table_is_whole():
    """A blank line within a table ends it: the rows behind it are then no table."""
    for path in sorted(DOCS.parent.glob("*.md")) + sorted(DOCS.rglob("*.md")):
        blocks = re.findall(r"(?:^\|.*\n)+", path.read_text(), re.M)
        for rows in map(str.splitlines, blocks):
            assert re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", "".join(rows[1:2])), (path.name, rows[0])
