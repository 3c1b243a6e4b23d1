"""The report of the set tests, word for word, from made-up rates."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.set_tests.procedures import PROCEDURES
from contamination.audits.set_tests.report import (
    DASHES,
    LIMITS,
    context_table,
    error_table,
    item_table,
    power_chart,
    power_table,
    report,
    verdict_table,
)
from contamination.core.report.charts import INK, SERIES
from tests.audits.checks import frame, legend_columns, legend_labels, ticks


@pytest.fixture
def findings():
    powers = "test learning_rate examples occurrences sets rejected low high"
    items = (
        "learning_rate occurrences share estimated_share bh_listed bh_wrong bh_found scaled_listed "
        "scaled_wrong scaled_found sets"
    )
    return SimpleNamespace(
        alpha=0.05, item_level=0.1, sets=[None] * 7, items=frame("a", (1,)),
        errors=frame(
            "test origin sets rejected share low high uniform_p",
            ("versions", "published", 40, 3, 0.074, 0.016, 0.204, 0.123),
            ("versions", "held out", 20, 5, 0.25, 0.05, 0.49, np.nan),
            ("backdoors", "redrawn", 80, 9, 0.114, 0.0528, 0.2028, 0.0456),
        ),
        powers=frame(
            powers,
            ("versions", 1e-3, 60, 4, 5, 4, 0.28, 0.99),
            ("versions", 1e-3, 60, 1, 6, 2, 0.04, 0.78),
            ("versions", 1e-3, 20, 1, 9, 1, 0.0, 0.48),
            ("versions", 1e-2, 60, 4, 3, 3, 0.29, 1.0),
            ("backdoors", 1e-3, 6, 1, 2, 1, 0.01, 0.99),
        ),
        verdicts=frame("test verdict", ("versions", "missed"), ("backdoors", "false alarm"),
                       ("versions", "right: it was seen"), ("versions", "missed")),
        item_means=frame(
            items,
            (1e-3, 0, 0.0, 0.034, 0.5, 0.25, np.nan, 1.24, 0.124, np.nan, 8),
            (1e-2, 4, 0.502, 0.456, 12.3, 0.034, 0.567, 20.0, 0.0789, 0.89, 4),
        ),
        context_shares=frame(
            "learning_rate occurrences side texts share low high",
            (1e-3, 0, "members", 60, 0.5, 0.37, 0.63),
            (1e-2, 4, "held out", 59, 0.25, 0.13, 0.41),
        ),
        outcomes=pd.DataFrame({"test": ["versions", "backdoors"] * 600}),
    )  # fmt: skip


def test_the_report_has_conclusions_warnings_and_all_tables(findings):
    content = report(findings, {"cells": "3"})
    assert content.title == "Set tests: error rates and power"
    assert content.conclusions == [
        "**versions**: 8 false alarms of 60; found at 60 examples: 1 copy: 2 of 6; "
        "4 copies: 7 of 8.",
        "**backdoors**: 9 false alarms of 80; found at 6 backdoors: 1 copy: 1 of 2.",
    ]
    assert content.warnings == [
        "backdoors (redrawn) rejects 11.4% [5.3%, 20.3%] of 80 sets that the model did not see, "
        "more than its level.",
        "The cells' corpora do not allow these tests: order, exact; order, t; twins, relabelled; "
        "dataset inference; CoDeC.",
    ]
    assert content.limits == LIMITS
    assert content.facts == {"cells": "3", "level": "0.05"}
    names = ["errors", "power", "verdicts", "items", "context", "outcomes"]
    assert [table.name for table in content.tables] == names
    assert [chart.name for chart in content.charts] == ["power"]
    outcomes = content.tables[-1]
    assert (outcomes.title, outcomes.header) == ("All p-values", ["p-values", "tests", "sets"])
    assert outcomes.lines == [["1,200", "2", "7"]]
    assert outcomes.data is findings.outcomes
    assert outcomes.note == "outcomes.csv has each p-value."


def test_findings_without_rows_have_no_table_and_no_chart(findings):
    for name in ("powers", "items", "context_shares"):
        setattr(findings, name, getattr(findings, name)[:0])
    findings.outcomes = pd.DataFrame({"test": [*PROCEDURES]})
    findings.errors = findings.errors[:2]  # the level itself is no more than it
    content = report(findings, {})
    assert [table.name for table in content.tables] == ["errors", "power", "verdicts", "outcomes"]
    assert (content.charts, content.conclusions, content.warnings) == ([], [], [])
    powers = content.tables[1]
    assert (powers.header, powers.lines) == (["test", "learning rate", "examples"], [])


def test_the_table_of_errors(findings):
    table = error_table(findings)
    assert (table.name, table.title) == ("errors", "Type-I error")
    assert table.header == ["test", "sets", "number", "rejected", "share", "uniform p"]
    assert table.lines == [
        ["versions", "published", "40", "3", "0.07 [0.02, 0.20]", "0.12"],
        ["versions", "held out", "20", "5", "0.25 [0.05, 0.49]", "–"],
        ["backdoors", "redrawn", "80", "9", "0.11 [0.05, 0.20]", "0.046"],
    ]
    assert table.data is findings.errors
    assert table.note == (
        "Sets that the model did not see, at level 0.05. Published: the model before the training, "
        "which cells may share. Redrawn: the same after a new draw (of versions, orders, targets, "
        "membership). Held out: what was not inserted, under the model that saw the rest. "
        "Intervals: Clopper-Pearson, 95%. Uniform p: a Kolmogorov-Smirnov test of the p-values, "
        "randomised where the statistic is discrete; a dash where they are too few."
    )


def test_the_table_of_power_has_a_column_of_each_number_of_copies(findings):
    table = power_table(findings)
    assert (table.name, table.title) == ("power", "Power by occurrences and size")
    assert table.header == ["test", "learning rate", "examples", "1 copy", "4 copies"]
    assert table.lines == [
        ["versions", "0.001", "60", "2/6 [0.04, 0.78]", "4/5 [0.28, 0.99]"],
        ["versions", "0.001", "20", "1/9 [0.00, 0.48]", "–"],
        ["versions", "0.01", "60", "–", "3/3 [0.29, 1.00]"],
        ["backdoors", "0.001", "6", "1/2 [0.01, 0.99]", "–"],
    ]
    assert table.data is findings.powers
    assert table.note == (
        "Sets that the model saw: rejected at level 0.05, of disjoint parts of whole sets. Parts "
        "of one cell share its model. Intervals: Clopper-Pearson, 95%."
    )


def test_the_table_of_verdicts_counts_each(findings):
    table = verdict_table(findings)
    assert (table.name, table.title) == ("verdicts", "Verdicts on whole sets")
    assert table.header == ["test", "assumes", "false alarm", "missed", "right: it was seen"]
    assert table.lines == [
        ["versions", PROCEDURES["versions"].assumes, "0", "2", "1"],
        ["backdoors", PROCEDURES["backdoors"].assumes, "1", "0", "0"],
    ]
    assert table.data is findings.verdicts
    assert table.note == (
        "Whole sets as they were published, under the models after and before the training. A test "
        "that compares with held-out texts gives no verdict where the texts differ (blind p at "
        "most 0.05). verdicts.csv has the p-value of each set."
    )


def test_the_tables_of_items_and_of_context(findings):
    table = item_table(findings)
    assert (table.name, table.title) == ("items", "Which items")
    assert table.header == [
        "learning rate", "copies", "seen", "estimated", "listed", "wrong", "found",
        "listed, scaled", "wrong, scaled", "found, scaled", "sets",
    ]  # fmt: skip
    assert table.lines == [
        ["0.001", "–", "0.00", "0.03", "0.5", "0.25", "–", "1.2", "0.12", "–", "8"],
        ["0.01", "4", "0.50", "0.46", "12", "0.034", "0.57", "20", "0.079", "0.89", "4"],
    ]
    assert table.data is findings.items
    assert table.note == (
        "Conformal p-values of items against held-out ones, corrected for at most 10% wrong ones "
        "among the listed (Benjamini and Hochberg), and scaled by the estimated share that was not "
        "seen. Means over sets; wrong: the mean share of wrong ones among the listed; found: the "
        "share of the members that is listed. Rows without copies are sets without members."
    )
    table = context_table(findings)
    assert (table.name, table.title) == ("context", "CoDeC: the share of texts that drop")
    assert table.header == ["learning rate", "copies", "side", "texts", "share"]
    assert table.lines == [
        ["0.001", "–", "members", "60", "0.50 [0.37, 0.63]"],
        ["0.01", "4", "held out", "59", "0.25 [0.13, 0.41]"],
    ]
    assert table.data is findings.context_shares
    assert table.note == (
        "The share of texts whose log-probability drops after another text of their side (Zawalski "
        "et al. 2025). Rows without copies: the model before the training. Intervals: "
        "Clopper-Pearson, 95%, as if texts were independent; cells are counted together."
    )


def test_the_chart_of_power_is_of_whole_sets_over_learning_rates(findings):
    chart = power_chart(findings)
    assert (chart.title, chart.label) == (
        "Power on whole sets by copies", "Power of each test by copies",
    )  # fmt: skip
    assert chart.caption == "The line at 0.05 is the level."
    (axes,) = chart.figure.axes
    versions, backdoors, level = axes.lines
    assert [versions.get_label(), [*versions.get_xdata()]] == ["versions", [1, 4]]
    assert [*versions.get_ydata()] == pytest.approx([2 / 6, 7 / 8])
    assert [backdoors.get_label(), [*backdoors.get_xdata()], [*backdoors.get_ydata()]] == [
        "backdoors", [1], [0.5],
    ]  # fmt: skip
    assert [line.get_color() for line in axes.lines] == [*SERIES[:2], INK]
    assert [line.get_linestyle() for line in axes.lines] == [*DASHES[:2], "-"]
    assert [line.get_marker() for line in axes.lines[:2]] == ["o", "o"]
    assert ([*level.get_ydata()], level.get_linewidth()) == ([0.05, 0.05], 0.8)
    assert (axes.get_xscale(), axes.xaxis.get_transform().base) == ("log", 2)
    assert ticks(axes.xaxis) == {"1": 1, "4": 4}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("copies of a member", "power")
    assert axes.get_ylim() == (-0.03, 1.03)
    assert legend_labels(chart) == ["versions", "backdoors"]
    assert legend_columns(chart) == 2


def test_the_lines_of_seven_tests_differ_in_colour_or_dash(findings):
    row = findings.powers.iloc[:1]
    findings.powers = pd.concat([row.assign(test=name) for name in PROCEDURES])
    (axes,) = power_chart(findings).figure.axes
    lines = axes.lines[:7]
    assert [line.get_color() for line in lines] == [*SERIES, *SERIES[:3]]
    assert [line.get_linestyle() for line in lines[:4]] == [*DASHES[:4]]
