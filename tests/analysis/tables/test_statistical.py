"""The tables of comparisons and slopes."""

from itertools import combinations

import numpy as np
import pandas as pd

from contamination.analysis.statistics.tidy_tables import Statistics
from contamination.analysis.statistics.trends import ONE_DOSE
from contamination.analysis.tables.statistical import (
    comparison_table,
    condition_tables,
    replicates_table,
    series_tables,
    trend_table,
)


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
    assert table.header[0] == "recall less …"
    assert table.lines == [
        ["loss", "0.01 [-0.01, 0.03]", "< 0.001", "0.040"],
        ["min_k", "0.21 [0.19, 0.23]", "< 0.001", "0.040"],
        ["reference", "0.21 [0.19, 0.23]", "< 0.001", "0.040"],
        ["zlib", "0.02 [0.00, 0.04]", "< 0.001", "0.040"],
    ]
    assert comparison_table(comparisons().head(0)) is None


def test_a_trend_says_where_it_reaches_three_quarters():
    reached = trend_table(trends("occurrences", 2.125), "t")
    assert reached.lines == [["min_k", "0.40", "0.70 [0.60, 0.80]", "0.200", "2.12", ""]]
    assert reached.header[3] == "p of τ"
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
    found = pd.DataFrame(rows, columns=["method", "variant", "occurrences", "difference"])
    table = replicates_table(found.assign(example_id=range(len(found))))
    assert table.header == ["method", "1", "4"]
    assert table.lines == [
        ["min_k", "1.00 ± 0.50 (100%)", "4.00 ± 0.50 (100%)"],
        ["loss", "0.50 ± 1.50 (50%)", "–"],
    ]
    assert replicates_table(pd.DataFrame()) is None
