"""The tables of comparisons and slopes."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.statistics.tidy_tables import Statistics
from contamination.analysis.statistics.trends import ONE_DOSE
from contamination.analysis.tables.statistical import (
    comparison_table,
    condition_tables,
    replicates_table,
    series_tables,
    trend_table,
    unflagged_table,
)
from tests.analysis.small_report import estimate, row


def comparisons():
    """`recall` is the best; a sum of the pairs with one sign alone would name another."""
    auroc = {"loss": 0.70, "min_k": 0.50, "recall": 0.71, "reference": 0.50, "zlib": 0.69}
    pairs = [(a, b, round(auroc[a] - auroc[b], 2)) for a, b in combinations(auroc, 2)]
    rows = [
        {
            "condition": "c", "benchmark": benchmark, "method_a": a, "method_b": b,
            "metric": metric, "difference": d, "ci_low": d - 0.02, "ci_high": d + 0.02,
            "p_value": 0.0005, "p_holm": 0.003, "p_max_t": 0.04,
        }
        for a, b, d in pairs for benchmark in ("all", "boolq") for metric in ("auroc", "other")
    ]  # fmt: skip
    return pd.DataFrame(rows)


def trends(over, reaches):
    row = {
        "condition": "c", "over": over, "benchmark": "all", "method": "min_k", "variant": "k=0.2",
        "tau": 0.4, "p_value": 0.2, "slope": 0.7, "slope_low": 0.6, "slope_high": 0.8,
        "reaches": reaches, "note": "", "levels": 4,
    }  # fmt: skip
    return pd.DataFrame([row, {**row, "benchmark": "boolq"}, {**row, "levels": np.nan}])


def test_the_strongest_is_compared_with_each_other():
    table = comparison_table(comparisons())
    assert table.name == "comparisons"
    assert table.header == ["recall less …", "difference in AUROC", "p", "p, corrected"]
    assert table.title == (
        "recall, whose AUROC is the highest, less each other method: all members, mean over "
        "benchmarks, paired bootstrap, two-sided p, corrected for all pairs of methods by max-T"
    )
    assert len(table.data) == 4
    assert set(table.data["benchmark"] + table.data["metric"]) == {"allauroc"}
    assert table.lines == [
        ["loss", "0.01 [-0.01, 0.03]", "< 0.001", "0.040"],
        ["min_k", "0.21 [0.19, 0.23]", "< 0.001", "0.040"],
        ["reference", "0.21 [0.19, 0.23]", "< 0.001", "0.040"],
        ["zlib", "0.02 [0.00, 0.04]", "< 0.001", "0.040"],
    ]
    assert comparison_table(comparisons().head(0)) is None


@pytest.mark.parametrize(
    ("p_value", "text"), [(0.00099, "< 0.001"), (0.001, "0.001"), (0.0456, "0.046"), (np.nan, "–")]
)
def test_a_p_value_has_three_digits(p_value, text):
    table = comparison_table(comparisons().assign(p_value=p_value, p_max_t=0.5))
    assert [line[2:] for line in table.lines] == [[text, "0.500"]] * 4


def test_a_trend_says_where_it_reaches_three_quarters():
    reached = trend_table(trends("occurrences", 2.125), "t")
    assert reached.lines == [["min_k", "0.40", "0.70 [0.60, 0.80]", "0.200", "2.12", ""]]
    assert reached.header == [
        "method", "Kendall's τ", "slope [95%]", "p of τ", "reaches 0.75 at", "note"
    ]  # fmt: skip
    assert reached.name == "t"
    assert reached.title == (
        "Trend over occurrences, mean over benchmarks; the slope is of AUROC's log-odds per "
        "doubling; τ is of scores among members"
    )
    assert len(reached.data) == 1
    series = trend_table(trends("learning_rate", 3e-4).assign(levels=2, p_value=0.0001), "t")
    assert series.header[3] == "p of the slope"
    assert series.title == (
        "Trend over learning rate, mean over benchmarks; the slope is of AUROC's log-odds per "
        "doubling"
    )
    assert series.lines[0][3:5] == ["< 0.001", "0.0003"]
    second_variant = trends("occurrences", 1.0).head(1).assign(variant="k=0.4")
    two_variants = trend_table(pd.concat([trends("occurrences", 1.0), second_variant]), "t")
    assert [line[0] for line in two_variants.lines] == ["min_k (k=0.2)", "min_k (k=0.4)"]
    assert trend_table(trends("occurrences", 1.0).assign(levels=1), "t") is None
    assert trend_table(trends("occurrences", np.nan), "t").lines[0][4] == "–"
    assert trend_table(trends("occurrences", 1.0).tail(1), "t") is None
    one = trends("occurrences", 1.0).assign(note=ONE_DOSE, slope=np.nan)
    assert trend_table(one, "t") is None


def test_a_method_without_a_slope_is_in_the_table_with_the_reason():
    few = trends("occurrences", np.nan).assign(slope=np.nan, note="no slope: it needs more")
    (line,) = trend_table(few, "t").lines
    assert line == ["min_k", "0.40", "–", "0.200", "–", "no slope: it needs more"]
    (line,) = trend_table(few.assign(tau=np.nan, p_value=np.nan), "t").lines
    assert line == ["min_k", "–", "–", "–", "–", "no slope: it needs more"]


def test_conditions_and_series_get_their_own_tables():
    both = pd.concat([trends("occurrences", 2.0), trends("learning_rate", 3e-4)])
    none = pd.DataFrame({"condition": []})
    made = Statistics(none, none, comparisons(), both, none, none)
    names = [t.name for t in condition_tables(made, "c")]
    assert names == ["comparisons", "trend_over_occurrences"]
    assert [t.name for t in series_tables(both)] == ["trend_over_learning_rate-c"]
    assert condition_tables(made, "another") == []


def test_replicates_are_shown_by_occurrences():
    rows = [("min_k", "k=0.2", dose, d) for dose in (1, 4) for d in (dose - 0.5, dose + 0.5)]
    rows += [("loss", "", 1, -1.0), ("loss", "", 1, 2.0)]
    replicates = pd.DataFrame(rows, columns=["method", "variant", "occurrences", "difference"])
    table = replicates_table(replicates.assign(example_id=range(len(replicates))))
    assert table.header == ["method", "1", "4"]
    assert table.lines == [
        ["min_k", "1.00 ± 0.50 (100%)", "4.00 ± 0.50 (100%)"],
        ["loss", "0.50 ± 1.50 (50%)", "–"],
    ]
    assert replicates_table(pd.DataFrame()) is None
    assert table.name == "replicates"
    assert table.title == (
        "Score when in less score when out, in standard deviations of the non-members, by "
        "occurrences: mean ± standard error (share of the examples above 0)"
    )
    expected = pd.DataFrame(
        [
            ("min_k", "k=0.2", 1, 1.0, 0.5, 2, 1.0),
            ("min_k", "k=0.2", 4, 4.0, 0.5, 2, 1.0),
            ("loss", "", 1, 0.5, 1.5, 2, 0.5),
        ],
        columns=[
            "method", "variant", "occurrences", "mean", "standard_error", "examples",
            "share_above_0",
        ],
    )  # fmt: skip
    pd.testing.assert_frame_equal(table.data, expected)
    zero = replicates.assign(example_id=0, difference=0.0)
    assert replicates_table(zero).lines[0][1] == "0.00 (0%)"


def test_auroc_without_the_flagged_examples_is_beside_that_of_all():
    pooled = pd.DataFrame([
        row(0.8), row(0.5, checkpoint="clean"), row(0.7, method="zlib"),
        row(0.1, condition="b"), row(0.1, metric="tpr"), row(0.1, benchmark="imdb"),
        row(0.1, occurrences="1"),
    ])  # fmt: skip
    counts = {"flagged_members": 3, "flagged_nonmembers": 2}
    unflagged = pd.DataFrame([
        row(0.75, **counts), row(0.9, benchmark="imdb", **counts),
        row(0.6, method="zlib", needs="≥ 20 members", **counts),
        row(0.3, condition="b", flagged_members=9, flagged_nonmembers=9),
    ])  # fmt: skip
    table = unflagged_table(pooled, unflagged, "a")
    assert table.name == "without_flagged"
    assert table.title == (
        "AUROC with and without the flagged examples (3 members and 2 non-members share text with "
        "a corpus apart from their copies), mean over benchmarks"
    )
    assert table.header == [
        "method", "all examples, contaminated model", "without the flagged, contaminated model",
        "all examples, clean model", "without the flagged, clean model",
    ]  # fmt: skip
    assert table.lines == [
        ["loss", estimate(0.8), estimate(0.75), estimate(0.5), "–"],
        ["zlib", estimate(0.7), "needs ≥ 20 members", "–", "–"],
    ]
    assert len(table.data) == 2
    assert unflagged_table(pooled, unflagged, "c") is None
