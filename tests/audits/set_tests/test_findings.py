"""From scored sets to error rates, power, verdicts, lists and the page."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.set_tests import procedures
from contamination.audits.set_tests.findings import DIFFERENT, SetFindings
from contamination.audits.set_tests.outcomes import HELD_OUT, PUBLISHED, REDRAWN, run_tests
from contamination.audits.set_tests.procedures import PROCEDURES, RELABELLED
from contamination.audits.set_tests.report import report
from contamination.core.report.document import html_document, markdown_document
from contamination.core.statistics.clopper_pearson import clopper_pearson
from tests.audits.set_tests.simulated import simulated_set


@pytest.fixture(scope="module")
def sets():
    return [simulated_set(seed, saw_it=saw_it) for seed in range(3) for saw_it in (True, False)]


@pytest.fixture(scope="module")
def outcomes(sets):
    return run_tests(sets, [20, 50, 1000], draws=12, seed=0)


@pytest.fixture(scope="module")
def findings(sets, outcomes):
    return SetFindings(sets, outcomes, {}, 0.05, 0.1, 0)


def test_all_tests_are_applied_to_whole_sets_and_to_parts(outcomes):
    assert {*outcomes["test"]} == {*PROCEDURES}
    of_versions = outcomes.query("test == 'versions' and cell == 'cell0'")
    seen = of_versions[of_versions["is_leaked"]]
    assert seen.groupby("examples").size().to_dict() == {20: 3, 50: 1, 60: 1}  # disjoint parts
    redrawn = of_versions[of_versions["origin"] == REDRAWN]
    assert redrawn.groupby("examples").size().to_dict() == {20: 12, 50: 12, 60: 12}
    assert not redrawn["saw_it"].any()
    held_out = of_versions[of_versions["origin"] == HELD_OUT]
    assert held_out["saw_it"].all()
    assert not held_out["is_leaked"].any()


def test_the_order_tests_parts_are_whole_shards(outcomes):
    rows = outcomes.query("test == 'order, exact' and is_leaked")
    assert {*zip(rows["units"], rows["examples"], strict=True)} == {(4, 20), (10, 50), (12, 60)}


def test_nothing_is_redrawn_where_no_draw_was_made(outcomes):
    rows = outcomes[outcomes["test"] == "CoDeC"]
    assert {*rows["origin"]} == {PUBLISHED, HELD_OUT}
    parts = rows.query("origin == 'held out' and examples == 20 and cell == 'cell0'")
    assert len(parts) == 3


def test_tests_without_ingredients_are_left_out():
    bare = replace(simulated_set(), versions=None, orders=None, backdoors=None)
    outcomes = run_tests([bare], [20], 2, 0)
    assert {*outcomes["test"]} == {"twins, relabelled", "dataset inference", "CoDeC"}
    warnings = report(SetFindings([bare], outcomes, {}, 0.05, 0.1, 0), {}).warnings
    missing = "versions; order, exact; order, t; backdoors"
    assert f"The cells' corpora do not allow these tests: {missing}." in warnings
    few = replace(simulated_set(members=9), orders=None)
    assert {*run_tests([few], [20], 2, 0)["test"]} == {"backdoors"}


@pytest.mark.parametrize("draw", ["published", "redrawn"])
def test_the_audit_of_twins_reads_each_example_once(monkeypatch, draw):
    data, read = simulated_set(members=20), []

    def combined_scores(scores):
        read.append(scores)
        return scores.mean(axis=0)

    monkeypatch.setattr(procedures, "combined_scores", combined_scores)
    getattr(RELABELLED, draw)(data, np.arange(20), np.random.default_rng(0))
    assert sorted(read[0][0]) == sorted(data.examples.scores[0])


def test_the_same_seed_gives_the_same_p_values(sets, outcomes):
    again = run_tests(sets, [20, 50, 1000], draws=12, seed=0)
    pd.testing.assert_frame_equal(again, outcomes)


def test_the_same_texts_under_a_model_that_did_not_see_them_have_other_parts_and_lists():
    """With equal scores, equal draws would make one chance finding out of two."""
    seen = [simulated_set(seed) for seed in range(4)]
    unseen = [replace(test_set, name=replace(test_set.name, saw_it=False)) for test_set in seen]
    outcomes = run_tests([seen[0], unseen[0]], [20], 0, 0)
    parts = outcomes.query("test == 'CoDeC' and origin == 'published' and examples == 20")
    items = SetFindings([*seen, *unseen], outcomes, {}, 0.05, 0.1, 0).items.query("share == 0")
    for table, column, rows in ((parts, "p_value", 3), (items, "estimated_share", 4)):
        values_by_model = [
            table.loc[table["saw_it"] == saw_it, column].tolist() for saw_it in (True, False)
        ]
        assert [len(values) for values in values_by_model] == [rows, rows]
        assert values_by_model[0] != values_by_model[1]


def test_error_rates_count_what_the_model_did_not_see(findings, outcomes):
    errors = findings.errors.set_index(["test", "origin"])
    row = errors.loc["versions", REDRAWN]
    p_values = outcomes.query("test == 'versions' and origin == 'redrawn'")["p_value"]
    assert row["sets"] == 3 * 3 * 12
    assert row["rejected"] == (p_values <= 0.05).sum()
    assert (row["low"], row["high"]) == clopper_pearson(row["rejected"], row["sets"])
    assert row["uniform_p"] > 0.001
    assert errors.loc["backdoors", REDRAWN]["uniform_p"] > 0.001  # though of 6 backdoors


def test_power_is_by_size_and_large_where_the_shift_is(findings):
    powers = findings.powers.set_index(["test", "examples"])
    assert powers.loc[("versions", 60), "share"] == 1
    assert powers.loc[("versions", 20), "sets"] == 9
    assert powers.loc[("twins, relabelled", 60), "rejected"] == 3
    assert powers.loc[("backdoors", 6), "rejected"] == 3


def test_verdicts_know_the_truth_and_whether_texts_differ(sets, outcomes, findings):
    table = findings.verdicts
    assert len(table) == len(sets) * len(PROCEDURES)
    of_versions = table[table["test"] == "versions"]
    assert {*of_versions[of_versions["is_leaked"]]["verdict"]} == {"right: it was seen"}
    blind_p = {scored.name: 0.01 for scored in sets}
    shifted = replace(findings, blind_p=blind_p).verdicts.set_index("test")
    assert {*shifted.loc["twins, relabelled", "verdict"]} == {DIFFERENT}
    assert DIFFERENT not in {*shifted.loc["versions", "verdict"]}


def test_lists_of_items_have_few_wrong_ones_and_the_share_is_near():
    sets = [simulated_set(seed, shift=3.0, members=200) for seed in range(8)]
    findings = SetFindings(sets, pd.DataFrame(), {}, 0.05, 0.1, 0)
    means = findings.item_means.set_index("nominal")
    assert means.loc[0.5, "share"] == pytest.approx(0.5)
    assert means.loc[0.8, "share"] == pytest.approx(0.8)
    assert abs(means.loc[0.5, "estimated_share"] - 0.5) < 0.15
    assert means.loc[0.0, "estimated_share"] < 0.2
    assert means.loc[0.5, "bh_wrong"] < 0.1
    assert means.loc[0.8, "scaled_found"] >= means.loc[0.8, "bh_found"]
    assert means.loc[0.0, "occurrences"] == 0


def test_context_shares_are_by_side_and_dose(findings):
    shares = findings.context_shares.set_index(["occurrences", "side"])
    assert shares.loc[(4, "members"), "texts"] == 3 * 60
    assert shares.loc[(4, "members"), "share"] > 0.75 > shares.loc[(4, "held out"), "share"]
    assert shares.loc[(0, "members"), "low"] < 0.5 < shares.loc[(0, "members"), "high"]


def test_the_page_says_what_was_found(findings):
    content = report(findings, {"cells": "3"})
    text, page = markdown_document(content), html_document(content)
    assert "**versions**: " in text
    assert "found at 60 examples: 4 copies: 3 of 3" in text
    assert "## Type-I error" in text
    assert "Clopper-Pearson" in text
    assert page.count("<svg") == 1
    names = [table.name for table in content.tables]
    assert names == ["errors", "power", "verdicts", "items", "context", "outcomes"]


def test_a_test_that_rejects_too_often_is_named():
    knows_the_kind = [
        replace(data, examples=replace(data.examples, drops=np.abs(data.examples.drops)))
        for data in map(simulated_set, range(8))
    ]
    outcomes = run_tests(knows_the_kind, [], 0, 0)
    content = report(SetFindings(knows_the_kind, outcomes, {}, 0.05, 0.1, 0), {})
    assert any(
        "CoDeC (held out) rejects 100.0%" in warning and "of 8 sets" in warning
        for warning in content.warnings
    )


def test_a_set_under_a_model_that_cells_share_is_counted_once():
    """Otherwise one unlucky draw, repeated by eight cells, is reported as a wrong level."""
    unlucky = next(
        scored
        for scored in (simulated_set(seed, saw_it=False) for seed in range(200))
        if run_tests([scored], [], 0, 0).query("test == 'versions'")["p_value"].item() <= 0.05
    )
    cells = [replace(unlucky, name=replace(unlucky.name, cell=f"cell{i}")) for i in range(8)]
    cells.append(simulated_set(999))
    outcomes = run_tests(cells, [20], 0, 0)
    findings = SetFindings(cells, outcomes, {}, 0.05, 0.1, 0)
    row = findings.errors.set_index(["test", "origin"]).loc["versions", PUBLISHED]
    assert (row["sets"], row["rejected"]) == (1, 1)
    assert not any("versions" in warning for warning in report(findings, {}).warnings)
    assert findings.errors.set_index(["test", "origin"]).loc[("CoDeC", PUBLISHED), "sets"] == 3 + 1
    others = [*cells, simulated_set(77, saw_it=False)]
    findings = SetFindings(others, run_tests(others, [], 0, 0), {}, 0.05, 0.1, 0)
    assert findings.errors.set_index("test").loc["versions", "sets"] == 2


def test_small_parts_give_no_p_value_without_a_number():
    outcomes = run_tests([simulated_set()], [2, 3, 4], 3, 0)
    assert outcomes["p_value"].between(0, 1).all()
    assert {*outcomes.query("test == 'dataset inference'")["examples"]} == {4, 60, 30}
