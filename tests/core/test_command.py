import subprocess
import sys

import pytest


def launch(*arguments, module="launch"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["benchmark=[bolq]"], ["benchmark", "bolq", "Did you mean boolq?"]),
        (["corpus=embeded"], ["embeded", "Did you mean embedded?"]),
        (["method=[min_kk]"], ["min_kk", "Did you mean min_k"]),
        (["injection.budget_tokns=5"], ["budget_tokns"]),
        (["cluster=torchrun", "cluster.node_rank=2"], ["cluster.node_rank is 2", "give 0 to 1"]),
        (["occurrences=fixed", "occurrences.count=-1"], ["occurrences.count is -1", "0 or more"]),
        (["benchmark=[imdb]", "injection.members=150"], ["imdb", "200", "150"]),
        (["model=llama_7b", "model.path=./nowhere"], ["model.path", "./nowhere", "no such folder"]),
    ],
)
def test_bad_input_is_one_paragraph_before_any_work(arguments, said, tmp_path):
    run = launch(*arguments, f"runs={tmp_path}/runs")
    assert run.returncode == 2, run.stderr
    paragraph = run.stderr.strip()
    assert paragraph.startswith("error: ")
    assert "\n" not in paragraph
    for part in said:
        assert part in paragraph
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("module", ["injection", "training", "detection", "analysis", "launch"])
def test_every_stage_shows_its_config(module):
    run = launch("--cfg", "job", module=module)
    assert run.returncode == 0, run.stderr
    assert "runs: runs" in run.stdout
