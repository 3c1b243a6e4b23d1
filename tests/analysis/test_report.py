"""The report's words follow from its numbers."""

from __future__ import annotations

import pandas as pd

from analysis.config import AnalysisConfig
from analysis.report import Picture, Section, markdown, parts_of
from analysis.summary import sentences
from analysis.tables.tables import cell_tables

PICTURE = Picture("charts/chart.png", "AUROC against occurrences", "what it shows")


def text(results) -> str:
    sections = [Section("cell one", results, cell_tables(results), [PICTURE])]
    return markdown("trial", sections, AnalysisConfig(draws=200))


def test_the_summary_names_the_strongest_method_and_the_dose(sound):
    strongest, dose, clean, blind = sentences(sound)
    rows = sound.query("metric == 'auroc' and benchmark == 'all' and checkpoint != 'clean'")
    best = rows.query("occurrences == 'any'").nlargest(1, "value").iloc[0]
    assert f"Strongest of 3 methods: {best['method']}, AUROC {best['value']:.2f}" in strongest
    assert f"the AUROC of {best['method']} goes from" in dose
    assert "all 3 intervals hold 0.5" in clean
    assert "its interval holds 0.5 (blind" in blind


def test_one_dose_has_no_trend(results):
    one = results[results["occurrences"].isin(["4", "any"])]
    assert len(sentences(one)) == 3
    assert len(sentences(results[results["occurrences"] == "any"])) == 3


def test_a_report_whose_control_is_off_says_so_first(sound):
    assert "CONTROL OFF" not in text(sound)
    off = sound.copy()
    off.loc[off["method"] == "blind", "ci_low"] = 0.51
    report = text(off)
    assert report.index("> **CONTROL OFF: blind baseline") < report.index("Strongest")
    assert "**OFF** for 1 of 1 (blind" in report


def test_the_report_holds_every_table_and_the_chart(results):
    report = text(results)
    assert report.startswith("# trial: detection of contamination\n")
    assert "![AUROC against occurrences](charts/chart.png)" in report
    for table in cell_tables(results):
        assert table.markdown() in report


def test_conditions_keep_their_order(results):
    both = pd.concat([results.assign(condition="z"), results.assign(condition="a")])
    assert list(parts_of(both)) == ["z", "a"]
