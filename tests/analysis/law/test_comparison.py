import numpy as np
import pandas as pd
import pytest

from contamination.analysis.law.comparison import (
    LAW,
    LOGIT,
    NEAREST,
    average_benchmarks,
    decisions,
    nearest_cell,
    predict_held_out,
    sigmoid_in_capacity,
    summarise,
)
from contamination.analysis.law.fit import fit_law
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
    found = nearest_cell(known, held, ["occurrences"])
    np.testing.assert_allclose(found, [0.65, 0.7, 0.9])


def test_a_sigmoid_in_capacity_finds_its_own_curve():
    copies, sizes = np.meshgrid([1.0, 2, 4, 8], [2e5, 1e6, 4e6])
    x = np.log(3.6 * sizes / 3e5) + 0.8 * np.log(copies)
    auroc = 0.5 * (1 + np.tanh(1.2) / (1 + np.exp(-(0.7 * x - 1.5))))
    table = pd.DataFrame({
        "method": "loss", "auroc": auroc.ravel(), "parameters": sizes.ravel(),
        "budget_tokens": 3e5, "occurrences": copies.ravel(),
    })  # fmt: skip
    np.testing.assert_allclose(sigmoid_in_capacity(table, table, []), auroc.ravel(), atol=2e-3)
    unknown = table.assign(parameters=np.nan)
    assert np.isnan(sigmoid_in_capacity(unknown, unknown, [])).all()


def test_decisions_count_clear_pairs_only():
    measured, error = pd.Series([0.5, 0.6, 0.9]), pd.Series([0.04, 0.04, 0.01])
    assert decisions(measured, error, pd.Series([0.5, 0.4, 0.45])) == (0.5, 2)
    assert decisions(measured, error, pd.Series([0.5, 0.5, 0.5])) == (0.5, 2)


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
