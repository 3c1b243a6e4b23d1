"""A sweep of models over a labelled benchmark, in this process."""

import json
import sys

import pytest

from contamination.core.cli import run_hydra_command
from contamination.launch.downloads import fetch
from contamination.launch.run import conclude_sweep, run
from tests.data.benchmarks import layouts
from tests.detection.golden import GOLDEN

OLD = ("New", "Old")


@pytest.fixture
def launched(tmp_path, monkeypatch, capsys):
    folder = layouts.write(
        tmp_path / "files",
        {
            f"WikiMIA_length{n}.jsonl": [
                {"input": f"{OLD[i % 2]} words of page {i} and {n} more", "label": i % 2}
                for i in range(24)
            ]
            for n in (32, 64)
        },
    )

    def call(*words):
        given = ["experiment=wikimia", f"examples.path={folder}", "examples.setting=original",
                 "examples.length=[32,64]", f"runs={tmp_path}/runs", *words]  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["launch", *sorted(given)])  # -m goes first
        status = max(run_hydra_command("pipeline", run), conclude_sweep())
        return status, capsys.readouterr()

    return call


@pytest.mark.slow
def test_one_report_has_all_models(launched, tmp_path):
    models = ",".join(str(GOLDEN / name) for name in ("target", "reference"))
    status, _ = launched("-m", f"model.path={models}", "method=[loss]")
    assert status == 0
    (report,) = (tmp_path / "runs" / "launches").glob("wikimia-*/benchmark.md")
    assert report.read_text().count("golden/target") >= 3
    rows = json.loads(report.with_name("results.json").read_text())["results"]
    assert {row["model"] for row in rows} == set(models.split(","))
    assert {row["benchmark"] for row in rows} >= {"wikimia/32/original", "average"}


def test_nothing_of_it_is_fetched(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch", "experiment=wikimia", "model.path=x"])
    assert run_hydra_command("pipeline", fetch) == 2
    assert "give examples.path=DIR model.path=DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "model.path is None: give the model to score, or several: a,b,c."),
        (["model.path=x", "launch.stage=train"], "launch.stage is 'train': a benchmark has no"),
        (["model.path=x", "cluster=slurm"], "cluster.kind is 'slurm': a benchmark is scored here"),
        (["model.path=x", "method=[neighbor]"], "method.neighbor needs masked_lm.path"),
    ],
)
def test_what_it_can_not_do_is_said_first(launched, words, said):
    status, shown = launched(*words)
    assert status == 2
    assert said in shown.err
