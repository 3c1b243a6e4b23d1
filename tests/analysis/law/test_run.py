import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.law import run as law_run
from contamination.analysis.law import stored_law
from contamination.analysis.law.config import LawStage
from contamination.analysis.law.report import law_document, save_law_chart
from contamination.analysis.law.run import fit_and_compare, held_out_rows, predict_settings
from contamination.analysis.law.stored_law import open_law
from contamination.core.cli import compose_stage
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.files import hashed_json, write_text_atomically
from contamination.core.report.document import markdown_document
from perf.law_simulation import SimulatedLaw, simulate_rows
from tests.analysis.law.conftest import simulate_cells

FACTORS = ["occurrences", "learning_rate"]


@pytest.fixture(scope="module")
def results():
    cells = simulate_cells(learning_rates=(1e-3, 2e-3, 4e-3))
    return fit_and_compare(
        LawStage(
            reports=["x"], factors=FACTORS, held_out=[{"learning_rate": 2e-3}],
            predict=[{"occurrences": 3, "learning_rate": 2e-3}],
        ),
        cells,
    )  # fmt: skip


def test_the_simulated_exponents_are_found(results):
    found = results.law.coefficients()
    assert found["occurrences"][0] == pytest.approx(0.9, abs=0.08)
    assert found["learning_rate"][0] == pytest.approx(0.3, abs=0.1)
    assert results.law.within["loss"] == pytest.approx(0.3, abs=0.05)


def test_held_out_cells_are_predicted_and_not_fitted(results):
    fitted = results.measurements[~results.measurements["held_out"]]
    assert set(fitted["learning_rate"]) == {1e-3, 4e-3}
    assert set(results.held_out["learning_rate"]) == {2e-3}
    assert set(results.held_out["outside"]) == {""}
    errors = results.errors.set_index(["held_out", "predictor"])
    assert errors.loc[("inside", "law"), "mae"] < 0.03


def test_the_text_has_the_coefficients_and_the_chart_is_drawn(results, tmp_path):
    text = markdown_document(law_document(results))
    assert "exponents are α (copies)" in text
    assert "agrees with the removal of σ_between alone" in text or "differs from" in text
    for path in save_law_chart(results, tmp_path):
        assert path.stat().st_size > 10_000


def test_a_growth_at_its_bound_is_warned_of(results):
    assert "not identified" not in markdown_document(law_document(results))
    growth = {**results.law.growth, "loss": -1.49999}
    text = markdown_document(
        law_document(replace(results, law=replace(results.law, growth=growth)))
    )
    assert "κ of loss (-1.5) is at the bound of the fit, ±1.5: it is not identified" in text


def test_the_prediction_is_near_the_truth(results):
    row = results.predictions[results.predictions["method"] == "loss"].iloc[0]
    assert row["shift"] == pytest.approx(0.4 * 3**0.9, rel=0.15)
    assert row["low"] < row["auroc"] < row["high"] < row["strong_auroc"]


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ([{"colour": 1}], "colour: unknown column"),
        ([{"seed": 9}], "selects no cell"),
        ([{}], "selects no cell"),
        ([{"seed": [0, 1]}], "selects all cells"),
    ],
)
def test_a_rule_that_selects_nothing_or_everything_is_refused(rules, word):
    rows = pd.DataFrame({"seed": [0, 1], "auroc": [0.5, np.nan]})
    with pytest.raises(ConfigError, match=word):
        held_out_rows(rows, rules)


def test_a_folder_is_written_once_and_its_law_is_read_back(tmp_path, monkeypatch):
    cells = simulate_cells(learning_rates=(1e-3, 4e-3), a_dose=12)
    monkeypatch.setattr(law_run, "cell_paths", lambda field, report: [])
    monkeypatch.setattr(law_run, "open_measured_cells", lambda paths: cells)
    stage = LawStage(reports=["x"], factors=FACTORS, runs=str(tmp_path))
    artifact = law_run.run(stage)
    assert {"fit.json", "law.md", "law.png", "within.csv", "coefficients.parquet"} <= {
        *artifact.files
    }
    assert open_law("fit", artifact.path).cells == 4
    assert law_run.run(stage).path == artifact.path


def test_reports_own_tables_are_fitted_and_the_conclusions_logged(tmp_path, monkeypatch, caplog):
    rows = simulate_rows(
        SimulatedLaw(), np.random.default_rng(3), methods=("loss", "zlib"), seeds=1,
        benchmarks=("boolq", "imdb"), learning_rates=(1e-3, 2e-3, 4e-3, 8e-3), copies=(1, 4),
    ).assign(recency=np.nan)  # fmt: skip
    reports = {name: SimpleNamespace(artifact=SimpleNamespace(digest=name * 3)) for name in "ab"}
    monkeypatch.setattr(law_run, "open_report", reports.__getitem__)
    monkeypatch.setattr(law_run, "measure_reports", lambda opened: rows if opened else None)
    stage = LawStage(
        name="of tables", reports=["a", "b"], tables=True, factors=FACTORS, runs=str(tmp_path)
    )
    with caplog.at_level("INFO"):
        artifact = law_run.run(stage)
    assert artifact.inputs == {"report0": "aaa", "report1": "bbb", "revision": "3"}
    assert artifact.counts == {"cells": 4, "rows": len(rows)}
    assert artifact.path.parent == tmp_path / "law"
    tables = ("measurements", "coefficients", "fitted")
    table_files = {f"{name}.{suffix}" for name in tables for suffix in ("csv", "parquet")}
    charts = {f"law.{suffix}" for suffix in ("png", "svg", "pdf")}
    assert {*artifact.files} == {*table_files, *charts, "fit.json", "law.md"}
    messages = [record.getMessage() for record in caplog.records if record.name == law_run.__name__]
    assert messages[-1] == f"law: {artifact.path / 'law.md'}"
    assert messages[-2].startswith("Calibration was not tested")
    assert messages[-3].startswith("The shift δ of a member's score is ")
    text = (artifact.path / "law.md").read_text()
    assert text.startswith("# of tables: the law of detectability\n\n**The shift")
    assert open_law("fit", artifact.path).within == {}


def test_a_damaged_fit_is_named_with_its_remedy(tmp_path, monkeypatch):
    write_text_atomically(tmp_path / "fit.json", hashed_json({"names": []}))
    artifact = SimpleNamespace(path=tmp_path)
    monkeypatch.setattr(
        stored_law, "open_artifact", lambda *args: {(tmp_path, "law"): artifact}[args]
    )
    words = (
        rf"^power\.law is {re.escape(str(tmp_path))}: fit\.json can't be used: .*\. Run "
        r"`contamination analyse law` again\.$"
    )
    with pytest.raises(ArtifactError, match=words):
        open_law("power.law", tmp_path)


def test_cells_with_few_members_are_refused_with_the_remedy():
    cells = simulate_cells(learning_rates=(1e-3,), seeds=(0,), a_dose=4)
    words = r"^reports: no cell has enough members at a number of copies to measure a shift\. Give "
    with pytest.raises(ConfigError, match=words):
        fit_and_compare(LawStage(reports=["x"], factors=FACTORS), cells)


def test_a_rule_selects_the_rows_that_have_all_its_values():
    rows = pd.DataFrame({"seed": [0, 0, 1, 2], "method": ["a", "b", "a", "b"], "auroc": 0.5})
    assert held_out_rows(rows, []).tolist() == [False] * 4
    assert held_out_rows(rows, [{"seed": 0, "method": "b"}]).tolist() == [False, True, False, False]
    two_rules = [{"seed": [1, 2], "method": ["a"]}, {"seed": (0,), "method": "b"}]
    assert held_out_rows(rows, two_rules).tolist() == [False, True, True, False]
    for column in ("auroc", "shift"):
        with pytest.raises(ConfigError, match=rf"^held_out\.1\.{column}: unknown column"):
            held_out_rows(rows, [{"seed": 0}, {column: 0.5}])


def test_rules_and_settings_are_read_from_the_command_line():
    stage = compose_stage(
        "law",
        [
            "reports=[a,b]",
            "held_out=[{model:tiny_llama_4m},{learning_rate:2e-3,occurrences:[4,8]}]",
            "predict=[{occurrences:3,method:new}]",
        ],
        LawStage,
    )
    assert stage.held_out[1] == {"learning_rate": 2e-3, "occurrences": [4, 8]}
    assert stage.predict == [{"occurrences": 3, "method": "new"}]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"tokens_since": "late"}, r"predict.0 is .*late.*give numbers"),
        ({"parameters": 1e9}, r"predict.0.parameters is 1e.09: it is not in the law"),
    ],
)
def test_a_setting_that_the_law_does_not_have_is_refused(results, setting, words):
    law = replace(results.law, constant={**results.law.constant, "parameters": None})
    known = {"occurrences": 3, "learning_rate": 2e-3}
    with pytest.raises(ConfigError, match=words):
        predict_settings(law, LawStage(reports=["x"], predict=[{**known, **setting}]))
