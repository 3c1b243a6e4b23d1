"""The mirror in Weights & Biases, written offline by the real client and read back."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import wandb

from contamination.analysis.__main__ import run_named_tool
from contamination.analysis.cells import Cell
from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths, WandbReport
from contamination.analysis.report_folder import Report, open_report
from contamination.analysis.statistics.results_table import COLUMNS
from contamination.analysis.tables.estimates import cell_tables
from contamination.analysis.wandb import keys as wandb_keys
from contamination.analysis.wandb import read as wandb_read
from contamination.analysis.wandb.read import write_wandb_report
from contamination.analysis.wandb.runs import _training_runs, mirror_to_wandb
from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.errors import ConfigError, DataError
from contamination.training.config import WandbConfig
from tests.analysis.conftest import results_table
from tests.analysis.small_report import row

ROOT = Path(__file__).resolve().parents[3]
KEY = [name for name in COLUMNS if name not in ("value", "ci_low", "ci_high")]

needs_reader = pytest.mark.usefixtures("reader")


def trained(runs: Path, rate: float) -> Artifact:
    """A model folder as far as the mirror reads it: name, experiment, losses."""
    folder = run_folder(runs, "model", "tiny", {"rate": rate}, {})

    def make(folder: Path) -> WrittenFiles:
        lines = [
            {"step": 1, "loss": 4.0, "mfu": None},
            {"step": 2, "loss": 3.5 + rate, "mfu": None},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return WrittenFiles(["metrics.jsonl"])

    return build_or_open(folder, {"name": "trial", "rate": rate}, {}, make)


def report_of(runs: Path, results: pd.DataFrame) -> Report:
    """A finished report, with a chart of the cell and one of another cell."""

    def make(folder: Path) -> WrittenFiles:
        results.to_parquet(folder / "results.parquet", index=False)
        (folder / "charts").mkdir()
        names = [f"charts/roc-{name}.svg" for name in (results["cell"].iloc[0], "another")]
        for name in names:
            (folder / name).write_text("<svg/>")
        return WrittenFiles(["results.parquet", *names])

    return open_report(
        build_or_open(run_folder(runs, "report", "trial", {}, {}), {}, {}, make).path
    )


def of_model(cell: Cell, model: Artifact) -> Cell:
    return dataclasses.replace(cell, digests={**cell.digests, "model": model.digest})


def stage_of(runs: Path, models: list[Artifact], mode: str = "offline") -> AnalysisStage:
    return AnalysisStage(
        name="trial",
        seed=0,
        runs=str(runs),
        cells=[CellPaths("c", str(model.path), "s", "s") for model in models],
        analysis=AnalysisConfig(draws=50),
        wandb=WandbConfig(mode=mode, project="a-project"),
    )


@pytest.fixture(scope="module")
def logged(cell, tmp_path_factory) -> SimpleNamespace:
    """One cell mirrored offline, after its training's run was."""
    runs = tmp_path_factory.mktemp("runs")
    model = trained(runs, cell.learning_rate)
    cell = of_model(cell, model)
    results = results_table("trial", 0, [cell], AnalysisConfig(draws=50))
    report = report_of(runs, results)
    other = trained(runs, 2.0)
    stage = stage_of(runs, [model, other])
    identity = model.path.name.rsplit("-", 1)[-1]
    with wandb.init(
        project="a-project", id=identity, mode="offline", dir=str(runs),
        settings=wandb.Settings(silent=True),
    ) as run:  # fmt: skip
        run.log({"train/loss": 4.0})
    another = dataclasses.replace(
        cell, name="another", condition="another", digests={**cell.digests, "model": other.digest}
    )
    mirror_to_wandb(stage, [cell, another], report)
    _, folder = sorted((runs / "wandb").glob(f"offline-run-*-{identity}*"))
    return SimpleNamespace(
        runs=runs, model=model, cell=cell, results=results, stage=stage, report=report,
        folder=folder, id=identity,
    )  # fmt: skip


def doses_named(summary: dict[str, object]) -> set[str]:
    """What stands after `by_occurrences/` in the summary's keys."""
    return {key.split("/")[1] for key in summary if key.startswith("by_occurrences/")}


def in_order(results: pd.DataFrame) -> pd.DataFrame:
    return results[list(COLUMNS)].sort_values(KEY).reset_index(drop=True)


def test_keys_are_flat_and_lead_back_to_the_results(results):
    summary = wandb_keys.summary_values(results)
    curves = wandb_keys.occurrences_history_rows(results)
    assert {"auroc/min_k/boolq", "tpr_at_fpr_0.25/loss/all", "clean/auroc/loss/imdb",
            "clean/auroc/blind/all", "ci_low/auroc/min_k/boolq"} < summary.keys()  # fmt: skip
    assert [row["occurrences"] for row in curves] == [1, 2, 4, 8]
    assert "by_occurrences/auroc/min_k/boolq" in curves[0]
    at_four = results.query(
        "occurrences == '4' and metric == 'auroc' and method == 'min_k' and benchmark == 'boolq'"
        " and checkpoint == 'contaminated'"
    )
    assert summary["by_occurrences/4/auroc/min_k/boolq"] == at_four["value"].item()
    assert doses_named(summary) == {"1", "2", "4", "8"}
    first = results.iloc[0]
    cell = {
        **{name: first[name] for name in COLUMNS},
        "methods": wandb_keys.method_by_label(results),
    }
    back = pd.DataFrame(wandb_keys.parse_result_rows(summary, curves, cell))
    pd.testing.assert_frame_equal(in_order(back), in_order(results), check_dtype=False)


def test_several_variants_stand_in_the_key(results):
    other = results[results["method"] == "min_k"].assign(variant="k=0.4", default=False)
    both = pd.concat([results, other])
    assert "auroc/min_k (k=0.4)/boolq" in wandb_keys.summary_values(both)
    assert wandb_keys.method_by_label(both)["min_k (k=0.4)"] == {
        "method": "min_k", "variant": "k=0.4", "default": False,
    }  # fmt: skip


def test_each_key_has_its_value():
    rows = pd.DataFrame([
        row(0.7, benchmark="imdb"), row(0.51, checkpoint="clean", p_control=0.2),
        row(np.nan, method="zlib", needs="≥ 20 members", n_members=3),
        row(0.6, occurrences="1", n_members=8), row(0.9, occurrences="10", n_members=9),
        row(0.3, occurrences="1", checkpoint="clean", method="blind"),
        row(np.nan, occurrences="2", needs="≥ 5 members"),
    ])  # fmt: skip
    ends = {"ci_low": -0.1, "ci_high": 0.1}

    def estimate(key: str, value: float) -> dict[str, float]:
        return {key: value, **{f"{end}/{key}": value + away for end, away in ends.items()}}

    expected = {
        **estimate("auroc/loss/imdb", 0.7), "n_members/imdb": 40, "n_nonmembers/imdb": 50,
        **estimate("clean/auroc/loss/all", 0.51), "p_control/clean/auroc/loss/all": 0.2,
        "needs/auroc/zlib/all": "≥ 20 members", "n_members/all": 3, "n_nonmembers/all": 50,
        "by_occurrences/1/auroc/loss/all": 0.6, "by_occurrences/10/auroc/loss/all": 0.9,
    }  # fmt: skip
    assert wandb_keys.summary_values(rows) == pytest.approx(expected)
    at_1, at_2, at_10 = wandb_keys.occurrences_history_rows(rows)
    start = "by_occurrences/"
    values_at_1 = {**estimate("auroc/loss/all", 0.6), **estimate("clean/auroc/blind/all", 0.3)}
    values_at_1 |= {"n_members/all": 40, "n_nonmembers/all": 50}
    expected = {"occurrences": 1, **{start + key: value for key, value in values_at_1.items()}}
    assert at_1 == pytest.approx(expected)
    assert at_2["occurrences"] == 2
    assert at_2[f"{start}needs/auroc/loss/all"] == "≥ 5 members"
    assert (at_10["occurrences"], at_10[f"{start}n_members/all"]) == (10, 9)
    cell = {"methods": wandb_keys.method_by_label(rows), "model": "tiny", "seed": 4}
    unknown_keys = {"loss/train": 3.0, "a/b/c/d": 1.0, "auroc/unknown/all": 0.5}
    summary = {**wandb_keys.summary_values(rows), **unknown_keys}
    history = [at_10, {"loss/train": 1.0}, at_1, at_2]
    parsed = wandb_keys.parse_result_rows(summary, history, cell)
    keys = [(r["occurrences"], r["checkpoint"], r["method"], r["benchmark"]) for r in parsed]
    assert keys == [
        ("any", "contaminated", "loss", "imdb"), ("any", "clean", "loss", "all"),
        ("any", "contaminated", "zlib", "all"), ("1", "contaminated", "loss", "all"),
        ("1", "clean", "blind", "all"), ("2", "contaminated", "loss", "all"),
        ("10", "contaminated", "loss", "all"),
    ]  # fmt: skip
    contaminated, clean, unmeasured = parsed[:3]
    assert set(contaminated) == {*COLUMNS, "p_control"}
    assert contaminated == pytest.approx({
        **dict.fromkeys(COLUMNS), **cell_facts_of(contaminated), "model": "tiny", "seed": 4,
        "metric": "auroc", "needs": "", "value": 0.7, "ci_low": 0.6, "ci_high": 0.8,
        "n_members": 40, "n_nonmembers": 50, "p_control": np.nan,
    }, nan_ok=True)  # fmt: skip
    assert clean["p_control"] == 0.2
    assert np.isnan([unmeasured[name] for name in ("value", *ends)]).all()
    assert (unmeasured["needs"], unmeasured["n_members"]) == ("≥ 20 members", 3)


def cell_facts_of(result):
    names = ("checkpoint", "benchmark", "occurrences", "method", "variant", "default")
    return {name: result[name] for name in names}


def test_a_dose_that_was_logged_twice_counts_once(results):
    curves = wandb_keys.occurrences_history_rows(results)
    cell = {"methods": wandb_keys.method_by_label(results)}
    assert len(wandb_keys.parse_result_rows({}, curves + curves, cell)) == len(
        wandb_keys.parse_result_rows({}, curves, cell)
    )


@needs_reader
def test_the_offline_record_reads_back_equal(logged):
    back = wandb_read.read_results(WandbReport(local=str(logged.runs / "wandb")))
    pd.testing.assert_frame_equal(in_order(back), in_order(logged.results), check_exact=True)


@needs_reader
def test_the_run_is_its_trainings_and_can_be_filtered(logged):
    (path,) = logged.folder.glob("*.wandb")
    records = wandb_read._inspect_record(path)
    (run,) = [record["run"] for record in records if record["type"] == "run"]
    assert (run["run_group"], run["project"], run["run_id"]) == ("trial", "a-project", logged.id)
    assert run["resume"]  # so that `wandb sync` adds it to the training's record
    cell = run["config"]["update"]["cell"]
    assert (cell["learning_rate"], cell["seed"], cell["model"]) == (1e-3, 0, "tiny_llama")
    assert cell["artifacts"] == dict(logged.cell.digests)
    steps = {r["metric"].get("name"): r["metric"].get("step_metric")
             for r in records if r["type"] == "metric"}  # fmt: skip
    logged_keys = {
        key for row in wandb_keys.occurrences_history_rows(logged.results) for key in row
    }
    for key in logged_keys - {"occurrences"}:
        assert steps[key.replace(".", r"\.")] == "occurrences", key
    hidden = {r["metric"].get("name"): r["metric"]["options"].get("hidden", False)
              for r in records if r["type"] == "metric"}  # fmt: skip
    assert hidden["occurrences"]  # the curves' axis has no panel of its own
    assert not hidden["by_occurrences/auroc/loss/all"]
    assert run["job_type"] == "train"
    (whole,) = wandb_read._inspect_record(path, "--summary")
    assert whole["summary"]["train/loss"] == 3.5 + logged.cell.learning_rate
    assert doses_named(whole["summary"]) == {"1", "2", "4", "8"}
    assert "occurrences" not in whole["summary"]
    assert "train/mfu" not in whole["summary"]


def test_its_tables_and_charts_lie_in_the_record(logged):
    files = logged.folder / "files"
    tables = cell_tables(logged.results)
    shown = {re.split(r"_\d+_[0-9a-f]+\.", path.name)[0]: json.loads(path.read_text())
             for path in files.glob("media/table/tables/*.table.json")}  # fmt: skip
    assert {name: (table["columns"], table["data"]) for name, table in shown.items()} == {
        table.name: (list(table.header), [list(line) for line in table.lines]) for table in tables
    }
    attached = {path.name for path in files.glob("tables/*")}
    assert attached == {f"{table.name}.{kind}" for table in tables for kind in ("md", "csv", "tex")}
    assert not (files / "tables/controls.md").is_symlink()
    assert f"## {logged.cell.name}" in (files / "tables/controls.md").read_text()
    assert [path.name for path in files.glob("charts/*")] == [f"roc-{logged.cell.name}.svg"]


@pytest.mark.slow
@needs_reader
def test_the_command_writes_the_report(logged):
    line = [sys.executable, "-m", "analysis", "wandb", f"local={logged.runs / 'wandb'}",
            f"runs={logged.runs}"]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (logged.runs / "report").glob("wandb-local-*")
    assert str(folder) in done.stdout
    back = pd.read_parquet(folder / "results.parquet")
    pd.testing.assert_frame_equal(in_order(back), in_order(logged.results))
    text = (folder / "tables/auroc_by_occurrences.md").read_text()
    assert cell_tables(logged.results)[0].markdown() in text
    assert (folder / "report.md").is_file()


def test_disabled_does_nothing(logged, tmp_path):
    stage = dataclasses.replace(logged.stage, runs=str(tmp_path), wandb=WandbConfig("disabled"))
    mirror_to_wandb(stage, [logged.cell], logged.report)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_mirror_is_a_warning(logged, monkeypatch, caplog):
    def refused(**_: object) -> None:
        raise wandb.errors.CommError("no network")

    monkeypatch.setattr("wandb.init", refused)
    mirror_to_wandb(logged.stage, [logged.cell], logged.report)
    assert "The report is finished, but Weights & Biases failed (no network)" in caplog.text


def test_cells_of_one_model_get_a_run_each(logged):
    other = dataclasses.replace(
        logged.cell, name="b", digests={**logged.cell.digests, "contaminated": "abcdefgh"}
    )
    runs = _training_runs(logged.stage, [logged.cell, other])
    assert runs["b"].id == f"{logged.id}-abcdef"
    assert len({run.id for run in runs.values()}) == 2
    assert {run.group for run in runs.values()} == {"trial"}
    assert {run.job_type for run in runs.values()} == {"analyse"}  # no training made them


class Online:
    """A run as the public API gives it."""

    def __init__(self, name: str, results: pd.DataFrame, experiment: str = "trial") -> None:
        first = results.iloc[0]
        cell = {c: first[c] for c in COLUMNS}
        self.id = name
        self.config = {
            "cell": {
                **cell,
                "experiment": experiment,
                "methods": wandb_keys.method_by_label(results),
            },
            "training": {"learning_rate": 1e-3},
        }
        self.summary = {**wandb_keys.summary_values(results), "train/loss": 1.0, "_step": 9}
        self._history = [
            {"train/loss": 2.0, "_step": 1},
            *wandb_keys.occurrences_history_rows(results),
        ]

    def scan_history(self) -> list[dict[str, float]]:
        return self._history


def online(monkeypatch, *runs: object) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(
        "wandb.Api",
        lambda: SimpleNamespace(runs=lambda place, order: asked.append(place) or list(runs)),
    )
    return asked


def test_a_project_online_reads_back_equal(monkeypatch, results, tmp_path):
    training_only = SimpleNamespace(id="b", config={}, summary={})
    asked = online(monkeypatch, training_only, Online("a", results))
    stage = WandbReport(runs=str(tmp_path), project="p", entity="e")
    pd.testing.assert_frame_equal(
        in_order(wandb_read.read_results(stage)), in_order(results), check_dtype=False
    )
    assert asked == ["e/p"]
    assert write_wandb_report(stage).path.name.startswith("wandb-p-")


def test_experiments_are_told_apart(monkeypatch, results):
    online(monkeypatch, Online("a", results), Online("b", results, "other"))
    both = wandb_read.read_results(WandbReport(project="p"))
    name = results["cell"].iloc[0]
    assert set(both["cell"]) == {f"{name}-a", f"{name}-b"}
    one = wandb_read.read_results(WandbReport(project="p", experiment="other"))
    assert set(one["cell"]) == {name}
    with pytest.raises(DataError, match="p contains no run with results of third"):
        wandb_read.read_results(WandbReport(project="p", experiment="third"))


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match="contains no run with results"):
        wandb_read.read_results(WandbReport(local=str(tmp_path)))
    for both in ({}, {"project": "p", "local": "l"}):
        with pytest.raises(ConfigError, match="give either project=NAME or local=FOLDER"):
            WandbReport(**both)


@needs_reader
def test_a_torn_record_is_named(tmp_path):
    folder = tmp_path / "offline-run-1-a"
    folder.mkdir()
    (folder / "run-a.wandb").write_bytes(b"no record")
    with pytest.raises(DataError, match=r"run-a\.wandb can't be read"):
        wandb_read.read_results(WandbReport(local=str(tmp_path)))


def test_an_experiment_is_named_whatever_conf_has_of_that_name(tmp_path, monkeypatch, capsys):
    words = ["wandb", f"local={tmp_path}", "experiment=quickstart", f"runs={tmp_path}/runs"]
    monkeypatch.setattr(sys, "argv", ["analysis", *words])
    assert run_named_tool() == 2
    assert "no run with results of quickstart" in capsys.readouterr().err
