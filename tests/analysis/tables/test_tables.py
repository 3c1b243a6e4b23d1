"""Tables: what stands in which cell, and the rows behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.tables import estimates
from contamination.core.report.tables import Table, write_tables


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
