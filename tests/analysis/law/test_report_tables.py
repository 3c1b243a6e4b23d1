from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.analysis.cells import name_apart
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.law.measurements import COLUMNS, measure_cells
from contamination.analysis.law.report_tables import KEY, measure_report, measure_reports
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.core.errors import ConfigError, DataError
from tests.analysis.law.conftest import cells_of, simulate_cells


@pytest.fixture(scope="module")
def cells():
    return simulate_cells(learning_rates=(2e-3,), seeds=(0,), a_dose=12)


@pytest.fixture(scope="module")
def report(cells):
    config = AnalysisConfig(draws=200, fpr=[0.25], tpr=[0.75])
    tables = compute_statistics("x", 0, name_apart(cells_of(cells)), config)
    stored = {"analysis": {"confidence": config.confidence}}
    artifact = SimpleNamespace(path="runs/report/x", digest="x")
    return SimpleNamespace(**vars(tables), config=stored, artifact=artifact)


def test_the_tables_give_what_the_cells_give(cells, report):
    key = KEY[1:]
    tables = measure_report(report).set_index(key).sort_index()
    direct = measure_cells(cells, 1e4, halves=False).set_index(key).sort_index()
    assert tables["paired"].all()
    assert tables["cell"].unique().tolist() == direct["cell"].unique().tolist()
    for column in ("shift", "auroc"):
        np.testing.assert_allclose(tables[column], direct[column])
    assert (tables["shift_error"] / direct["shift_error"]).mean() == pytest.approx(1, abs=0.15)


def test_without_a_pair_the_shift_is_that_of_the_auroc(cells, report):
    single = SimpleNamespace(**{**vars(report), "replicates": report.replicates.iloc[:0]})
    table = measure_report(single)
    assert not table["paired"].any()
    high = table["auroc"] > 0.7
    assert (table.loc[high, "shift"] > 0.7).all()
    assert (table["shift_error"] > 0).all()


def test_a_report_without_copies_is_refused(report):
    empty = SimpleNamespace(**{**vars(report), "results": report.results.iloc[:0]})
    words = (
        "^runs/report/x: it has no AUROC of members at a number of copies. Give a report of cells "
        "with copies, and with 5 or more members at each number.$"
    )
    with pytest.raises(DataError, match=words):
        measure_report(empty)


def test_cells_of_one_name_in_two_reports_are_two_cells(report):
    other = SimpleNamespace(
        **{**vars(report), "artifact": SimpleNamespace(path="runs/report/y", digest="y")}
    )
    alone, both = measure_reports([report]), measure_reports([report, other])
    assert alone["cell"].nunique() == 1
    assert both["cell"].nunique() == 2
    assert not both.duplicated(KEY).any()
    with pytest.raises(ConfigError, match=r"reports.1 is runs/report/x: it is given twice"):
        measure_reports([report, report])


ROW = {
    "metric": "auroc", "checkpoint": "contaminated", "default": True, "needs": "",
    "benchmark": "imdb", "occurrences": "1", "n_members": 5, "n_nonmembers": 40, "seed": 0,
    "cell": "x-seed0", "model": "tiny", "learning_rate": 1e-3, "budget_tokens": 300_000,
    "method": "loss", "variant": "", "value": 0.6, "ci_low": 0.5, "ci_high": 0.7,
}  # fmt: skip


def make_report(rows, differences):
    """A report of these results, and of the pair x these differences at each dose."""
    replicates = [
        {"condition": "x", "seed": 0, "benchmark": "imdb", "method": "loss", "variant": variant,
         "occurrences": dose, "difference": value}
        for dose, values in differences.items() for value in values
        for variant in ("", "k=2")
        if variant == "" or value > 0
    ]  # fmt: skip
    return SimpleNamespace(
        results=pd.DataFrame([{**ROW, **row} for row in rows]),
        pooled=pd.DataFrame({"condition": ["x", "x-swapped", "y"], "parameters": [7, 7, 9]}),
        replicates=pd.DataFrame(replicates),
        config={"analysis": {"confidence": 0.8}},
        artifact=SimpleNamespace(path="runs/report/x", digest="x"),
    )


def test_a_row_is_the_mean_of_both_cells_of_a_pair_and_of_its_differences():
    swapped = {
        "cell": "x-swapped-seed0", "n_members": 6, "n_nonmembers": 41, "value": 0.7,
        "ci_low": 0.66, "ci_high": 0.74,
    }  # fmt: skip
    left_out = [
        {"metric": "tpr_at_fpr_0.05"}, {"checkpoint": "clean"}, {"default": False},
        {"needs": "≥ 20 members"}, {"benchmark": "all"}, {"occurrences": "any"}, {"n_members": 4},
    ]  # fmt: skip
    nine_differences = {"occurrences": "2", "value": 0.8, "ci_low": 0.7, "ci_high": 0.9}
    certain = {"cell": "y-seed3", "seed": 3, "value": 1.0, "learning_rate": 2e-3}
    differences = [0.1, 0.5, 0.3, 0.7, 0.2, 0.4, 0.9, 0.6, 0.8, 1.0]
    rows = [{}, swapped, nine_differences, certain, *({"value": 0.99, **row} for row in left_out)]
    table = measure_report(make_report(rows, {1: differences, 2: differences[:9]}))
    width = 2 * norm.ppf(0.9)
    facts = {"model": "tiny", "budget_tokens": 300_000, "benchmark": "imdb", "method": "loss"}
    slope_few = np.sqrt(2) / norm.pdf(norm.ppf(0.8))
    slope_certain = np.sqrt(2) / norm.pdf(norm.ppf(1 - 1e-4))
    expected = [
        {"cell": "x-seed0", "parameters": 7, "learning_rate": 1e-3, "seed": 0, "occurrences": 1,
         "n_members": 11, "n_nonmembers": 81, "shift": 0.55, "auroc": 0.65,
         "shift_error": np.std(differences, ddof=1) / np.sqrt(10),
         "auroc_error": np.hypot(0.2, 0.08) / width / 2, "paired": True},
        {"cell": "x-seed0", "parameters": 7, "learning_rate": 1e-3, "seed": 0, "occurrences": 2,
         "n_members": 5, "n_nonmembers": 40, "shift": np.sqrt(2) * norm.ppf(0.8), "auroc": 0.8,
         "shift_error": slope_few * 0.2 / width, "auroc_error": 0.2 / width, "paired": False},
        {"cell": "y-seed3", "parameters": 9, "learning_rate": 2e-3, "seed": 3, "occurrences": 1,
         "n_members": 5, "n_nonmembers": 40, "shift": 9.0, "auroc": 1.0,
         "shift_error": slope_certain * 0.2 / width, "auroc_error": 0.2 / width, "paired": False},
    ]  # fmt: skip
    assert list(table.columns) == list(COLUMNS)
    assert table[["recency", "member_variance"]].isna().all(axis=None)
    records = table.drop(columns=["recency", "member_variance"]).to_dict("records")
    for row, expected_row in zip(records, expected, strict=True):
        assert row == pytest.approx({**facts, **expected_row})


def test_a_repeated_name_begins_with_the_number_of_its_report():
    first_report = make_report([{}], {})
    second_report = make_report([{}, {"cell": "y-seed1", "seed": 1}], {})
    second_report.artifact = SimpleNamespace(path="runs/report/y", digest="y")
    table = measure_reports([first_report, second_report])
    assert table["cell"].tolist() == ["0:x-seed0", "1:x-seed0", "y-seed1"]
    assert table.index.tolist() == [0, 1, 2]
