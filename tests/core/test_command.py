import subprocess
import sys

import pytest


def launch(*arguments, module="launch"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_itself_says_it_and_nothing_else(tmp_path):
    run = launch("model=llama_7b", "model.path=./nowhere", f"runs={tmp_path}/runs")
    assert run.returncode == 2
    assert_one_paragraph(run.stderr, ["model.path", "./nowhere", "no such folder"])
    assert not (tmp_path / "runs").exists()


def assert_one_paragraph(said, parts):
    paragraph = said.strip()
    assert paragraph.startswith("error: ")
    assert "\n" not in paragraph
    for part in parts:
        assert part in paragraph


@pytest.mark.parametrize("module", ["injection", "training", "detection", "analysis", "launch"])
def test_every_stage_shows_its_config(module):
    run = launch("--cfg", "job", module=module)
    assert run.returncode == 0, run.stderr
    assert "runs: runs" in run.stdout
