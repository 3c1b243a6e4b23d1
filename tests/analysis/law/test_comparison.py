from itertools import product

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.law.comparison import (
    LAW,
    LOGIT,
    NEAREST,
    SIGMOID,
    average_benchmarks,
    decisions,
    logit_in_log_copies,
    nearest_cell,
    predict_held_out,
    sigmoid_in_capacity,
    summarise,
)
from contamination.analysis.law.fit import fit_law
from contamination.analysis.law.predict import predict
from perf.law_simulation import SimulatedLaw, simulate_rows


def test_on_cells_of_a_law_the_law_is_better_than_lines_and_neighbours():
    rows = simulate_rows(
        SimulatedLaw(), np.random.default_rng(5), methods=("loss", "min_k"),
        benchmarks=("boolq", "imdb"),
    )  # fmt: skip
    held = rows["occurrences"] == 8
    law = fit_law(rows[~held], {}, 1e4)
    table = predict_held_out(law, rows[~held], rows[held], 0.9, 0)
    assert set(table["outside"]) == {"occurrences"}
    row = table.iloc[0]
    settings = {name: row[name] for name in law.factors}
    prediction = predict(law, settings, row["method"], row["benchmarks"].split(","))
    assert row[LAW] == pytest.approx(prediction.auroc)
    ends = prediction.measured_interval(row["auroc_error"], 0.9, 0)
    assert (row["low"], row["high"]) == pytest.approx(ends)
    renamed = rows[held].replace({"method": {"loss": "x"}, "benchmark": {"imdb": "y"}})
    unknown = predict_held_out(law, rows[~held], renamed, 0.9, 0).set_index("method")["outside"]
    assert set(unknown["x"]) == {"occurrences, method, benchmark"}
    assert set(unknown["min_k"]) == {"occurrences, benchmark"}
    errors = summarise(table, 0.9).set_index(["held_out", "predictor"])["mae"]
    assert errors["outside", LAW] < errors["outside", LOGIT]
    assert errors["outside", LAW] < errors["outside", NEAREST]
    covered = (table["auroc"] >= table["low"]) & (table["auroc"] <= table["high"])
    assert covered.mean() > 0.5


def test_a_value_that_the_fit_had_no_other_of_is_outside():
    rows = simulate_rows(
        SimulatedLaw(), np.random.default_rng(5), methods=("loss",), benchmarks=("boolq", "imdb"),
        parameters=(226_000, 1_060_000), learning_rates=(1e-3, 2e-3),
    )  # fmt: skip
    held = rows["parameters"] > 226_000
    law = fit_law(rows[~held], {}, 1e4)
    assert "parameters" not in law.factors
    assert set(predict_held_out(law, rows[~held], rows[held], 0.9, 0)["outside"]) == {"parameters"}


def test_the_nearest_cell_is_that_of_a_loop_and_ties_are_averaged():
    known = pd.DataFrame({
        "method": "loss", "auroc": [0.6, 0.7, 0.9], "occurrences": [1, 4, 16],
    })  # fmt: skip
    held = pd.DataFrame({"method": ["loss", "loss", "new"], "occurrences": [2, 5, 20]})
    nearest = nearest_cell(known, held, ["occurrences"])
    np.testing.assert_allclose(nearest, [0.65, 0.7, 0.9])
    other_method = known.assign(method="zlib", auroc=0.1)
    two_methods = pd.concat([known, other_method], ignore_index=True)
    np.testing.assert_allclose(nearest_cell(two_methods, held, ["occurrences"]), [0.65, 0.7, 0.5])
    np.testing.assert_allclose(nearest_cell(known, held, []), [2.2 / 3] * 3)


def test_the_nearest_cell_is_by_all_factors_together():
    known = pd.DataFrame({
        "method": "loss", "auroc": [0.6, 0.8], "occurrences": [1, 4], "learning_rate": [4e-3, 1e-3],
    })  # fmt: skip
    held = pd.DataFrame({"method": ["loss"], "occurrences": [1], "learning_rate": [1e-3]})
    nearest = nearest_cell(known, held.assign(occurrences=1.9), ["occurrences", "learning_rate"])
    np.testing.assert_allclose(nearest, [0.8])
    np.testing.assert_allclose(nearest_cell(known, held, ["occurrences"]), [0.6])


def test_the_logit_is_a_line_of_each_method_in_the_logs_of_the_factors():
    rows = [*product(("loss", "zlib"), (1, 2, 8), (1e-3, 4e-3))]
    known = pd.DataFrame(rows, columns=["method", "occurrences", "learning_rate"])
    start = known["method"].map({"loss": 0.2, "zlib": -0.6})
    logit = start + 0.7 * np.log(known["occurrences"]) + 0.3 * np.log(known["learning_rate"] / 2e-3)
    known["auroc"] = 1 / (1 + np.exp(-logit))
    held = pd.DataFrame({
        "method": ["loss", "zlib", "new"], "occurrences": [4, 4, 4], "learning_rate": [2e-3] * 3,
    }, index=[7, 8, 9])  # fmt: skip
    expected = np.array([0.2, -0.6, -0.2]) + 0.7 * np.log(4)  # of a new method, the mean line
    predicted = logit_in_log_copies(known, held, ["occurrences", "learning_rate"])
    np.testing.assert_allclose(predicted, 1 / (1 + np.exp(-expected)))


@pytest.mark.parametrize(("auroc", "predicted"), [(1.0, 0.995), (0.0, 0.005), (0.9, 0.9)])
def test_a_certain_auroc_has_finite_log_odds(auroc, predicted):
    known = pd.DataFrame({"method": "loss", "occurrences": [1, 2, 4], "auroc": auroc})
    np.testing.assert_allclose(logit_in_log_copies(known, known, ["occurrences"]), predicted)


def test_a_sigmoid_in_capacity_finds_its_own_curve():
    copies, sizes = np.meshgrid([1.0, 2, 4, 8], [2e5, 1e6, 4e6])
    x = np.log(3.6 * sizes / 3e5) + 0.8 * np.log(copies)
    auroc = 0.5 * (1 + np.tanh(1.2) / (1 + np.exp(-(0.7 * x - 1.5))))
    table = pd.DataFrame({
        "method": "loss", "auroc": auroc.ravel(), "parameters": sizes.ravel(),
        "budget_tokens": 3e5, "occurrences": copies.ravel(),
    })  # fmt: skip
    np.testing.assert_allclose(sigmoid_in_capacity(table, table, []), auroc.ravel(), atol=2e-3)
    constant_method = table.assign(method="zlib", auroc=0.5)
    two_methods = pd.concat([table, constant_method], ignore_index=True)
    predicted = sigmoid_in_capacity(two_methods, two_methods.set_index(two_methods.index + 5), [])
    np.testing.assert_allclose(predicted, [*auroc.ravel(), *[0.5] * 12], atol=2e-3)
    new_method = table.assign(method="new")
    np.testing.assert_allclose(sigmoid_in_capacity(table, new_method, []), auroc.ravel(), atol=2e-3)
    unknown = new_method.assign(parameters=None)
    for known, held in ((table.assign(parameters=np.nan), table), (table, unknown)):
        predicted = sigmoid_in_capacity(known, held, [])
        assert np.isnan(predicted).all()
        assert len(predicted) == 12


def test_decisions_count_clear_pairs_only():
    measured, error = pd.Series([0.5, 0.6, 0.9]), pd.Series([0.04, 0.04, 0.01])
    assert decisions(measured, error, pd.Series([0.5, 0.4, 0.45])) == (0.5, 2)
    assert decisions(measured, error, pd.Series([0.5, 0.5, 0.5])) == (0.5, 2)
    assert decisions(measured, error, pd.Series([0.1, 0.2, 0.3])) == (1.0, 2)
    share, pairs = decisions(measured.head(2), error.head(2), measured.head(2))
    assert (np.isnan(share), pairs) == (True, 0)
    exactly_twice = pd.Series([0.5, 1.0]), pd.Series([0.25, 0.0])
    assert decisions(*exactly_twice, pd.Series([0.4, 0.3])) == (0.0, 1)
    assert decisions(*(column[::-1] for column in exactly_twice), pd.Series([0.4, 0.3])) == (1.0, 1)


def test_errors_are_summed_up_for_all_cells_and_for_each_side_of_the_range():
    table = pd.DataFrame({
        "cell": ["a", "a", "b"], "auroc": [0.6, 0.7, 0.9], "auroc_error": [0.01, 0.01, 0.03],
        "low": [0.6, 0.5, 0.85], "high": [0.65, 0.69, 0.9], LAW: [0.62, 0.66, 0.9],
        NEAREST: [0.5, 0.5, 0.5], LOGIT: [0.7, 0.6, 0.8], SIGMOID: [np.nan, 0.7, 0.9],
        "outside": ["occurrences", "", ""],
    })  # fmt: skip
    errors = summarise(table, 0.9).set_index(["held_out", "predictor"])
    predictors = [LAW, NEAREST, LOGIT]
    assert list(errors.index) == [
        *(("all", name) for name in predictors),
        *(("inside", name) for name in [*predictors, SIGMOID]),
        *(("outside", name) for name in predictors),
    ]
    noise = np.sqrt(2 / np.pi)
    expected = {
        "rows": 3, "cells": 2, "mae": 0.02, "noise": noise * 0.05 / 3, "bias": -0.02 / 3,
        "coverage": 2 / 3, "confidence": 0.9, "decisions": 1.0, "pairs": 3,
    }  # fmt: skip
    assert errors.loc["all", LAW].to_dict() == pytest.approx(expected)
    assert list(errors.columns) == list(expected)
    nearest = errors.loc["all", NEAREST]
    assert nearest[["mae", "bias", "decisions"]].tolist() == pytest.approx([0.7 / 3, -0.7 / 3, 0.5])
    assert nearest[["coverage", "confidence"]].isna().all()
    assert errors.loc["all", LOGIT]["decisions"] == pytest.approx(2 / 3)
    columns = ["rows", "cells", "mae", "noise", "coverage", "pairs"]
    inside = [2, 2, 0.02, noise * 0.02, 0.5, 1]
    assert errors.loc["inside", LAW][columns].tolist() == pytest.approx(inside)
    outside = [1, 1, 0.02, noise * 0.01, 1.0, 0]
    assert errors.loc["outside", LAW][columns].tolist() == pytest.approx(outside)


def test_means_over_benchmarks_have_the_error_of_a_mean():
    rows = simulate_rows(SimulatedLaw(), np.random.default_rng(0), learning_rates=(1e-3,), seeds=1)
    one = rows[rows["recency"] < 12].groupby(["benchmark", "method", "occurrences"]).head(1)
    table = average_benchmarks(one)
    assert len(table) == 16
    assert table["auroc_error"].to_numpy() == pytest.approx(0.03 / 2)
    first = table.iloc[0]
    same = one[(one["method"] == first["method"]) & (one["occurrences"] == first["occurrences"])]
    assert first["auroc"] == pytest.approx(same["auroc"].mean())
    assert first["recency"] == pytest.approx(np.exp(np.log(same["recency"]).mean()))


def test_a_mean_over_benchmarks_has_the_facts_of_its_cell():
    row = {
        "cell": "a", "method": "loss", "occurrences": 2, "learning_rate": 1e-3, "parameters": None,
        "model": "tiny", "budget_tokens": 300_000, "auroc_error": 0.03, "shift_error": 0.3,
    }  # fmt: skip
    rows = pd.DataFrame([
        {**row, "benchmark": "imdb", "auroc": 0.6, "shift": 0.2, "recency": 2.0},
        {**row, "benchmark": "boolq", "auroc": 0.8, "shift": 0.6, "recency": 8.0,
         "auroc_error": 0.04, "shift_error": 0.4},
        {**row, "cell": "b", "benchmark": "boolq", "auroc": 0.9, "shift": 1.0, "recency": 3.0},
    ])  # fmt: skip
    mean, single = average_benchmarks(rows).to_dict("records")
    parameters = mean.pop("parameters")
    assert np.isnan(parameters)
    assert mean == pytest.approx({
        "cell": "a", "method": "loss", "occurrences": 2, "auroc": 0.7, "shift": 0.4,
        "learning_rate": 1e-3, "recency": 4.0, "auroc_error": 0.025, "shift_error": 0.25,
        "benchmarks": "boolq,imdb", "model": "tiny", "budget_tokens": 300_000,
    })  # fmt: skip
    assert (single["cell"], single["auroc"], single["benchmarks"]) == ("b", 0.9, "boolq")
