import json
import subprocess
import sys

import pytest

ALL = """
import contextlib, io, json, sys
from launch.__main__ import main
found = []
for arguments in json.load(sys.stdin):
    sys.argv = ["launch", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        found.append([main(), said.getvalue()])
print(json.dumps(found))
"""
BAD = [
    (["benchmark=[bolq]"], ["benchmark", "bolq", "Did you mean boolq?"]),
    (["corpus=embeded"], ["embeded", "Did you mean embedded?"]),
    (["method=[min_kk]"], ["min_kk", "Did you mean min_k"]),
    (["injection.budget_tokns=5"], ["budget_tokns"]),
    (["training.learning_rate=fast"], ["learning_rate", "fast"]),
    (["cluster=torchrun", "cluster.node_rank=2"], ["cluster.node_rank is 2", "give 0 to 1"]),
    (["occurrences=fixed", "occurrences.count=-1"], ["occurrences.count is -1", "0 or more"]),
    (["benchmark=[imdb]", "injection.members=150"], ["imdb", "200", "150"]),
    (["model=llama_7b", "model.path=./nowhere"], ["model.path", "./nowhere", "no such folder"]),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The status and the words that each bad input gets, from one process."""
    runs = tmp_path_factory.mktemp("none") / "runs"
    asked = [[*arguments, f"runs={runs}"] for arguments, _ in BAD]
    done = subprocess.run(
        [sys.executable, "-c", ALL], input=json.dumps(asked), capture_output=True, text=True
    )
    assert not runs.exists()
    return json.loads(done.stdout.splitlines()[-1])


def launch(*arguments, module="launch"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("number", range(len(BAD)), ids=lambda n: BAD[n][0][-1])
def test_bad_input_is_one_paragraph_before_any_work(answers, number):
    status, said = answers[number]
    assert status == 2
    assert_one_paragraph(said, BAD[number][1])


def test_the_command_itself_says_it_and_nothing_else(tmp_path):
    arguments, parts = BAD[-1]
    run = launch(*arguments, f"runs={tmp_path}/runs")
    assert run.returncode == 2
    assert_one_paragraph(run.stderr, parts)
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
