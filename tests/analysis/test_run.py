"""The whole stage on made-up cells."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pandas as pd
import pytest

from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.report_folder import REVISION, open_report
from contamination.analysis.run import write_report
from contamination.core.artifacts import is_complete
from contamination.core.errors import ArtifactError


def stage(runs: Path, **changes) -> AnalysisStage:
    where = CellPaths("corpus", "model", "clean", "contaminated")
    chosen = {"name": "trial", "seed": 0, "analysis": AnalysisConfig(draws=50), **changes}
    return AnalysisStage(runs=str(runs), cells=[where], **chosen)


@pytest.fixture(scope="module")
def written(cell, tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    return write_report(stage(runs), [cell]).path


def test_the_folder_holds_what_its_manifest_lists(written, cell):
    files = {str(p.relative_to(written)) for p in written.rglob("*") if p.is_file()}
    report = open_report(written)
    listed = {*report.artifact.files, *report.artifact.records}
    assert files == {*listed, "manifest.json"}
    assert {"results.parquet", "report.md", "tables/controls.csv"} < set(report.artifact.files)
    assert "report.html" in report.artifact.records  # it says when it was written
    charts = ("auroc_by_occurrences", "auroc_by_benchmark", "roc", "scores")
    assert {f"charts/{chart}-{cell.condition}.svg" for chart in charts} < files
    assert report.artifact.inputs == {**cell.inputs, "statistics": REVISION}
    assert report.artifact.counts == {"cells": 1, "estimates": len(report.results)}
    assert report.config["analysis"]["draws"] == 50


def test_links_in_the_report_lead_to_files(written):
    links = re.findall(r"\]\((.+?)\)", (written / "report.md").read_text())
    assert links
    assert all((written / link).is_file() for link in links)


def test_latest_names_the_newest_report(written):
    assert json.loads((written.parent / "latest.json").read_text()) == {"folder": written.name}


def test_the_same_cells_give_the_same_bytes_anywhere(written, make, tmp_path):
    again = write_report(stage(tmp_path), [make()])
    assert again.path.name == written.name
    assert again.files == open_report(written).artifact.files


def test_a_finished_report_is_reused_and_still_shown(written, cell, caplog):
    before = (written / "manifest.json").stat().st_mtime_ns
    with caplog.at_level(logging.INFO):
        write_report(stage(written.parents[1]), [cell])
    assert (written / "manifest.json").stat().st_mtime_ns == before
    assert "| min_k_plus_plus |" in caplog.text
    assert "Controls: clean model within chance of 0.5 (worst benchmark: imdb, min_k" in caplog.text
    assert f"report: {written / 'report.md'}" in caplog.text


def test_an_unfinished_report_is_made_again(written, cell, tmp_path):
    folder = tmp_path / "report" / written.name
    (folder / "tables").mkdir(parents=True)
    (folder / "results.parquet").write_bytes(b"half")
    assert not is_complete(folder)
    assert write_report(stage(tmp_path), [cell]).files == open_report(written).artifact.files


def test_a_sweep_begins_with_its_answer_and_the_order_of_cells_does_not_matter(
    make, tmp_path, caplog, monkeypatch
):
    caplog.set_level(logging.INFO)
    cells = [make(benchmarks=["boolq"], a_dose=4, learning_rate=rate) for rate in (1e-3, 1e-4)]
    one = write_report(stage(tmp_path / "a"), cells)
    answer, headline, title, *_, controls, _ = [m for m in caplog.messages if m.startswith("\n")]
    assert answer.startswith("\nWith a peak learning rate of 1e-4, members are ")
    assert headline.startswith("\nAUROC of ")
    assert " with peak learning rate from 1e-4 to 1e-3 " in headline
    assert title.startswith("\nAUROC by peak learning rate: ")
    assert controls.startswith("\nControls: ")
    assert len(caplog.text.splitlines()) < 60
    monkeypatch.setattr("contamination.analysis.run.MOST_TABLES", 0)
    two = write_report(stage(tmp_path / "b"), cells[::-1])
    assert "\nTables in the report alone: 1." in caplog.messages
    assert (one.path.name, one.digest) == (two.path.name, two.digest)
    assert open_report(one.path).results["cell"].nunique() == 2
    assert len(list((one.path / "charts").glob("*.png"))) == 2 * 4 + 1
    assert (one.path / "charts/auroc_by_learning_rate.png").is_file()
    table = pd.read_csv(one.path / "tables/auroc_by_benchmark.csv", keep_default_na=False)
    assert table["condition"].nunique() == 2


def test_opening_says_what_is_wrong(tmp_path):
    with pytest.raises(ArtifactError, match="does not exist"):
        open_report(tmp_path / "nothing")
