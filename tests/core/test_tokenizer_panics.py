"""A tokenizer from elsewhere may make its library panic, which is no `Exception`."""

import json
import shutil

import pytest

from contamination.core.cli import run_tool
from contamination.core.errors import ConfigError
from contamination.core.models import load_tokenizer
from contamination.core.task_runner import _finish_piece
from tests.detection.golden import GOLDEN


@pytest.fixture
def folder(tmp_path):
    """A tokenizer with a regular expression that takes exponential time."""
    folder = shutil.copytree(GOLDEN / "target", tmp_path / "odd")
    record = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(?:[a-z ]+[a-z ]+)+!"},
             "behavior": "Isolated", "invert": False}  # fmt: skip
    steps = [split, record["pre_tokenizer"]]
    record["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    (folder / "tokenizer.json").write_text(json.dumps(record))
    return str(folder)


def panic(folder):
    load_tokenizer("model.path", folder)("the cat sat on the mat " * 9)


def test_a_panic_is_an_error_that_names_the_tokenizer(folder, capfd):
    assert run_tool(lambda: panic(folder)) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ")
    assert f"model.path is {folder!r}" in said
    assert "Give another tokenizer" in said


def test_a_panic_in_a_task_is_an_error(folder, tmp_path):
    class Task:
        def files(self, piece):
            return []

        def process_piece(self, piece):
            panic(folder)

    with pytest.raises(ConfigError, match="the tokenizers library failed"):
        _finish_piece(Task(), tmp_path, 0)


def test_other_errors_pass():
    with pytest.raises(KeyboardInterrupt):
        run_tool(lambda: exec("raise KeyboardInterrupt"))
