from types import SimpleNamespace

import numpy as np
import pytest

from contamination.analysis.cells import name_apart
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.law.measurements import measure_cells
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
    with pytest.raises(DataError, match="no AUROC of members"):
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
