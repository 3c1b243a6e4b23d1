"""Tables: what stands in which cell, and the rows behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.factors import BY_COLUMN
from contamination.analysis.sweeps import Sweep
from contamination.analysis.tables import estimates
from contamination.core.report.tables import Table, write_tables
from tests.analysis.small_report import condition_rows, estimate, row


def row_of(table: Table, method: str) -> list[str]:
    return next(list(line) for line in table.lines if line[0] == method)


def value(results: pd.DataFrame, metric: str, place: tuple[str, ...]) -> str:
    columns = ["checkpoint", "method", "benchmark", "occurrences"]
    found = results[results["metric"] == metric].set_index(columns).sort_index().loc[[place]]
    (row,) = found.itertuples()
    return f"{row.value:.2f} [{row.ci_low:.2f}, {row.ci_high:.2f}]"


@pytest.mark.parametrize("metric", ["auroc", "tpr_at_fpr_0.25"])
def test_by_occurrences_stands_beside_its_controls(results, metric):
    table = estimates.occurrences_table(results, metric)
    assert table.header == ["method", "1", "2", "4", "8", "any", "clean model, any"]
    longer = estimates.occurrences_table(results.replace({"occurrences": {"8": "16"}}), metric)
    assert longer.header == ["method", "1", "2", "4", "16", "any", "clean model, any"]
    methods = [line[0] for line in table.lines]
    assert methods == ["loss", "min_k", "min_k_plus_plus", "blind"]
    found = row_of(table, "min_k")
    assert found[4] == value(results, metric, ("contaminated", "min_k", "all", "8"))
    assert found[6] == value(results, metric, ("clean", "min_k", "all", "any"))
    blind = row_of(table, "blind")
    assert blind[1] == value(results, metric, ("clean", "blind", "all", "1"))
    assert blind[6] == estimates.NO_VALUE


def test_a_rate_that_is_not_carried_is_no_number_but_what_it_needs(results):
    needs = "needs ≥ 100 non-members"
    table = estimates.benchmark_table(results, "tpr_at_fpr_0.05")
    assert table.lines == [["every method", needs, needs, f"{needs} per benchmark"]]
    table = estimates.occurrences_table(results, "tpr_at_fpr_0.05")
    assert table.lines == [["every method", *[f"{needs} per benchmark"] * 6]]
    some = row_of(estimates.occurrences_table(results, "fpr_at_tpr_0.75"), "loss")
    assert some[4] == "needs ≥ 20 members per benchmark"
    place = ("contaminated", "loss", "all", "any")
    assert some[5] == value(results, "fpr_at_tpr_0.75", place)


def test_by_benchmark_ends_with_the_mean(results):
    table = estimates.benchmark_table(results, "auroc")
    assert table.header == ["method", "boolq", "imdb", "all"]
    expected = value(results, "auroc", ("contaminated", "loss", "imdb", "any"))
    assert row_of(table, "loss")[2] == expected


def test_controls_have_a_verdict(sound):
    assert {line[-1] for line in estimates.controls_table(sound).lines} == {"within chance"}
    off = sound.copy()
    of_loss = (off["method"] == "loss") & (off["benchmark"] == "imdb") & off["p_control"].notna()
    off.loc[of_loss, "p_control"] = 0.031
    assert row_of(estimates.controls_table(off), "loss")[-2:] == ["0.031", "**OFF**"]
    assert row_of(estimates.controls_table(off), "blind")[-1] == "within chance"
    unknown = estimates.controls_table(
        sound.assign(p_control=np.nan)
    )  # logged by an earlier version
    assert {tuple(line[-2:]) for line in unknown.lines} == {
        (estimates.NO_VALUE, estimates.NO_VALUE)
    }


def test_variants_are_told_apart_only_where_there_are_several(results):
    other = results[results["method"] == "min_k"].assign(variant="k=0.4")
    names = [
        line[0] for line in estimates.benchmark_table(pd.concat([results, other]), "auroc").lines
    ]
    assert names == ["loss", "min_k (k=0.2)", "min_k (k=0.4)", "min_k_plus_plus", "blind"]


def test_what_was_not_measured_is_a_dash(results):
    kept = results[~((results["occurrences"] == "8") & (results["method"] == "loss"))]
    assert row_of(estimates.occurrences_table(kept, "auroc"), "loss")[4] == estimates.NO_VALUE


def test_markdown_is_padded_and_csv_holds_the_tidy_rows(results, tmp_path):
    made = estimates.cell_tables(results)
    written = write_tables(tmp_path / "tables", {"cell one": made})
    text = (tmp_path / "tables/auroc_by_occurrences.md").read_text()
    assert "## cell one" in text
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1
    path = tmp_path / "tables/auroc_by_occurrences.csv"
    csv = pd.read_csv(path, keep_default_na=False, float_precision="round_trip")
    assert list(csv.columns) == list(results.columns)
    assert csv["value"].tolist() == made[0].data["value"].tolist()
    metrics = results["metric"].nunique()
    assert len(written) == 3 * len(made) == 3 * (2 * metrics + 1 + 2)


def test_a_name_has_no_mark_up_of_its_own():
    table = Table("t", "T", ["method", "a|b"], [["<b>x", "two\nlines"]], pd.DataFrame())
    assert table.markdown().splitlines() == [
        r"| method  | a\|b      |",
        r"| ------- | --------- |",
        r"| &lt;b>x | two lines |",
    ]
    assert "two lines" in table.latex()


def test_a_narrow_terminal_shows_the_ends_of_a_table_and_names_the_rest(results, monkeypatch):
    table = estimates.occurrences_table(results, "auroc")
    assert table.terminal_text() == table.markdown()
    monkeypatch.setattr("contamination.core.report.tables.terminal_width", lambda: 100)
    monkeypatch.setattr("contamination.core.terminal.terminal_width", lambda: 100)
    header, *lines, note = table.terminal_text().splitlines()
    assert header.split()[:4] == ["method", "1", "8", "any"]
    assert max(map(len, [header, *lines])) <= 100
    assert "not in 100 columns: 2, 4;" in note


def test_the_tables_of_a_condition_are_those_of_its_rows():
    rows = condition_rows()
    tables = {table.name: table for table in estimates.cell_tables(rows)}
    assert list(tables) == [
        "auroc_by_occurrences", "tpr_at_fpr_0.05_by_occurrences", "auroc_by_benchmark",
        "tpr_at_fpr_0.05_by_benchmark", "controls", "paper_table3",
    ]  # fmt: skip
    table = tables["auroc_by_occurrences"]
    assert table.title == "AUROC by occurrences (contaminated model, mean over benchmarks)"
    assert table.header == ["method", "1", "2", "10", "any", "clean model, any"]
    assert table.lines == [
        ["loss", *map(estimate, (0.55, 0.6, 0.8, 0.65, 0.51))],
        ["zlib", *map(estimate, (0.5, 0.52, 0.56, 0.54, 0.49))],
        ["blind", *map(estimate, (0.48, 0.47, 0.46, 0.49)), "–"],
    ]
    assert table.least == ["2"]
    means = rows[(rows["metric"] == "auroc") & (rows["benchmark"] == "all")]
    pd.testing.assert_frame_equal(table.data, means)

    table = tables["auroc_by_benchmark"]
    assert table.title == "AUROC by benchmark (contaminated model, any number of occurrences)"
    assert table.header == ["method", "imdb", "all"]
    assert table.lines == [
        ["loss", estimate(0.7), estimate(0.65)],
        ["zlib", estimate(0.58), estimate(0.54)],
        ["blind", estimate(0.49), estimate(0.49)],
    ]
    assert set(table.data["occurrences"]) == {"any"}
    assert len(table.data) == 6

    table = tables["controls"]
    assert table.title == (
        "Controls: AUROC without contamination (clean model) and without a model (blind)"
    )
    assert table.header == ["method", "imdb", "all", "p, corrected", "verdict"]
    assert table.lines == [
        ["loss", estimate(0.53), estimate(0.51), "0.050", "**OFF**"],
        ["zlib", "–", estimate(0.49), "–", "–"],
        ["blind", estimate(0.49), estimate(0.49), "0.051", "within chance"],
    ]
    assert len(table.data) == 5
    assert estimates.cell_tables(rows.assign(value=np.nan)) == []


def test_a_sweep_has_a_column_for_each_value_and_the_reason_where_there_is_none():
    rates = {"a": 1e-4, "b": 1e-3, "c": 1e-2}
    of_condition = {
        "a": [row(0.6), row(0.5, method="zlib", checkpoint="clean")],
        "b": [row(0.7), row(0.6, method="zlib"), row(0.52, method="zlib", checkpoint="clean")],
        "c": [row(0.8), row(0.65, method="zlib"), row(0.55, method="min_k", variant="k=0.2")],
    }
    shared = [row(0.51, checkpoint="clean"), row(0.47, checkpoint="clean", method="blind")]
    rows = pd.DataFrame([
        {**values, "condition": name, "learning_rate": rate}
        for name, rate in rates.items() for values in (*of_condition[name], *shared)
    ])  # fmt: skip
    no_members = {"needs": "members per benchmark", "n_members": 0, "condition": "d"}
    unmeasured = pd.DataFrame([row(np.nan, **no_members, learning_rate=1e-5)])
    slope = {"slope": 0.3, "slope_low": 0.2, "slope_high": 0.4, "note": ""}
    no_slope = dict.fromkeys(("slope", "slope_low", "slope_high"), np.nan)
    trends = pd.DataFrame([
        {"method": "loss", "variant": "", **slope},
        {"method": "zlib", "variant": "", **no_slope, "note": "no slope: too few"},
    ])  # fmt: skip
    factor = BY_COLUMN["learning_rate"]
    table = estimates.sweep_table(Sweep(factor, "auroc_by_rate", rows, trends, unmeasured))
    assert table.name == "auroc_by_rate"
    assert table.title == (
        "AUROC by peak learning rate: contaminated model, all members, mean over benchmarks; "
        "slope of its log-odds per doubling (tiny, 300,000 tokens)"
    )
    assert table.header == ["method", "1e-5", "1e-4", "1e-3", "0.01", "slope", "clean model"]
    assert table.lines == [
        ["loss", "no members", *map(estimate, (0.6, 0.7, 0.8)), "0.30 [0.20, 0.40]",
         estimate(0.51)],
        ["zlib", "no members", "–", *map(estimate, (0.6, 0.65)), "no slope: too few",
         "0.50 to 0.52"],
        ["min_k", "no members", "–", "–", estimate(0.55), "–", "–"],
        ["blind", "no members", *[estimate(0.47)] * 3, "–", "–"],
    ]  # fmt: skip
    assert table.least == ["1e-4", "1e-3", "slope"]
    assert len(table.data) == len(rows) + 1
