"""Trends over occurrences and over conditions, against known answers."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.config import AnalysisConfig
from analysis.inference.dose_response import crossing, fit
from analysis.inference.statistics import statistics
from analysis.inference.trends import COLUMNS, shape
from core.estimates import Estimate

QUICK = AnalysisConfig(draws=100)
X = np.log2([1.0, 2.0, 4.0, 8.0])


def logistic(x):
    return 1 / (1 + np.exp(-x))


def line(intercept: float, slope: float, spread: float = 0.0, members: int = 10_000):
    rng = np.random.default_rng(0)
    aurocs = logistic(intercept + slope * X)
    drawn = [np.clip(a + rng.normal(0, spread, 500), 0, 1) for a in aurocs]
    return {
        float(2**x): Estimate(members, members, float(a), d)
        for x, a, d in zip(X, aurocs, drawn, strict=True)
    }


def test_the_fit_gets_back_the_curve():
    truth = np.array([[0.1, 0.8], [2.0, -0.5], [0.0, 0.0]])
    curves = fit(X, logistic(truth[:, :1] + truth[:, 1:] * X), np.full(4, 1e6))
    np.testing.assert_allclose(np.transpose(curves), truth, atol=1e-4)


def test_perfect_and_hopeless_detectors_have_finite_slopes():
    curves = fit(X, np.array([[1.0] * 4, [0.0, 0, 1, 1], [0.5, 0.6, 0.9, 1.0]]), np.full(4, 25.0))
    assert np.isfinite(np.array(curves)).all()
    assert curves.slope[0] == pytest.approx(0, abs=1e-6)
    assert curves.slope[1] > curves.slope[2] > 0.5


def test_the_dose_of_three_quarters():
    found = shape(line(0.0, np.log(3) / 2, 0.01), 0.95)  # log-odds ln 3 at log2(dose) = 2
    assert found["reaches"] == pytest.approx(4, rel=0.01)
    assert found["reaches_low"] < 4 < found["reaches_high"]
    assert found["slope_low"] < found["slope"] < found["slope_high"]
    assert (found["levels"], found["lowest"], found["highest"]) == (4, 1, 8)
    assert found["monotone"] == 1
    assert found["note"] == ""


@pytest.mark.parametrize(
    ("intercept", "slope", "side"), [(2.0, 0.3, "above"), (0.0, 0.1, "below"), (2.0, -0.1, "above")]
)
def test_a_dose_outside_of_what_was_measured_is_missing_and_said(intercept, slope, side):
    found = shape(line(intercept, slope, 0.001), 0.95)
    assert np.isnan(found["reaches"])
    assert found["note"].startswith(f"{side} 0.75 wherever measured")


def test_a_falling_curve_crosses_too():
    curves = fit(X, logistic(np.array([[2.0 - 0.9 * x for x in X]])), np.full(4, 1e6))
    assert 2 ** crossing(curves, 0, 3, 0.75)[0] == pytest.approx(2, rel=0.01)


def test_one_dose_has_no_slope():
    found = shape({4.0: line(0, 1)[4.0]}, 0.95)
    assert found["note"] == "one level: no slope"
    assert "slope" not in found


def test_the_table_finds_the_simulated_dose(make):
    cells = [make(a_dose=20, seed=seed) for seed in (0, 1)]
    found = statistics("trial", 0, cells, QUICK).trends
    assert tuple(found.columns) == COLUMNS
    rows = found.query("over == 'occurrences' and benchmark == 'all'").set_index("method")
    assert list(rows.index) == ["loss", "min_k", "min_k_plus_plus"]
    assert (rows["p_value"] < 1e-3).all()
    assert (rows["slope_low"] > 0).all()
    assert 1 < rows.loc["min_k", "reaches"] < 8


def test_a_series_is_conditions_that_differ_in_one_fact(make):
    cells = [make(learning_rate=rate, seed=seed) for rate in (1e-4, 1e-3, 1e-2) for seed in (0, 1)]
    found = statistics("trial", 0, cells, QUICK).trends
    assert set(found["over"]) == {"occurrences", "learning_rate"}
    rows = found.query("over == 'learning_rate'")
    assert set(rows["condition"]) == {"tiny_llama-lr0.0001-tokens400000"}
    assert len(rows) == 3 * 3
    assert set(rows["levels"]) == {3}
    # The simulated scores are the same at every rate: no trend at all.
    assert rows["slope"].abs().max() < 1e-9
    assert (rows["p_value"] == 1).all()
