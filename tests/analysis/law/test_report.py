"""The words, tables and chart of a fitted law, from numbers that are written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import t

from contamination.analysis.law import report
from contamination.analysis.law.config import LawStage
from contamination.analysis.law.fit import Law
from contamination.analysis.law.report import LawResults, coefficient_rows, law_document

LAW = Law(
    factors={"occurrences": [1.0, 8.0, 2.0], "learning_rate": [1e-3, 4e-3, 0.0020004]},
    constant={"parameters": 226_000.0, "recency": None},
    names=["intercept", "occurrences", "learning_rate", "method|loss", "benchmark|imdb"],
    values=[np.log(0.5), 0.9, 0.25, 0.1, -0.2],
    covariance=np.diag([0.0, 0.01, 0.04, 0.0, -1e-20]).tolist(),
    variances={"method": 0.04, "benchmark": 0.25},
    errors=1.234,
    freedom=5,
    growth={"loss": 0.2},
    within={"loss": 0.3},
    recency_tokens=12_345.0,
    cells=8,
    rows=64,
)
CELLS = {
    "cell": ["a", "b"], "method": ["loss", "loss"], "occurrences": [1, 4], "auroc": [0.6, 0.7],
    "shift": [0.4, 0.8], "law": [0.61, 0.69], "low": [0.55, 0.6], "high": [0.65, 0.68],
}  # fmt: skip


def t_quantile() -> float:
    return float(t.ppf(0.95, 5))


@pytest.fixture
def law_results() -> LawResults:
    """A law with all there can be: held-out cells, calibration, predictions."""
    errors = pd.DataFrame({
        "held_out": ["all", "all"], "predictor": ["law", "nearest cell"], "rows": [6, 6],
        "cells": [2, 2], "mae": [0.0123, 0.0456], "noise": [0.01, 0.01], "bias": [-0.002, 0.03],
        "coverage": [0.875, np.nan], "confidence": [0.9, np.nan], "decisions": [0.75, np.nan],
        "pairs": [4, 0],
    })  # fmt: skip
    calibration = pd.DataFrame({
        "method": ["loss", "loss", "min_k"], "occurrences": [0, 4, 0], "cells": 4,
        "references": [1, 1, 3], "raw": [0.61, 0.7, 0.6], "predicted": [0.65, 0.8, 0.7],
        "calibrated": [0.66, 0.81, 0.65], "difference": [0.01, 0.01, -0.05],
        "low": [-0.01, 0.0, -0.06], "high": [0.02, 0.02, -0.04],
    })  # fmt: skip
    predictions = pd.DataFrame({
        "setting": [0, 1], "method": ["loss", "new"], "benchmark": ["all", "imdb"],
        "shift": [1.0, 2.0], "shift_low": [0.8, 1.5], "shift_high": [1.2, 2.5],
        "auroc": [0.76, 0.9], "low": [0.7, 0.8], "high": [0.8, 0.95],
        "strong_auroc": [0.904, 0.99], "outside": ["", "learning_rate"],
    })  # fmt: skip
    within = pd.DataFrame({
        "condition": ["x", "y", "x"], "benchmark": "imdb", "method": ["loss", "loss", "min_k"],
        "within": [0.2, 0.4, 0.5], "examples": 60, "upper_bound": False,
    })  # fmt: skip
    stage = LawStage(name="trial", reports=["runs/report/one", "runs/report/two"], confidence=0.9)
    fitted, held_out = pd.DataFrame(CELLS), pd.DataFrame(CELLS).assign(shift=[-0.1, 1.6])
    measurements = fitted.assign(held_out=False)
    return LawResults(
        stage, LAW, measurements, fitted, within, calibration, held_out, errors, predictions
    )


def test_coefficients_have_t_intervals_and_deviations_have_none():
    table = coefficient_rows(LAW, 0.9)
    margin = t_quantile()
    rows = [
        ("coefficient", "intercept", np.log(0.5), 0.0, np.log(0.5), np.log(0.5)),
        ("coefficient", "occurrences", 0.9, 0.1, 0.9 - 0.1 * margin, 0.9 + 0.1 * margin),
        ("coefficient", "learning_rate", 0.25, 0.2, 0.25 - 0.2 * margin, 0.25 + 0.2 * margin),
        ("effect", "method|loss", 0.1, 0.0, 0.1, 0.1),
        ("effect", "benchmark|imdb", -0.2, 0.0, -0.2, -0.2),
        ("deviation", "method", 0.2, np.nan, np.nan, np.nan),
        ("deviation", "benchmark", 0.5, np.nan, np.nan, np.nan),
    ]
    columns = ["kind", "name", "value", "error", "low", "high"]
    pd.testing.assert_frame_equal(table, pd.DataFrame(rows, columns=columns), rtol=1e-9)


def test_every_table_is_written_under_its_name(law_results):
    assert list(law_results.tables) == [
        "measurements", "coefficients", "within", "fitted", "calibration", "held_out", "errors",
        "predictions",
    ]  # fmt: skip
    for name, table in law_results.tables.items():
        if name != "coefficients":
            assert table is getattr(law_results, name)


def test_the_conclusions_state_the_law_its_errors_and_the_calibration(law_results):
    margin = t_quantile()
    copies = f"0.90 [{0.9 - 0.1 * margin:.2f}, {0.9 + 0.1 * margin:.2f}]"
    rate = f"0.25 [{0.25 - 0.2 * margin:.2f}, {0.25 + 0.2 * margin:.2f}]"
    content = law_document(law_results)
    assert content.title == "trial: the law of detectability"
    assert content.conclusions == [
        "**The shift δ of a member's score is 0.50 [0.50, 0.50] standard deviations at occurrences "
        f"2, learning_rate 0.002; its exponents are α (copies) {copies}, β (learning rate) {rate}**"
        " (90% intervals).",
        "Held-out cells (all of the fitted range, 2 cells, 6 AUROCs): mean absolute error 0.012 by "
        "the law (0.046 by nearest cell); the measured AUROCs' own errors alone give 0.010. 88% of "
        "the 90% intervals include the measured value.",
        "Calibration of loss by 1 reference(s) agrees with the removal of σ_between alone: AUROC "
        "0.660, predicted 0.650, raw 0.610; difference +0.010 [-0.010, +0.020].",
        "Calibration of min_k by 3 reference(s) differs from the removal of σ_between alone: AUROC "
        "0.650, predicted 0.700, raw 0.600; difference -0.050 [-0.060, -0.040].",
    ]
    assert content.warnings == []
    assert content.limits[1:] == [
        "parameters was 226000 in all cells: the law says nothing about other values.",
        "recency was unknown in all cells: the law says nothing about other values.",
        "An effect of the corpus's size apart from the tokens since the last copy is not in the "
        "law.",
    ]
    assert content.facts == {
        "reports": "one, two",
        "cells of the fit": "8 (a pair of swapped cells counts as one)",
        "shifts of the fit": "64",
        "T₀": "12,345 tokens",
        "errors of the shifts": "1.23 times the expected variance",
    }


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.02), (-0.02, 0.0)])
def test_an_interval_that_ends_at_0_agrees(law_results, low, high):
    one_row = law_results.calibration.head(1).assign(low=low, high=high)
    conclusion = law_document(replace(law_results, calibration=one_row)).conclusions[-1]
    assert "agrees with the removal" in conclusion


def test_the_tables_show_the_numbers_with_their_intervals(law_results):
    margin = t_quantile()
    tables = {table.name: table for table in law_document(law_results).tables}
    contents = {name: (list(table.header), table.lines) for name, table in tables.items()}
    assert contents == {
        "coefficients": (["kind", "name", "value"], [
            ["coefficient", "intercept", "-0.69 [-0.69, -0.69]"],
            ["coefficient", "occurrences",
             f"0.90 [{0.9 - 0.1 * margin:.2f}, {0.9 + 0.1 * margin:.2f}]"],
            ["coefficient", "learning_rate",
             f"0.25 [{0.25 - 0.2 * margin:.2f}, {0.25 + 0.2 * margin:.2f}]"],
            ["effect", "method|loss", "0.10 [0.10, 0.10]"],
            ["effect", "benchmark|imdb", "-0.20 [-0.20, -0.20]"],
            ["deviation", "method", "0.20"],
            ["deviation", "benchmark", "0.50"],
        ]),
        "within": (["method", "σ²_within", "σ²_between", "κ"], [
            ["loss", "0.30", "0.70", "0.20"],
            ["min_k", "0.50", "0.50", "–"],
        ]),
        "errors": (
            ["held out", "predictor", "AUROCs", "MAE", "by noise", "bias", "coverage", "decisions"],
            [
                ["all", "law", "6", "0.012", "0.010", "-0.002", "88%", "75% of 4"],
                ["all", "nearest cell", "6", "0.046", "0.010", "+0.030", "–", "–"],
            ],
        ),
        "calibration": (["method", "copies", "raw", "predicted", "calibrated", "difference"], [
            ["loss", "all", "0.610", "0.650", "0.660", "+0.010 [-0.010, +0.020]"],
            ["loss", "4", "0.700", "0.800", "0.810", "+0.010 [+0.000, +0.020]"],
            ["min_k", "all", "0.600", "0.700", "0.650", "-0.050 [-0.060, -0.040]"],
        ]),
        "predictions": (
            ["setting", "method", "benchmark", "δ", "AUROC", "strong attack", "outside the fit"],
            [
                ["0", "loss", "all", "1.00 [0.80, 1.20]", "0.76 [0.70, 0.80]", "0.90", "–"],
                ["1", "new", "imdb", "2.00 [1.50, 2.50]", "0.90 [0.80, 0.95]", "0.99",
                 "learning_rate"],
            ],
        ),
    }  # fmt: skip
    assert [table.title for table in tables.values()] == [
        "Coefficients, effects and deviations on log δ",
        "Variances, mean over conditions and benchmarks (non-members: 1)",
        "Errors on held-out cells, in AUROC",
        "AUROC after calibration by references",
        "Predicted cells",
    ]
    assert tables["within"].note.strip() == "κ: the members' variance is exp(κ δ)."
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table.data, law_results.tables[name])


def test_what_was_not_measured_is_left_out_or_said(law_results):
    empty = pd.DataFrame()
    least_results = replace(
        law_results, held_out=empty, errors=empty, predictions=empty,
        calibration=law_results.calibration.head(0),
        within=law_results.within.assign(upper_bound=[False, True, False]),
        law=replace(LAW, factors={}, names=["intercept"], values=[0.0], covariance=[[0.0]]),
    )  # fmt: skip
    content = law_document(least_results)
    assert content.conclusions == [
        "**The shift δ of a member's score is 1.00 [1.00, 1.00] standard deviations at all cells; "
        "its exponents are none** (90% intervals).",
        "Calibration was not tested: it needs swapped pairs of cells of two seeds in two "
        "conditions.",
    ]
    assert [table.name for table in content.tables] == ["coefficients", "within"]
    assert content.tables[1].note == (
        "κ: the members' variance is exp(κ δ). σ²_within is an upper bound: there is one seed only."
    )


@pytest.fixture
def chart(monkeypatch):
    """Draws the chart of some results, and returns its two panels."""

    def draw(law_results: LawResults, folder):
        saved: list[tuple[Figure, object, str]] = []
        monkeypatch.setattr(report, "save_figure", lambda *args: saved.append(args))
        report.save_law_chart(law_results, folder)
        ((figure, where, name),) = saved
        assert (where, name) == (folder, "law")
        return figure.axes

    return draw


def points(line) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def test_the_left_panel_has_predicted_against_measured_aurocs(law_results, chart, tmp_path):
    axes, _ = chart(law_results, tmp_path)
    fitted, held_out = axes.containers
    for container, label, colour in ((fitted, "fitted", "#555555"), (held_out, "held out", None)):
        line, _, (bars,) = container.lines
        assert container.get_label() == label
        assert points(line) == [(0.6, 0.61), (0.7, 0.69)]
        assert line.get_linestyle() == "None"
        assert colour is None or to_hex(line.get_color()) == colour
        assert to_hex(bars.get_colors()[0]) == to_hex(line.get_color())
        # The second interval lies below its value, so the bar ends there.
        ends = [[0.55, 0.65], [0.6, 0.69]]
        np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], ends)
    assert to_hex(held_out.lines[0].get_color()) != "#555555"
    assert points(axes.lines[-1]) == [(0.45, 0.45), (1.0, 1.0)]
    assert axes.get_xlabel() == "measured AUROC, mean over benchmarks"
    assert axes.get_ylabel() == "predicted, 90% interval"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fitted", "held out"]


def test_the_diagonal_begins_at_the_lowest_measured_auroc(law_results, chart, tmp_path):
    low = law_results.fitted.assign(auroc=[0.3, 0.7])
    axes, _ = chart(replace(law_results, fitted=low), tmp_path)
    assert points(axes.lines[-1]) == [(0.3, 0.3), (1.0, 1.0)]


def test_the_right_panel_has_positive_shifts_side_by_side_on_logarithmic_axes(
    law_results, chart, tmp_path
):
    held_out = law_results.held_out.assign(method=["min_k", "min_k"])
    _, axes = chart(replace(law_results, held_out=held_out), tmp_path)
    loss, min_k = axes.lines
    assert [line.get_label() for line in axes.lines] == ["loss", "min_k"]
    np.testing.assert_allclose(points(loss), [(1 * 0.97, 0.4), (4 * 0.97, 0.8)])
    np.testing.assert_allclose(points(min_k), [(4.0, 1.6)])  # −0.1 has no logarithm
    assert loss.get_marker() != min_k.get_marker()
    assert loss.get_color() != min_k.get_color()
    assert {line.get_linestyle() for line in axes.lines} == {"None"}
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.xaxis.get_transform().base == 2
    assert axes.get_xlabel() == "copies of a member"
    assert axes.get_ylabel() == "shift δ, standard deviations"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss", "min_k"]


def test_without_held_out_cells_the_chart_has_the_fitted_ones(law_results, chart, tmp_path):
    aurocs, shifts = chart(replace(law_results, held_out=pd.DataFrame()), tmp_path)
    assert [container.get_label() for container in aurocs.containers] == ["fitted"]
    assert len(shifts.lines) == 1
