"""The papers' figures beside ours."""

from __future__ import annotations

import pandas as pd
import pytest

from contamination.analysis.statistics.groups import ANY
from contamination.analysis.tables import paper_comparisons
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from tests.analysis.small_report import estimate, row

THEIRS = paper_comparisons.SHI


def lines_of(table, *start: str) -> list[list[str]]:
    return [list(line) for line in table.lines if list(line[: len(start)]) == list(start)]


def test_figures_are_the_papers():
    printed = paper_comparisons.read_printed_table("shi2024_table3_auroc.csv").set_index("method")
    assert printed.loc["min_k", "imdb"] == 0.98
    tpr = paper_comparisons.read_printed_table("shi2024_table7_tpr_at_fpr_0.05.csv").set_index(
        "method"
    )
    assert tpr.loc["loss", "imdb"] == 0.74
    for table in (printed, tpr):
        assert list(table.columns[-1:]) == ["average"]
        means = table.drop(columns="average").mean(axis=1)
        assert (means - table["average"]).abs().max() <= 0.0151  # printed with two digits


def test_both_tables_show_the_shared_benchmarks_and_label_the_paper(results):
    three, seven = paper_comparisons.paper_method_tables(results)
    assert (three.name, seven.name) == ("paper_table3", "paper_table7")
    assert three.header == ["method", "source", "boolq", "imdb"]  # no mean: not the same benchmarks
    assert lines_of(three, "min_k", THEIRS) == [["min_k", THEIRS, "0.91", "0.98"]]
    (ours,) = lines_of(three, "min_k", "ours, tiny_llama")
    chosen = results[
        (results["method"] == "min_k") & (results["metric"] == "auroc")
        & (results["checkpoint"] == "contaminated") & (results["occurrences"] == ANY)
        & (results["benchmark"] == "imdb")
    ]  # fmt: skip
    assert ours[3].startswith(f"{chosen['value'].item():.2f} [")
    assert lines_of(seven, "loss", THEIRS) == [["loss", THEIRS, "0.52", "0.74"]]
    (ours,) = lines_of(seven, "loss", "ours, tiny_llama")
    assert ours[2:] == ["needs ≥ 100 non-members"] * 2


def test_methods_of_either_side_alone_are_shown(results):
    three = paper_comparisons.paper_method_tables(results)[0]
    assert lines_of(three, "neighbor") == [["neighbor", THEIRS, "0.68", "0.80"]]
    assert len(lines_of(three, "min_k_plus_plus")) == 1
    assert not lines_of(three, "blind")


def test_rows_behind_a_table_say_whose_they_are(results):
    data = paper_comparisons.paper_method_tables(results)[0].data
    theirs = data[data["source"] == THEIRS]
    assert set(theirs["model"]) == {"LLaMA-7B"}
    assert theirs["ci_low"].isna().all()
    assert len(theirs) == 5 * 2


def renamed(results: pd.DataFrame, **names: str) -> pd.DataFrame:
    return results.assign(benchmark=results["benchmark"].replace(names))


def test_the_mean_is_shown_where_it_is_over_the_same_benchmarks(results):
    others = renamed(results, boolq="truthfulqa", imdb="commonsenseqa")
    four = pd.concat([results, others[others["benchmark"] != ALL_BENCHMARKS]])
    three = paper_comparisons.paper_method_tables(four)[0]
    assert three.header == [
        "method", "source", "boolq", "commonsenseqa", "imdb", "truthfulqa", "average"
    ]  # fmt: skip
    assert lines_of(three, "min_k", THEIRS)[0][-1] == "0.86"


def test_no_table_without_the_papers_benchmarks(results):
    other = renamed(results, boolq="mine", imdb="yours")
    assert paper_comparisons.paper_method_tables(other) == []
    assert paper_comparisons.paper_learning_rate_table(other.assign(condition="a")) is None


@pytest.fixture
def pooled(results) -> pd.DataFrame:
    frames = [
        results.assign(learning_rate=rate, condition=f"tiny_llama-lr{rate:g}", n_seeds=1)
        for rate in (1e-3, 1e-5)
    ]
    return pd.concat(frames, ignore_index=True)


def test_min_k_by_learning_rate(pooled):
    table = paper_comparisons.paper_learning_rate_table(pooled)
    assert table is not None
    assert table.header == ["learning rate", "source", "boolq", "imdb"]
    starts = [list(line[:2]) for line in table.lines]
    assert starts == [
        ["1e-05", "ours, tiny_llama-lr1e-05"],
        ["0.001", "ours, tiny_llama-lr0.001"],
        ["1e-05", THEIRS],
        ["0.0001", THEIRS],
    ]
    assert list(table.lines[-1][2:]) == ["0.91", "0.98"]
    assert set(table.data["method"]) == {"min_k"}


def test_one_learning_rate_makes_no_table(pooled):
    assert (
        paper_comparisons.paper_learning_rate_table(pooled[pooled["learning_rate"] == 1e-3]) is None
    )


def test_only_the_papers_k_is_shown(pooled):
    other = pooled[pooled["method"] == "min_k"].assign(variant="k=0.4", value=0.99)
    table = paper_comparisons.paper_learning_rate_table(pd.concat([pooled, other]))
    assert table is not None
    assert len(table.lines) == 4
    assert set(table.data["variant"].dropna()) == {"k=0.2"}


def test_a_method_table_has_each_methods_own_line_before_the_papers():
    rows = pd.DataFrame([
        row(0.9, benchmark="imdb"), row(0.8, benchmark="boolq"), row(0.85),
        row(0.7, benchmark="imdb", method="min_k", variant="k=0.2"),
        row(0.6, benchmark="imdb", method="min_k", variant="k=0.4"),
        row(0.5, benchmark="imdb", method="surp", model="other", needs="≥ 20 members"),
        row(0.1, benchmark="imdb", checkpoint="clean"), row(0.1, benchmark="imdb", occurrences="1"),
        row(0.99, benchmark="mine"),
    ])  # fmt: skip
    (table,) = paper_comparisons.paper_method_tables(rows)
    assert table.title == (
        "AUROC by method and benchmark, in the layout of Shi et al. 2024, table 3, whose own "
        "figures are of another model"
    )
    assert table.header == ["method", "source", "boolq", "imdb"]
    ours = "ours, other, tiny"
    assert table.lines == [
        ["loss", ours, estimate(0.8), estimate(0.9)],
        ["loss", THEIRS, "0.89", "0.97"],
        ["min_k (k=0.2)", ours, "–", estimate(0.7)],
        ["min_k (k=0.4)", ours, "–", estimate(0.6)],
        ["min_k", THEIRS, "0.91", "0.98"],
        ["surp", ours, "–", "needs ≥ 20 members"],
        ["neighbor", THEIRS, "0.68", "0.80"],
        ["zlib", THEIRS, "0.76", "0.71"],
        ["lowercase", THEIRS, "0.74", "0.79"],
    ]
    data = table.data
    assert list(data.columns) == ["source", *rows.columns]
    assert list(data["source"]) == ["ours"] * 5 + [THEIRS] * 10
    row_of_paper = data[data["source"] == THEIRS].iloc[0]
    facts = {"method": "neighbor", "benchmark": "boolq", "value": 0.68, "metric": "auroc",
             "checkpoint": "contaminated", "occurrences": "any", "model": "LLaMA-7B"}  # fmt: skip
    assert row_of_paper[list(facts)].to_dict() == facts


def test_a_learning_rate_table_has_a_line_of_each_condition_and_of_the_paper():
    rows = pd.DataFrame([
        row(value, method="min_k", variant="k=0.2", benchmark=benchmark, condition=f"lr{rate:g}",
            learning_rate=rate)
        for rate, values in [(1e-3, (0.9, 0.8)), (1e-4, (0.7, 0.6))]
        for benchmark, value in zip(("imdb", "lsat"), values, strict=True)
    ])  # fmt: skip
    other_method = rows.assign(method="loss", value=0.1)
    table = paper_comparisons.paper_learning_rate_table(pd.concat([rows, other_method]))
    assert table.name == "paper_table4"
    assert table.title == (
        "AUROC of Min-K% by learning rate and benchmark, in the layout of Shi et al. 2024, table "
        "4, whose own figures are of another model"
    )
    assert table.header == ["learning rate", "source", "imdb", "lsat"]
    assert table.lines == [
        ["0.0001", "ours, lr0.0001", estimate(0.7), estimate(0.6)],
        ["0.001", "ours, lr0.001", estimate(0.9), estimate(0.8)],
        ["1e-05", THEIRS, "0.76", "0.72"],
        ["0.0001", THEIRS, "0.98", "0.82"],
    ]
    rows_of_paper = table.data[table.data["source"] == THEIRS]
    assert set(rows_of_paper["method"]) == {"min_k"}
    assert rows_of_paper["learning_rate"].tolist() == [1e-5, 1e-4] * 2
    one_benchmark = rows[rows["benchmark"] == "imdb"].assign(variant="k=0.4")
    assert paper_comparisons.paper_learning_rate_table(one_benchmark).lines[0][2] == estimate(0.7)
