"""The report's words follow from its numbers."""

from __future__ import annotations

import pandas as pd

from analysis.conditions import parts_of
from analysis.config import AnalysisConfig
from analysis.report import Picture, Section, markdown
from analysis.tables.tables import cell_tables

PICTURE = Picture("charts/chart.png", "AUROC against occurrences", "what it shows")


def text(results) -> str:
    sections = [Section("cell one", results, cell_tables(results), [PICTURE], ["Strongest: x."])]
    return markdown("trial", sections, AnalysisConfig(draws=200))


def test_a_report_whose_control_is_off_says_so_first(sound):
    assert "CONTROL OFF" not in text(sound)
    off = sound.copy()
    off.loc[off["method"] == "blind", "ci_low"] = 0.51
    report = text(off)
    words = "> **CONTROL OFF: The texts alone tell members"
    assert report.index(words) < report.index("- Strongest: x.")


def test_the_report_holds_every_table_and_the_chart(results):
    report = text(results)
    assert report.startswith("# trial: detection of contamination\n")
    assert "![AUROC against occurrences](charts/chart.png)" in report
    for table in cell_tables(results):
        assert table.markdown() in report


def test_conditions_keep_their_order(results):
    both = pd.concat([results.assign(condition="z"), results.assign(condition="a")])
    assert list(parts_of(both)) == ["z", "a"]
