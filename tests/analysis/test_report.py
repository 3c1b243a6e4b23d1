"""The report's words follow from its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from contamination.analysis import report_files
from contamination.analysis.charts.gallery import SavedChart
from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.plain_summary import TERMS
from contamination.analysis.report_files import ON_CONTROLS, Picture, Section, render_markdown
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.summary import reading_guide
from contamination.analysis.tables.estimates import cell_tables
from contamination.core.report.tables import escape_markdown
from tests.analysis import small_report

PICTURE = Picture("charts/chart.png", "AUROC against occurrences", "what it shows")


@pytest.fixture
def text(findings) -> Callable[[pd.DataFrame], str]:
    def write(results):
        tables = cell_tables(results)
        sections = [Section("cell one", results, tables, [PICTURE], ["Strongest: x."])]
        return render_markdown(
            replace(findings, answer=["Members are found."], headline=["It rises."]), sections
        )

    return write


def test_the_answer_and_the_controls_come_before_all_else(text, sound, findings):
    title, answer, controls, terms, section = text(sound).split("\n\n")[:5]
    assert [answer, controls, terms] == ["Members are found.", findings.plain_controls, TERMS]
    assert section == "## cell one"
    assert text(sound).index("It rises.") < text(sound).index(findings.controls)


def test_a_report_whose_control_is_off_says_so_first(text, sound):
    assert "CONTROL OFF" not in text(sound)
    off = sound.copy()
    of_blind = (off["method"] == "blind") & off["p_control"].notna()
    off.loc[of_blind, "p_control"] = 0.01
    report = text(off)
    words = "> **CONTROL OFF: The texts alone tell members"
    assert report.index(words) < report.index("- Strongest: x.")


def test_the_report_holds_every_table_and_the_chart(text, results):
    report = text(results)
    assert report.startswith("# trial: detection of contamination\n")
    assert "![AUROC against occurrences](charts/chart.png)" in report
    for table in cell_tables(results):
        assert table.markdown() in report


def test_no_name_in_the_report_is_a_link(findings, results):
    link, shown = "[a](http://b.c)", r"[a\](http\://b.c)"
    picture = Picture("charts/a b.png", link, link)
    section = Section(link, results, [], [picture], [link])
    named = replace(
        findings, title=link, answer=[link], headline=[link], controls=link,
        examples=["examples/[a](b).html"],
    )  # fmt: skip
    report = render_markdown(named, [section])
    assert report.count(shown) == report.count("b.c") == 8
    assert f"![{shown}](charts/a%20b.png)" in report
    assert r"[[a\](b)](examples/%5Ba%5D%28b%29.html)" in report


def test_conditions_keep_their_order(results):
    both = pd.concat([results.assign(condition="z"), results.assign(condition="a")])
    assert list(rows_by_condition(both)) == ["z", "a"]


def test_the_whole_of_a_report_is_in_order():
    findings = small_report.findings(examples=["examples/a b.html"])
    rows = findings.rows_by_condition
    table = small_report.table("one")
    sections = [
        Section("", None, [table], [Picture("charts/x y.png", "X|Y", "what")]),
        Section("b", rows["b"], [table], [PICTURE], ["It rises.", "Again."]),
        Section("a", rows["a"], [], [], ["No members."]),
    ]
    warning = control_warning(rows["b"])
    assert render_markdown(findings, sections).split("\n\n") == [
        "# trial <1>: detection of contamination",
        "Members are **found**.",
        "Controls: fine.",
        TERMS,
        "## Over all conditions",
        "![X\\|Y](charts/x%20y.png)",
        "*what*",
        "### Title of one",
        table.markdown(),
        "## b",
        f"> **{escape_markdown(warning)}**",
        "- It rises.\n- Again.",
        "![AUROC against occurrences](charts/chart.png)",
        "*what it shows*",
        "### Title of one",
        table.markdown(),
        ON_CONTROLS,
        "## a",
        "- No members.",
        "## Examples, token by token",
        "- [a b](examples/a%20b.html)",
        "## Slopes and comparisons",
        "In b: 0.65 [0.55, 0.75].",
        "Controls: as by chance.",
        "## How to read this",
        reading_guide(findings.config) + "\n",
    ]


def test_findings_of_one_condition_have_what_is_of_it():
    findings = small_report.findings()
    of_condition = findings.restrict_to_condition("b")
    for name in ("pooled", "curves", "bins"):
        table = getattr(findings, name)
        pd.testing.assert_frame_equal(getattr(of_condition, name), table[table["condition"] == "b"])
    assert of_condition.records == {"b": findings.records["b"]}
    assert of_condition.tables == {"b": findings.tables["b"]}
    assert of_condition.sentences == {"b": findings.sentences["b"]}
    for name in ("title", "headline", "config"):
        assert getattr(of_condition, name) == getattr(findings, name)
    without_tables = replace(findings, records={}, tables={}).restrict_to_condition("a")
    assert (without_tables.records, without_tables.tables) == ({"a": ()}, {"a": ()})
    assert findings.sentences_beyond_headline("b") == ["It rises."]
    assert findings.sentences_beyond_headline("a") == ["No members."]


def test_files_are_written_with_the_sections_in_their_order(tmp_path, monkeypatch):
    charts = [
        SavedChart(
            [tmp_path / f"charts/{name}.{kind}" for kind in ("png", "svg")], where, name, "c"
        )
        for name, where in (("first", "b"), ("second", "b"), ("over", ""))
    ]
    monkeypatch.setattr(report_files, "save_charts", lambda *args: charts)
    monkeypatch.setattr(report_files, "render_page", lambda *args: f"page {args[1]}")
    monkeypatch.setattr(report_files, "report_provenance", lambda: {"command": "x"})
    paths = report_files.write_report_files(tmp_path, None, small_report.findings())
    tables = ("over", "more", "one", "two")
    kinds = ("md", "csv", "tex")
    chart_paths = [path for chart in charts for path in chart.paths]
    table_paths = [tmp_path / f"tables/{name}.{kind}" for name in tables for kind in kinds]
    assert paths == [*table_paths, *chart_paths, tmp_path / "report.md"]
    assert (tmp_path / "report.html").read_text() == "page {'command': 'x'}"
    text = (tmp_path / "report.md").read_text()
    words = ["## Over all conditions", "![over](charts/over.png)", "### Title of over",
             "### Title of more", "## a", "- No members.", "## b", "- It rises.",
             "![first](charts/first.png)", "![second](charts/second.png)",
             "### Title of one"]  # fmt: skip
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert text.count("In b: 0.65 [0.55, 0.75].") == 1
    monkeypatch.setattr(report_files, "save_charts", lambda *args: [])
    report_files.write_report_files(tmp_path, None, small_report.findings())
    assert "## Over all conditions\n\n### Title of over\n\n" in (tmp_path / "report.md").read_text()
    alone = replace(small_report.findings(), tables={"a": [], "b": []})
    report_files.write_report_files(tmp_path, None, alone)
    assert "Over all conditions" not in (tmp_path / "report.md").read_text()
