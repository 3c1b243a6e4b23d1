"""`make results`: its experiments exist, and a report's charts and tables are copied."""

import json
from types import SimpleNamespace

import pytest

from contamination.core.errors import ConfigError
from perf import results
from tests.doc_commands import ROOT


def test_its_experiments_exist():
    files = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    assert {*results.EXPERIMENTS} <= files


def test_an_unknown_experiment_is_refused_before_any_runs():
    with pytest.raises(ConfigError, match="Did you mean frequency"):
        results.make_results(["quickstart", "frequencies"])


def test_charts_and_tables_are_copied(monkeypatch, tmp_path):
    folder = tmp_path / "runs" / "report" / "one-0123456789ab"
    for name in ("charts/roc.pdf", "charts/roc.png", "tables/auroc.csv", "tables/auroc.tex"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder.parent / "latest.json").write_text(json.dumps({"folder": folder.name}))
    report = SimpleNamespace(artifact=SimpleNamespace(path=folder))
    monkeypatch.setattr(results, "open_report", lambda path: report if path == folder else None)
    stale = tmp_path / "out" / "frequency" / "old.csv"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    results.copy_report(tmp_path / "runs", stale.parent)
    assert sorted(path.name for path in stale.parent.iterdir()) == [
        "auroc.csv",
        "roc.pdf",
        "roc.png",
    ]
