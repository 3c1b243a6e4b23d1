"""The report's words follow from its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.plain_summary import TERMS
from contamination.analysis.report_files import Picture, Section, render_markdown
from contamination.analysis.tables.estimates import cell_tables

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
