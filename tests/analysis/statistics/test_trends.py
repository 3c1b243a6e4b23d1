"""Trends over occurrences and over conditions, against known answers."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from contamination.analysis.cells import series_settings
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.dose_response import Curves, DoseResponse, log_dose_at_level
from contamination.analysis.statistics.kendall_trend import Detector
from contamination.analysis.statistics.results_table import Measure
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.statistics.trends import (
    COLUMNS,
    NOT_MEASURED,
    ONE_DOSE,
    Condition,
    _crossing_columns,
    occurrences_trend_rows,
    series_trend_rows,
    summarise_condition,
    trend_columns,
)
from contamination.analysis.sweeps import find_sweeps
from contamination.core.statistics.estimates import Estimate

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


@pytest.mark.parametrize(("intercept", "slope"), [(0.0, np.log(3) / 2), (2 * np.log(3), -0.549)])
def test_the_dose_of_three_quarters(intercept, slope):
    found = trend_columns(line(intercept, slope, 0.01), 0.95)  # log-odds ln 3 at log2(dose) = 2
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
    found = trend_columns(line(intercept, slope, 0.001), 0.95)
    assert np.isnan(found["reaches"])
    assert found["note"].startswith(f"{side} 0.75 wherever measured")


def test_where_the_examples_themselves_lie_is_said_not_where_a_draw_does():
    line = {at: Estimate(99, 9, at / 4, np.full(9, 0.8)) for at in (1.0, 2.0)}
    assert trend_columns(line, 0.9)["note"].startswith("below 0.75 wherever measured")


def test_a_level_that_is_not_reached_lies_where_the_first_curve_would_reach_it():
    at = math.log(1.5)
    above, below, falls, rises = (2, 0.1), (-3, 0.1), (1, -0.9), (0, 0.2)
    before, after = -math.inf, math.inf
    for lines, expected in (
        ([rises, falls, above, below], [at / 0.2, (1 - at) / 0.9, before, after]),
        ([falls, rises, above, below], [(1 - at) / 0.9, at / 0.2, after, before]),
        ([(2, 0), (-3, 0), (at + 0.1, 0.1)], [before, after, before]),
    ):
        levels, slopes = np.array(lines, float).T
        found = log_dose_at_level(Curves(levels[:, None], slopes), 0, 3, 0.6).tolist()
        assert found == pytest.approx(expected)
    at_the_ends = Curves(np.array([[-1.0], [-3.0]]), np.ones(2))
    assert log_dose_at_level(at_the_ends, 1, 3, 0.5).tolist() == pytest.approx([1, 3])


def test_benchmarks_reach_a_level_where_the_mean_of_their_curves_does():
    curves = Curves(np.array([[-1.0, 2.0], [-2.0, 0.5]]), np.array([0.8, 1.3]))
    for place, x in enumerate(log_dose_at_level(curves, 0, 3, 0.75)):
        mean = logistic(curves.levels[place] + curves.slope[place] * x).mean()
        assert mean == pytest.approx(0.75)


def test_an_end_of_the_interval_beyond_what_was_measured_is_open():
    """Of 20 draws three would cross before it and three after it."""
    log_occurrences = np.r_[1.5, [-np.inf] * 3, np.arange(14) / 10, [np.inf] * 3]
    inside = _crossing_columns(log_occurrences, np.array([0.6, 0.9]), 0.55)
    dose = [inside[name] for name in ("reaches", "reaches_low", "reaches_high")]
    assert (dose, inside["note"]) == (pytest.approx([2**1.5, 2**0.1, 2**1.2]), "")
    wide = _crossing_columns(log_occurrences, np.array([0.6, 0.9]), 0.75)
    assert wide["note"] == "interval open below; interval open above"
    assert np.isnan([wide["reaches_low"], wide["reaches_high"]]).all()
    for at in ([0.75, 0.6], [0.75, 0.9]):
        never = _crossing_columns(np.r_[np.inf, np.ones(9)], np.array(at), 0.9)
        assert never["note"] == "the fitted line does not cross 0.75"
    for beyond, side in ((np.inf, "above"), (-np.inf, "below")):
        found = _crossing_columns(np.r_[1.5, [beyond] * 9, 1], np.array([0.6, 0.9]), 0.5)
        assert found["note"] == f"interval {side} what was measured"


MANY = 10**6
"""Examples on a side: Student's quantile is the normal one."""
SLOPES = np.array([-0.2, 1.2, 0.4, 0.9, 0.1, 0.3, 0.7, 0.6])
"""Of draws about 0.5. Two lie further from it than zero does, and so does the last, once bent."""


def straight(levels, slope, members=MANY, spread=1e-6):
    """Draws so close to the line that their influence is what they differ by."""
    x = np.log2(levels)
    draws = logistic(0.1 + np.outer(slope + spread * SLOPES, x))
    values = zip(levels, logistic(0.1 + slope * x), draws.T, strict=True)
    return {level: Estimate(members, MANY, value, drawn) for level, value, drawn in values}


def test_the_slope_is_that_of_the_line_and_its_interval_that_of_the_draws():
    found = trend_columns(straight([4.0, 1.0, 16.0], 0.5), 0.9)
    half = NormalDist().inv_cdf(0.95) * 1e-6 * SLOPES.std()
    assert found["slope"] == pytest.approx(0.5, abs=1e-9)
    ends = found["slope_low"] - found["slope"], found["slope_high"] - found["slope"]
    assert ends == pytest.approx((-half, half), rel=1e-3)
    assert (found["levels"], found["lowest"], found["highest"]) == (3, 1, 16)


def test_the_slope_along_a_sweep_of_few_examples_has_students_interval():
    """Of the fewest on either side, and their draws vary √((n − 1) / n) too little."""
    many, few = (trend_columns(straight([1.0, 2.0, 4.0], 0.5, members=n), 0.95) for n in (MANY, 10))
    halves = [found["slope_high"] - found["slope"] for found in (few, many)]
    expected = t.ppf(0.975, 9) * (10 / 9) ** 0.5 / NormalDist().inv_cdf(0.975)
    assert halves[0] / halves[1] == pytest.approx(expected, rel=1e-3)


def test_a_move_between_levels_of_few_examples_needs_more():
    rng, values = np.random.default_rng(0), (0.6, 0.75)
    noise = 0.05 * rng.normal(size=(2, 500))
    for members, turns in ((MANY, "1.0 2.0"), (5, "")):
        levels = zip((1.0, 2.0), values, noise, strict=True)
        line = {at: Estimate(members, MANY, value, value + own) for at, value, own in levels}
        assert trend_columns(line, 0.95)["turns"] == turns


def test_levels_count_by_their_members():
    """A level of one member is hardly heard; without weights the slope would be far from 0."""
    one = straight([1.0, 2.0, 4.0], 0.0, members=10_000)
    one[4.0] = Estimate(1, 9, 0.9, np.full(len(SLOPES), 0.9))
    assert abs(trend_columns(one, 0.9)["slope"]) < 0.001


def test_monotony_is_the_share_of_draws_that_move_one_way():
    draws = np.array([[0.5, 0.5, 0.6], [0.5, 0.5, 0.4], [0.6, 0.7, 0.6]])
    levels = zip((1.0, 2.0, 4.0), draws.T, strict=True)
    assert (
        trend_columns({at: Estimate(9, 9, 0.5, own) for at, own in levels}, 0.9)["monotone"]
        == 2 / 3
    )


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ((1.0, 1.0, 1.0), "the AUROC is 1 at all 3 levels"),
        ((0.8, 1.0, 1.0), "the AUROC is 1 at all but one of the 3 levels"),
        ((0.0, 1.0, 1.0), "the AUROC is 0 or 1 at all 3 levels"),
    ],
)
def test_a_saturated_series_has_no_slope_and_its_note_tells_why(make, values, note):
    rates = [1e-4, 1e-3, 1e-2]
    line = {
        rate: Estimate(9, 9, value, np.full(8, value))
        for rate, value in zip(rates, values, strict=True)
    }
    found = trend_columns(line, 0.9)
    assert found["note"] == f"no slope: {note}"
    assert "slope" not in found
    detector = Detector("all", "loss", "")
    (row,) = series_trend_rows(
        [Condition(make(learning_rate=rate), {detector: line[rate]}) for rate in rates], 0.9
    )
    assert np.isnan(row["p_value"])


def test_clear_moves_are_those_of_paired_differences():
    """AUROCs of the same texts: no draw is monotone, though the intervals overlap."""
    rng = np.random.default_rng(0)
    hardness = rng.normal(0, 0.04, 500)
    values = (0.586, 0.751, 0.631, 0.823)
    line = {
        level: Estimate(60, 60, value, value + hardness + rng.normal(0, 0.01, 500))
        for level, value in zip((1.0, 2.0, 4.0, 8.0), values, strict=True)
    }
    row = trend_columns(line, 0.95)
    assert row["slope_low"] > 0
    assert row["monotone"] == 0
    assert row["turns"] == "1.0 2.0 4.0 8.0"
    assert trend_columns({1.0: line[1.0], 8.0: line[8.0]}, 0.95)["turns"] == "1.0 8.0"
    assert trend_columns({1.0: line[1.0]}, 0.95)["turns"] == ""


def test_a_series_is_tested_in_the_order_of_its_fact(make):
    rates, detector = [1e-2, 1e-4, 1e-3], Detector("all", "loss", "")
    lines = straight([100.0, 1.0, 10.0], 0.5)
    conditions = [
        Condition(make(learning_rate=rate), {detector: lines[rate * 1e4]}) for rate in rates
    ]
    (row,) = series_trend_rows(conditions, 0.9)
    assert (row["over"], row["condition"]) == ("learning_rate", "tiny_llama-lr0.0001-tokens400000")
    assert (row["benchmark"], row["method"], row["levels"]) == ("all", "loss", 3)
    assert (row["tau"], row["p_value"]) == (1, pytest.approx(1 / 9))
    assert row["slope"] == pytest.approx(0.5, abs=1e-5)
    (two,) = series_trend_rows(conditions[:2], 0.9)
    assert (two["levels"], two["tau"], two["slope"]) == (2, 1, pytest.approx(0.5, abs=1e-5))
    close = straight([100.0, 1.0, 10.0], 0.5e-6)  # four of eight draws lie further off than 0
    near = [
        condition._replace(auroc={detector: close[condition.cell.learning_rate * 1e4]})
        for condition in conditions
    ]
    (row,) = series_trend_rows(near, 0.9)
    assert row["p_value"] == pytest.approx((1 + 4) / 9)
    lacks = [conditions[0], conditions[1]._replace(auroc={})]
    assert not list(series_trend_rows(lacks, 0.9))
    assert not list(series_trend_rows([*conditions, conditions[0]], 0.9))  # two of one rate
    level = straight([100.0, 1.0, 10.0], 0.0, spread=0.0).values()
    flat = [c._replace(auroc={detector: v}) for c, v in zip(conditions, level, strict=True)]
    (row,) = series_trend_rows(flat, 0.9)
    assert (row["tau"], row["p_value"]) == (0, 1)
    assert row["slope_low"] < 0 < row["slope_high"]  # not told from 0 by rounding


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
    found = summarise_condition([cell], pooled)
    assert (found.cell, dict(found.auroc)) == (cell, {Detector("x", "loss", "v"): doses[2.0]})
    detector = Detector("x", "loss", "v")
    rose = DoseResponse(
        Estimate(9, 9, 0.5, 0.5 + 0.1 * SLOPES), np.full((9, 1), 0.1), frozenset([1.0, 2.0, 10.0])
    )
    (row,) = occurrences_trend_rows("c", [], pooled, {detector: rose}, 0.9)
    named = {"condition": "c", "over": "occurrences", "benchmark": "x", "method": "loss"}
    assert {name: row[name] for name in named} == named
    assert (row["levels"], row["lowest"], row["highest"], row["slope"]) == (3, 1, 10, 0.5)
    assert row["monotone"] == trend_columns(doses, 0.9)["monotone"]
    assert np.isnan([row["tau"], row["p_value"]]).all()
    unmeasured = pd.DataFrame(occurrences_trend_rows("c", [cell], {}, {}, 0.9))
    assert unmeasured["tau"].notna().sum() == 9
    assert set(unmeasured["note"]) == {NOT_MEASURED}


def test_one_dose_has_no_slope():
    found = trend_columns({4.0: line(0, 1)[4.0]}, 0.95)
    assert found["note"] == "no slope: one level"
    assert "slope" not in found


def test_the_table_finds_the_simulated_dose(make):
    cells = [make(a_dose=20, seed=seed) for seed in (0, 1)]
    found = compute_statistics("trial", 0, cells, QUICK).trends
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
    found = compute_statistics("trial", 0, cells, QUICK).trends
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
    made = compute_statistics("trial", 0, cells[::-1], QUICK)
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
    sweeps = find_sweeps(made.pooled, made.trends, series_settings(cells))
    for sweep, swapped in zip(sweeps, (False, True), strict=True):
        for table in (sweep.rows, sweep.trends):
            assert set(table["condition"].str.contains("swapped")) == {swapped}
