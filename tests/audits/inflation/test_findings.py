"""Findings on simulated cells: planted leaks, chance, blind spots, and the report."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.inflation.detectability import AGAINST_TWINS, method_scores
from contamination.audits.inflation.findings import InflationFindings
from contamination.audits.inflation.inputs import (
    ACCURACY,
    MARGIN,
    items_table,
    split_into_families,
)
from contamination.audits.inflation.report import _main_benchmark, dose_chart, report
from contamination.core.errors import ConfigError
from contamination.core.report.document import html_document, markdown_document
from tests.audits.inflation.simulated import ITEMS, simulated_cells, simulated_groups


def findings_of(seeds=4, **options):
    return InflationFindings(simulated_groups(seeds, **options), 0.95)


def effects_of(findings, measure=MARGIN, benchmark="all"):
    data = findings.effects
    rows = data[(data["measure"] == measure) & (data["benchmark"] == benchmark)]
    return rows.set_index("effect")


@pytest.mark.parametrize(
    ("direct", "spillover"), [(0.0, 0.0), (0.8, 0.0), (0.0, 0.8), (0.8, 0.4)]
)  # fmt: skip
def test_planted_leaks_are_told_apart(direct, spillover):
    """Only members leak; only the format leaks; both; neither."""
    rows = effects_of(findings_of(direct=direct, spillover=spillover))
    truth = {"direct": direct, "spillover": spillover, "total": direct + spillover}
    for name, value in truth.items():
        assert rows.loc[name, "value"] == pytest.approx(value, abs=0.1)
        assert rows.loc[name, "low"] - 0.02 <= value <= rows.loc[name, "high"] + 0.02
        assert (rows.loc[name, "low"] > 0) == (value > 0)
    accuracy = effects_of(findings_of(direct=direct, spillover=spillover), ACCURACY)
    assert (accuracy.loc["total", "low"] > 0) == (direct + spillover > 0)


def test_clean_twins_show_no_effect():
    null = findings_of(direct=1.0).null
    assert (null["seeds"] == 2).all()
    assert ((null["low"] <= 0) & (null["high"] >= 0)).mean() > 0.8
    assert null["value"].abs().max() < 0.1


def test_accuracy_near_chance_is_named():
    findings = findings_of()
    clean = findings.clean.set_index("benchmark")
    assert clean.loc["imdb", "chance"] == 0.25
    assert clean.loc["boolq", "chance"] == 0
    assert clean.loc["boolq", "free"]
    assert not clean.loc["boolq", "at_chance"]
    near = clean.loc["imdb"]
    assert near["at_chance"] == (near["low"] <= 0.25 <= near["high"])
    warned = any("near chance" in warning for warning in report(findings, {}).warnings)
    assert warned == near["at_chance"]


def test_inflation_that_no_method_sees_is_named():
    seen, unseen = (findings_of(direct=1.0, detected=d).detectability for d in (True, False))
    assert seen["inflated"].all()
    assert seen[seen["part"] == "confirmed on"]["detected"].all()
    assert not unseen[unseen["part"] == "confirmed on"]["detected"].any()
    assert {*seen["seeds"]} == {"0", "1, 2, 3"}
    text = markdown_document(report(findings_of(direct=1.0, detected=False), {}))
    assert "both on the other seeds: contaminated, " in text
    assert "0 of them are both" in markdown_document(report(findings_of(direct=1.0), {}))


def test_the_loss_is_compared_with_twins_of_other_seeds():
    (group,) = simulated_groups(3)
    scores = method_scores(group)
    expected = scores["loss"][0] - group.family.losses[[1, 2]].mean(axis=0)
    assert group.cells[0].cell.seed == 0
    np.testing.assert_allclose(scores[AGAINST_TWINS][0], expected)


def test_clean_twins_without_the_loss_are_compared_with_by_no_method():
    (group,) = simulated_groups(2, direct=1.0)
    unscored = replace(group.family, losses=np.full_like(group.family.losses, np.nan))
    with_loss, without = (
        InflationFindings([one], 0.95).detectability
        for one in (group, replace(group, family=unscored))
    )
    of_twins = [name for name in with_loss if name.startswith("twins_")]
    assert with_loss[of_twins].notna().all(axis=None)
    pd.testing.assert_frame_equal(without, with_loss.drop(columns=of_twins))


def test_one_seed_and_missing_replicates_are_warned_of():
    cells = [one for one in simulated_cells(1) if not one.cell.cell.swapped]
    from contamination.audits.inflation.inputs import make_groups

    findings = InflationFindings(make_groups("audit.cells", cells), 0.95)
    warnings = " ".join(report(findings, {}).warnings)
    assert "No direct effect for contaminated" in warnings
    assert "One seed only for contaminated" in warnings
    assert "no null row" in warnings
    rows = effects_of(findings)
    assert np.isnan(rows.loc["direct", "value"])
    assert rows.loc["total", "items"] == rows.loc["spillover", "items"] == ITEMS // 2


def test_cells_without_twins_or_copies_are_refused():
    cells = [one.cell for one in simulated_cells(2)]
    assert len(split_into_families("audit.cells", cells)) == 1
    contaminated = [cell for cell in cells if cell.doses.any()]
    with pytest.raises(ConfigError, match=r"has no clean twin.*occurrences.count=0"):
        split_into_families("audit.cells", contaminated)
    with pytest.raises(ConfigError, match="no cell has copies"):
        split_into_families("audit.cells", [cell for cell in cells if not cell.doses.any()])


def test_every_item_of_every_cell_is_in_the_table_with_its_twin():
    groups = simulated_groups(2, direct=1.0)
    table = items_table(groups)
    assert len(table) == 4 * ITEMS
    row = table[(table["seed"] == 1) & ~table["swapped"]].reset_index(drop=True)
    np.testing.assert_allclose(row["twin_margin"], groups[0].family.results[MARGIN][1])


def test_the_report_has_all_tables():
    content = report(findings_of(direct=0.5), {"cells": "8"})
    names = [table.name for table in content.tables]
    assert names == ["effects_accuracy", "effects_margin", "clean", "null", "detectability"]
    text = markdown_document(content)
    assert "**contaminated, 4 copies: " in text
    assert "How inflated another model's score is" in text
    assert "<html" in html_document(content)


def lines_of_chart(groups):
    """The labels of the chart's lines of the total effect, and how many points each has."""
    drawn = dose_chart(InflationFindings(groups, 0.95), MARGIN).svg
    labels = re.findall(r">total ?([^<]*)<", drawn)
    return sorted(labels)


def test_the_chart_by_copies_joins_conditions_that_differ_only_in_copies():
    few, many = (simulated_groups(2, direct=0.5, copies=n)[0] for n in (1, 4))
    assert lines_of_chart([few, many]) == [""]


def test_the_chart_by_copies_has_a_line_for_every_condition_where_another_factor_is_swept():
    few, many = (simulated_groups(2, direct=0.5, copies=n)[0] for n in (1, 4))
    first, second = replace(many, name="first"), replace(many, name="second")
    assert lines_of_chart([first, second]) == ["first", "second"]

    def tuned(group):
        cells = [replace(one, cell=replace(one.cell, stage="finetuning")) for one in group.cells]
        return replace(group, cells=cells, name=f"tuned-{group.dose_levels[-1]}")

    # a stage whose conditions differ in copies alone keeps its one line
    assert lines_of_chart([first, second, tuned(few), tuned(many)]) == [
        "0.001, finetuning, verbatim", "first", "second",
    ]  # fmt: skip


def test_a_condition_with_one_benchmark_is_shown_beside_one_with_several():
    findings = findings_of(2, direct=0.5)
    effects = findings.effects
    one = effects[effects["benchmark"] == "imdb"].assign(condition="one")
    shown = _main_benchmark(pd.concat([effects, one]))
    assert {*zip(shown["condition"], shown["benchmark"], strict=True)} == {
        ("contaminated", "all"), ("one", "imdb"),
    }  # fmt: skip


def test_answers_that_are_all_alike_give_no_bound_and_no_error():
    """Free answers of a small model: none is right, with copies or without."""
    groups = simulated_groups(4, detected=False)
    for group in groups:
        for results in (group.answers, group.family.results):
            results[ACCURACY] = np.zeros_like(results[ACCURACY])
    conclusions = report(InflationFindings(groups, 0.95), {}).conclusions
    assert any("have no upper end (accuracy, points)" in line for line in conclusions)
    assert not any("at most" in line and "accuracy, points" in line for line in conclusions)


def test_items_that_all_turn_right_are_inflated():
    groups = simulated_groups(4, detected=False)
    for group in groups:
        group.answers[ACCURACY] = np.ones_like(group.answers[ACCURACY])
        group.family.results[ACCURACY] = np.zeros_like(group.family.results[ACCURACY])
    table = InflationFindings(groups, 0.95).detectability
    rows = table[table["measure"] == ACCURACY]
    assert (rows["value"] == 1).all()
    assert rows["low"].isna().all()
    assert rows["inflated"].all()
