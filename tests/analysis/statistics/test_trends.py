"""Trends over occurrences and over conditions, against known answers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from analysis.cells import series_of
from analysis.config import AnalysisConfig
from analysis.statistics.dose_response import Curves, crossing, fit
from analysis.statistics.dose_test import Detector
from analysis.statistics.results import Measure
from analysis.statistics.tidy_tables import statistics
from analysis.statistics.trends import (
    COLUMNS,
    ONE_DOSE,
    Condition,
    _reaches,
    condition_of,
    occurrences_rows,
    series_rows,
    shape,
)
from analysis.sweeps import sweeps_of
from core.estimates import Estimate

QUICK = AnalysisConfig(draws=100, blind_folds=3)
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


def test_the_fit_is_the_maximum_of_the_likelihood():
    """With half an example a side at every dose, and doses of unequal weight."""
    members = np.array([40.0, 7.0, 19.0, 3.0])
    aurocs = np.array([[0.4, 0.6, 0.7, 0.95], [0.9, 0.5, 0.6, 0.1], [1.0, 0.9, 0.2, 0.0]])
    for row, *found in zip(aurocs, *fit(X, aurocs, members), strict=True):
        share = (members * row + 0.5) / (members + 1)

        def lost(line, share=share):
            p = logistic(line[0] + line[1] * X)
            return -(members * (share * np.log(p) + (1 - share) * np.log(1 - p))).sum()

        assert found == pytest.approx(minimize(lost, [0, 0], tol=1e-9).x, abs=1e-4)
        left = members * (share - logistic(found[0] + found[1] * X))
        assert [left.sum(), (left * X).sum()] == pytest.approx([0, 0], abs=1e-7)


def test_a_jump_among_many_members_is_fitted_too():
    """Newton's own steps would overshoot, and of 10,000 a side some p is nearly 1."""
    auroc = np.array(list(product([0.0, 0.5, 1.0], repeat=4)))
    for members in np.array([[10_000, 3, 10_000, 50], [10_000] * 4], float):
        share = (members * auroc + 0.5) / (members + 1)
        left = members * (share - logistic(fit(X, auroc, members).at(X)))
        np.testing.assert_allclose([left.sum(axis=1), left @ X], 0, atol=1e-7)


def test_perfect_and_hopeless_detectors_have_finite_slopes():
    curves = fit(X, np.array([[1.0] * 4, [0.0, 0, 1, 1], [0.5, 0.6, 0.9, 1.0]]), np.full(4, 25.0))
    assert np.isfinite(np.array(curves)).all()
    assert curves.slope[0] == pytest.approx(0, abs=1e-6)
    assert curves.slope[1] > curves.slope[2] > 0.5


@pytest.mark.parametrize(("intercept", "slope"), [(0.0, np.log(3) / 2), (2 * np.log(3), -0.549)])
def test_the_dose_of_three_quarters(intercept, slope):
    found = shape(line(intercept, slope, 0.01), 0.95)  # log-odds ln 3 at log2(dose) = 2
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


def test_where_the_examples_themselves_lie_is_said_not_where_a_draw_does():
    line = {at: Estimate(99, 9, at / 4, np.full(9, 0.8)) for at in (1.0, 2.0)}
    assert shape(line, 0.9)["note"].startswith("below 0.75 wherever measured")


def test_a_level_that_is_not_reached_lies_where_the_first_curve_would_reach_it():
    at = math.log(1.5)
    above, below, falls, rises = (2, 0.1), (-3, 0.1), (1, -0.9), (0, 0.2)
    before, after = -math.inf, math.inf
    for lines, expected in (
        ([rises, falls, above, below], [at / 0.2, (1 - at) / 0.9, before, after]),
        ([falls, rises, above, below], [(1 - at) / 0.9, at / 0.2, after, before]),
        ([(2, 0), (-3, 0), (at + 0.1, 0.1)], [before, after, before]),
    ):
        curves = Curves(*np.array(lines, float).T)
        assert crossing(curves, 0, 3, 0.6).tolist() == pytest.approx(expected)
    at_the_ends_and_all_along = Curves(np.array([-1.0, -3.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    np.testing.assert_equal(crossing(at_the_ends_and_all_along, 1, 3, 0.5), [1, 3, np.nan])


def test_an_end_of_the_interval_beyond_what_was_measured_is_open():
    """Of 20 draws three would cross before it and three after it."""
    log_occurrences = np.r_[1.5, [-np.inf] * 3, np.arange(14) / 10, [np.inf] * 3]
    inside = _reaches(log_occurrences, np.array([0.6, 0.9]), 0.55)
    dose = [inside[name] for name in ("reaches", "reaches_low", "reaches_high")]
    assert (dose, inside["note"]) == (pytest.approx([2**1.5, 2**0.1, 2**1.2]), "")
    wide = _reaches(log_occurrences, np.array([0.6, 0.9]), 0.75)
    assert wide["note"] == "interval open below; interval open above"
    assert np.isnan([wide["reaches_low"], wide["reaches_high"]]).all()
    for at in ([0.75, 0.6], [0.75, 0.9]):
        never = _reaches(np.r_[np.inf, np.ones(9)], np.array(at), 0.9)
        assert never["note"] == "the fitted line does not cross 0.75"
    for beyond, side in ((np.inf, "above"), (-np.inf, "below")):
        found = _reaches(np.r_[1.5, [beyond] * 9, 1], np.array([0.6, 0.9]), 0.5)
        assert found["note"] == f"interval {side} what was measured"


SLOPES = np.array([-0.2, 1.2, 0.4, 0.9, 0.1, 0.3, 0.7, 0.6])
"""Of draws about 0.5. Two lie further from it than zero does, and so does the last, once bent."""


def straight(levels, slope, members=10**8):
    """Draws that are logistic lines themselves; the last one's first two levels are exchanged."""
    x = np.log2(levels)
    draws = logistic(0.1 + np.outer(SLOPES, x))
    draws[-1, :2] = draws[-1, 1::-1]
    values = zip(levels, logistic(0.1 + slope * x), draws.T, strict=True)
    return {level: Estimate(members, 9, value, drawn) for level, value, drawn in values}


def test_slope_and_monotony_are_those_of_the_draws():
    line = straight([4.0, 1.0, 16.0], 0.5)
    assert shape(line, 0.5)["monotone"] == 7 / 8
    found = shape({at: replace(own, draws=own.draws[:-1]) for at, own in line.items()}, 0.5)
    slopes = [0.5, *np.quantile(SLOPES[:-1], [0.25, 0.75])]
    named = [found[name] for name in ("slope", "slope_low", "slope_high")]
    assert named == pytest.approx(slopes, abs=1e-5)
    assert (found["levels"], found["lowest"], found["highest"]) == (3, 1, 16)
    draws = np.array([[0.5, 0.5, 0.6], [0.5, 0.5, 0.4], [0.6, 0.7, 0.6]])
    levels = zip((1.0, 2.0, 4.0), draws.T, strict=True)
    assert shape({at: Estimate(9, 9, 0.5, own) for at, own in levels}, 0.9)["monotone"] == 2 / 3


def test_a_series_is_tested_in_the_order_of_its_fact(make):
    rates, detector = [1e-2, 1e-4, 1e-3], Detector("all", "loss", "")
    lines = straight([100.0, 1.0, 10.0], 0.5)
    conditions = [
        Condition(make(learning_rate=rate), {detector: lines[rate * 1e4]}) for rate in rates
    ]
    (row,) = series_rows(conditions, 0.9)
    assert (row["over"], row["condition"]) == ("learning_rate", "tiny_llama-lr0.0001-tokens400000")
    assert (row["benchmark"], row["method"], row["levels"]) == ("all", "loss", 3)
    assert (row["tau"], row["p_value"]) == (1, pytest.approx((1 + 3) / 9))
    assert row["slope"] == pytest.approx(0.5, abs=1e-5)
    (two,) = series_rows(conditions[:2], 0.9)
    assert (two["levels"], two["tau"], two["slope"]) == (2, 1, pytest.approx(0.5, abs=1e-5))
    lacks = [conditions[0], conditions[1]._replace(auroc={})]
    assert not list(series_rows(lacks, 0.9))
    assert not list(series_rows([*conditions, conditions[0]], 0.9))  # two of one rate
    level = straight([100.0, 1.0, 10.0], 0.0).values()
    flat = [c._replace(auroc={detector: v}) for c, v in zip(conditions, level, strict=True)]
    (row,) = series_rows(flat, 0.9)
    assert (row["tau"], row["p_value"]) == (0, 1)


def test_trends_are_those_of_the_aurocs_of_contaminated_models(cell):
    """Doses within a condition, all members along a series; numbers alone."""
    doses = straight([10.0, 2.0, 1.0], 0.5)
    lacks = replace(doses[1.0], value=math.nan, needs="≥ 20 members")
    auroc = Measure("contaminated", "loss", "v", "any", "auroc")
    own = {f"{dose:g}": value for dose, value in doses.items()} | {"any": doses[2.0]}
    pooled = {auroc._replace(occurrences=at): {"x": v, "y": lacks} for at, v in own.items()}
    others = {"checkpoint": "clean", "method": "blind", "metric": "tpr_at_fpr_0.05"}
    for name, value in others.items():
        for at in ("1", "any"):
            pooled[auroc._replace(**{name: value, "occurrences": at})] = {"x": doses[10.0]}
    found = condition_of([cell], pooled)
    assert (found.cell, dict(found.auroc)) == (cell, {Detector("x", "loss", "v"): doses[2.0]})
    (row,) = occurrences_rows("c", [], pooled, 0.9)
    named = {"condition": "c", "over": "occurrences", "benchmark": "x", "method": "loss"}
    untested = {"variant": "v", "tau": math.nan, "p_value": math.nan}
    expected = {**named, **untested, **shape(doses, 0.9), "note": ONE_DOSE}
    np.testing.assert_equal(list(occurrences_rows("c", [], pooled, 0.9)), [expected])
    unmeasured = pd.DataFrame(occurrences_rows("c", [cell], {}, 0.9))
    assert unmeasured["tau"].notna().sum() == 9
    assert set(unmeasured["note"]) == {"no dose was measured"}


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
    assert set(rows["condition"]) == {"tiny_llama-lr0.001-tokens400000"}
    assert (rows["p_value"] < 1e-3).all()
    assert (rows["slope_low"] > 0).all()
    assert ONE_DOSE not in set(rows["note"])
    assert 1 < rows.loc["min_k", "reaches"] < 8


def test_a_series_is_conditions_that_differ_in_one_fact(make):
    cells = [make(learning_rate=rate) for rate in (1e-4, 1e-3, 1e-2)]
    found = statistics("trial", 0, cells, QUICK).trends
    assert set(found["over"]) == {"occurrences", "learning_rate"}
    rows = found.query("over == 'learning_rate'")
    assert set(rows["condition"]) == {"tiny_llama-lr0.0001-tokens400000"}
    assert len(rows) == 3 * 3
    assert set(rows["levels"]) == {3}
    # The simulated scores are the same at every rate: no trend at all.
    assert rows["slope"].abs().max() < 1e-9
    assert (rows["p_value"] == 1).all()
    assert (rows["tau"] == 0).all()


def test_a_falling_series_falls_and_swapped_cells_are_a_series_of_their_own(make):
    effects = {1e-4: 0.9, 1e-3: 0.5, 1e-2: 0.1}
    one = ["boolq"]
    cells = [make(benchmarks=one, learning_rate=r, effect=e) for r, e in effects.items()]
    cells += [make(benchmarks=one, learning_rate=r, effect=1 - e, swapped=True)
              for r, e in effects.items()]  # fmt: skip
    made = statistics("trial", 0, cells[::-1], QUICK)
    assert set(made.replicates["condition"]) == {cell.condition for cell in cells[:3]}
    rows = made.trends.query("over == 'learning_rate' and benchmark == 'all'")
    falling = rows["condition"].eq("tiny_llama-lr0.0001-tokens400000")
    assert set(rows["condition"][~falling]) == {"tiny_llama-lr0.0001-tokens400000-swapped"}
    assert (rows["levels"] == 3).all()
    assert falling.sum() == (~falling).sum() == 3
    for own, sign in ((rows[falling], -1), (rows[~falling], 1)):
        assert (np.sign(own[["tau", "slope", "slope_low", "slope_high"]]) == sign).all(axis=None)
        assert (own["p_value"] < 0.05).all()
        assert (own["monotone"] > 0.9).all()
    sweeps = sweeps_of(made.pooled, made.trends, series_of(cells))
    for sweep, swapped in zip(sweeps, (False, True), strict=True):
        for table in (sweep.rows, sweep.trends):
            assert set(table["condition"].str.contains("swapped")) == {swapped}
