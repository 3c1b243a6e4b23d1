"""Predictions of a law whose parameters are written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from contamination.analysis.law.config import LawStage
from contamination.analysis.law.fit import Law
from contamination.analysis.law.predict import NEW, Prediction, predict
from contamination.analysis.law.run import predict_settings
from contamination.core.errors import ConfigError

NAMES = [
    "intercept", "occurrences", "learning_rate", "method|loss", "method|zlib",
    "method: copies|loss", "method: copies|zlib", "benchmark|boolq", "benchmark|imdb",
    "benchmark × method|boolq|loss", "benchmark × method|imdb|loss",
]  # fmt: skip
LAW = Law(
    factors={"occurrences": [1.0, 8.0, 2.0], "learning_rate": [1e-3, 4e-3, 2e-3]},
    constant={"parameters": 226_000.0, "recency": None},
    names=NAMES,
    values=[np.log(0.5), 0.9, 0.4, 0.1, -0.2, 0.05, -0.05, 0.3, -0.3, 0.02, -0.02],
    covariance=np.zeros((len(NAMES), len(NAMES))).tolist(),
    variances={
        "method": 0.01, "method: copies": 0.04, "benchmark": 0.09, "benchmark × method": 0.0225,
        "cell": 0.0, "cell × benchmark": 0.0,
    },
    errors=1.0,
    freedom=1_000_000,
    growth={"loss": 0.3, "zlib": 0.1},
    within={"loss": 0.25},
    recency_tokens=10_000.0,
    cells=8,
    rows=64,
)  # fmt: skip
SETTING = {"occurrences": 8.0, "learning_rate": 4e-3}
ETA = np.log(0.5) + 0.9 * np.log(4) + 0.4 * np.log(2)
"""η of `SETTING` without effects."""


def deviation(law: Law, method: str, benchmarks: list[str], **keywords) -> np.ndarray:
    """The standard deviation of log δ over draws, by benchmark."""
    return np.log(predict(law, SETTING, method, benchmarks, **keywords).shifts).std(axis=0)


def test_the_point_prediction_is_that_of_the_formula():
    prediction = predict(LAW, SETTING, "loss")
    eta = ETA + 0.1 + 0.05 * np.log(4) + np.array([0.3 + 0.02, -0.3 - 0.02])
    shifts = np.exp(eta)
    variance = np.exp(0.3 * shifts)
    assert prediction.shift == pytest.approx(shifts.mean())
    assert prediction.auroc == pytest.approx(norm.cdf(shifts / np.sqrt(1 + variance)).mean())
    margin = (shifts - norm.ppf(0.99)) / np.sqrt(variance)
    assert prediction.tpr == pytest.approx(norm.cdf(margin).mean())
    assert prediction.outside == ()
    np.testing.assert_allclose(prediction.shifts, np.tile(shifts, (4000, 1)))
    np.testing.assert_allclose(prediction.aurocs, prediction.auroc)
    np.testing.assert_allclose(prediction.strong, norm.cdf(shifts / np.sqrt(0.5)).mean())


def test_one_benchmark_is_predicted_alone_and_a_method_without_variance_has_no_strong_attack():
    prediction = predict(LAW, SETTING, "zlib", ["imdb"], draws=7)
    shift = np.exp(ETA - 0.2 - 0.05 * np.log(4) - 0.3)
    assert prediction.shift == pytest.approx(shift)
    assert prediction.auroc == pytest.approx(norm.cdf(shift / np.sqrt(1 + np.exp(0.1 * shift))))
    assert prediction.shifts.shape == (7, 1)
    assert np.isnan(prediction.strong).all()


def test_a_new_method_has_the_mean_growth_and_no_effects():
    prediction = predict(LAW, SETTING, NEW, ["imdb"])
    shift = np.exp(ETA - 0.3)
    assert prediction.shift == pytest.approx(shift)
    assert prediction.auroc == pytest.approx(norm.cdf(shift / np.sqrt(1 + np.exp(0.2 * shift))))


def test_draws_vary_by_what_the_fit_has_not_seen():
    slope = 0.04 * np.log(4) ** 2
    for method, benchmarks, variances in [
        ("loss", ["boolq", "imdb"], [0, 0]),
        ("loss", ["boolq", NEW], [0, 0.09 + 0.0225]),
        (NEW, ["boolq", NEW], [0.01 + slope + 0.0225, 0.01 + slope + 0.09 + 0.0225]),
    ]:
        of_draws = deviation(LAW, method, benchmarks)
        np.testing.assert_allclose(of_draws, np.sqrt(variances), rtol=0.05, atol=1e-9)


def test_a_new_cell_and_a_new_method_are_drawn_once_for_all_benchmarks():
    cell = replace(LAW, variances={**LAW.variances, "cell": 0.04})
    cell_and_benchmark = replace(cell, variances={**cell.variances, "cell × benchmark": 0.12})
    for law, method, expected, correlation in [
        (cell, "loss", 0.2, 1.0),
        (cell_and_benchmark, "loss", 0.4, 0.25),
        (replace(LAW, variances={"method": 0.04}), NEW, 0.2, 1.0),
        (replace(LAW, variances={"benchmark × method": 0.04}), NEW, 0.2, 0.0),
    ]:
        shifts = np.log(predict(law, SETTING, method).shifts)
        np.testing.assert_allclose(shifts.std(axis=0), expected, rtol=0.05)
        assert np.corrcoef(shifts.T)[0, 1] == pytest.approx(correlation, abs=0.05)


def test_the_errors_of_the_parameters_are_drawn_from_their_covariance():
    covariance = np.zeros((len(NAMES), len(NAMES)))
    covariance[:2, :2] = [[0.04, -0.01], [-0.01, 0.01]]
    of_draws = deviation(replace(LAW, covariance=covariance.tolist()), "loss", ["imdb"])
    copies = np.log(4)
    variance = 0.04 - 2 * 0.01 * copies + 0.01 * copies**2
    np.testing.assert_allclose(of_draws, np.sqrt(variance), rtol=0.05)


def test_few_degrees_of_freedom_make_draws_wider():
    """A t of 5 degrees has the variance 5/3."""
    cell = {"variances": {"cell": 0.04}}
    of_draws = deviation(replace(LAW, **cell, freedom=5), "loss", ["imdb"], draws=40_000)
    np.testing.assert_allclose(of_draws, 0.2 * np.sqrt(5 / 3), rtol=0.05)


def test_the_seed_gives_the_draws_and_0_is_meant_without_one():
    law = replace(LAW, variances={"cell": 0.04})
    default, seed_0, seed_1 = (
        predict(law, SETTING, "loss", **words).aurocs for words in ({}, {"seed": 0}, {"seed": 1})
    )
    np.testing.assert_allclose(default, seed_0)
    assert not np.allclose(default, seed_1)


def test_intervals_are_quantiles_of_the_draws_and_of_a_measurements_noise():
    aurocs = np.linspace(0.5, 0.9, 401)
    prediction = Prediction(aurocs[:, None], aurocs, aurocs, 1.0, 0.7, 0.1, ())
    assert prediction.interval(0.9) == pytest.approx((0.52, 0.88))
    assert prediction.interval(0.5) == pytest.approx((0.6, 0.8))
    assert prediction.measured_interval(0.0, 0.9, 0) == prediction.interval(0.9)
    low, high = prediction.measured_interval(0.1, 0.9, 0)
    assert low < 0.5
    assert 0.9 < high <= 1
    assert prediction.measured_interval(0.1, 0.9, 1) != (low, high)
    assert prediction.measured_interval(5.0, 0.9, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("changed", "outside"),
    [
        ({"occurrences": 1.0, "learning_rate": 1e-3}, ()),
        ({"occurrences": 8.1}, ("occurrences",)),
        ({"occurrences": 0.99, "learning_rate": 5e-3}, ("occurrences", "learning_rate")),
        ({"parameters": 226_000.0}, ()),
    ],
)
def test_values_outside_the_fits_range_are_named(changed, outside):
    assert predict(LAW, {**SETTING, **changed}, "loss").outside == outside


@pytest.mark.parametrize(
    ("changed", "method", "benchmark", "words"),
    [
        ({"occurrences": float("inf")}, "loss", "imdb",
         r"^occurrences is inf: give a number above 0, as the law reads it\.$"),
        ({"recency": 2.0}, "loss", "imdb",
         r"^recency is 2: it is not in the law, as it was left out of factors or is not known in "),
        ({"parameters": 226_001.0}, "loss", "imdb",
         r"^parameters is 226001: it was 226000 in all cells of the fit, which says nothing "),
        ({"colour": 1.0}, "loss", "imdb", "^colour: unknown factor"),
        ({}, "loss", "imdbs", r"^benchmark is 'imdbs': it is not in the fit \(new: any\)\. Did"),
    ],
)  # fmt: skip
def test_what_can_not_be_predicted_is_refused(changed, method, benchmark, words):
    with pytest.raises(ConfigError, match=words):
        predict(LAW, {**SETTING, **changed}, method, [benchmark])


def test_settings_get_a_row_per_method():
    law = replace(
        LAW, factors={**LAW.factors, "recency": [1.0, 9.0, 3.0]}, variances={"cell": 0.04}
    )
    query = {"occurrences": 9, "learning_rate": 2e-3, "tokens_since": 40_000}
    of_one_benchmark = {**query, "method": NEW, "benchmark": "imdb"}
    stage = LawStage(reports=["x"], predict=[query, of_one_benchmark], confidence=0.8, seed=3)
    settings = {"occurrences": 9.0, "learning_rate": 2e-3, "recency": 5.0}
    expected = []
    for number, method, benchmark in [(0, "loss", "all"), (0, "zlib", "all"), (1, NEW, "imdb")]:
        benchmarks = None if benchmark == "all" else [benchmark]
        prediction = predict(law, settings, method, benchmarks, seed=3)
        low, high = prediction.interval(0.8)
        shift_low, shift_high = np.quantile(prediction.shifts.mean(axis=1), [0.1, 0.9])
        expected.append({
            "setting": number, **settings, "method": method, "benchmark": benchmark,
            "shift": prediction.shift, "shift_low": shift_low, "shift_high": shift_high,
            "auroc": prediction.auroc, "low": low, "high": high, "tpr_at_fpr_0.01": prediction.tpr,
            "strong_auroc": np.median(prediction.strong),
            "outside": "occurrences, method" if method == NEW else "occurrences",
        })  # fmt: skip
    table = predict_settings(law, stage)
    assert list(table.columns) == list(expected[0])
    for row, expected_row in zip(table.to_dict("records"), expected, strict=True):
        assert row == pytest.approx(expected_row, nan_ok=True)
