import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import t

from contamination.analysis.law import stored_law
from contamination.analysis.law.fit import fit_law, unidentified_growth
from contamination.analysis.law.predict import NEW, predict
from contamination.analysis.law.report import coefficient_rows
from contamination.analysis.law.stored_law import parse_law
from contamination.core.errors import ConfigError
from perf.law_simulation import CENTRES, SimulatedLaw, simulate_rows

SMALL = {"methods": ("loss", "min_k"), "benchmarks": ("boolq", "imdb")}


@pytest.fixture(scope="module")
def rows():
    return simulate_rows(SimulatedLaw(), np.random.default_rng(3), **SMALL)


@pytest.fixture(scope="module")
def law(rows):
    return fit_law(rows, {"loss": 0.3, "min_k": 0.4}, 1e4)


def test_the_exponents_of_a_simulated_law_are_inside_their_intervals(law):
    for name, (value, error) in law.coefficients().items():
        if name != "intercept":
            truth = SimulatedLaw().exponents[name]
            assert abs(value - truth) < t.ppf(0.995, law.freedom) * error
    assert "parameters" not in law.factors
    assert law.constant == {"parameters": 226_000}


def test_the_law_says_what_it_was_fitted_to(law, rows):
    assert list(law.factors) == ["occurrences", "learning_rate", "recency"]
    for name, (low, high, centre) in law.factors.items():
        assert (low, high) == (rows[name].min(), rows[name].max())
        assert centre == pytest.approx(np.exp(np.log(rows[name]).mean()))
    assert law.names == [
        *("intercept", "occurrences", "learning_rate", "recency"),
        *("method|loss", "method|min_k", "method: copies|loss", "method: copies|min_k"),
        *("benchmark|boolq", "benchmark|imdb"),
        *("benchmark × method|boolq|loss", "benchmark × method|boolq|min_k"),
        *("benchmark × method|imdb|loss", "benchmark × method|imdb|min_k"),
    ]
    groups = {"method", "method: copies", "benchmark", "benchmark × method", "cell"}
    assert law.variances.keys() == {*groups, "cell × benchmark"}
    assert (law.methods, law.benchmarks) == (["loss", "min_k"], ["boolq", "imdb"])
    assert (law.cells, law.rows, law.freedom) == (6, len(rows), 4)
    assert (law.within, law.recency_tokens) == ({"loss": 0.3, "min_k": 0.4}, 1e4)


def test_a_factor_that_is_known_in_some_cells_only_is_refused(rows):
    partly_known = rows.assign(parameters=rows["parameters"].astype(float).mask(rows.index < 5))
    with pytest.raises(ConfigError, match=r"^reports: parameters is unknown in some cells and"):
        fit_law(partly_known, {}, 1e4)


def test_one_method_or_benchmark_has_no_effects_beside_others(rows):
    one_method = rows[rows["method"] == "loss"]
    law = fit_law(one_method, {}, 1e4)
    assert law.variances.keys() == {"method", "benchmark", "cell", "cell × benchmark"}
    one_benchmark = one_method[one_method["benchmark"] == "imdb"]
    law = fit_law(one_benchmark, {}, 1e4, ["occurrences", "learning_rate"])
    assert law.variances.keys() == {"method", "benchmark", "cell"}
    assert law.constant == {"parameters": 226_000, "recency": None}


def test_what_no_cell_records_is_unknown_and_its_members_variance_does_not_grow(rows):
    unknown = rows["member_variance"].mask(rows["method"] == "loss")
    law = fit_law(rows.assign(member_variance=unknown, parameters=np.nan), {}, 1e4)
    assert law.growth["loss"] == 0.0
    assert law.growth["min_k"] == pytest.approx(0.2, abs=0.06)
    assert law.constant == {"parameters": None}


def test_the_growth_of_the_members_variance_is_recovered(law):
    assert law.growth == pytest.approx({"loss": 0.2, "min_k": 0.2}, abs=0.06)


def test_a_measured_shift_may_be_negative():
    """Log δ̂ would lose them: at low doses half of the shifts are near 0."""
    truth = replace(SimulatedLaw(), shift=0.05)
    found = []
    for seed in range(4):
        rows = simulate_rows(truth, np.random.default_rng(seed), **SMALL)
        assert (rows["shift"] < 0).any()
        found.append(fit_law(rows, {}, 1e4).coefficients()["occurrences"][0])
    assert np.mean(found) == pytest.approx(0.9, abs=0.08)


def test_predictions_of_the_cells_of_the_fit_are_near_their_true_shifts(law, rows):
    at = {"occurrences": 8, "learning_rate": 2e-3, "recency": CENTRES["recency"]}
    for method in law.methods:
        same = (rows["occurrences"] == 8) & (rows["learning_rate"] == 2e-3)
        truth = rows[same & (rows["method"] == method)]["true_shift"].mean()
        found = predict(law, at, method)
        low, high = np.quantile(found.shifts.mean(axis=1), [0.01, 0.99])
        assert low < truth < high
        assert found.outside == ()


def test_a_new_method_and_values_outside_are_less_certain(law):
    at = {"occurrences": 2, "learning_rate": 2e-3, "recency": 10.0}
    widths = [
        np.diff(predict(law, settings, method).interval(0.9))[0]
        for settings, method in [(at, "loss"), (at, NEW), ({**at, "learning_rate": 0.1}, "loss")]
    ]
    assert widths[1] > widths[0]
    assert widths[2] > widths[0]
    assert predict(law, {**at, "learning_rate": 0.1}, "loss").outside == ("learning_rate",)


def test_the_stored_law_is_the_law(law):
    assert parse_law(asdict(law)) == law


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("values", [1.0], "sizes"),
        ("covariance", [[1.0]], "sizes"),
        ("freedom", 0, "freedom"),
        ("factors", {"colour": [1.0, 2.0, 1.5]}, "factor"),
        ("within", {"loss": 1.5}, "within is out of range"),
        ("within", {"loss": -0.1}, "within is out of range"),
        ("recency_tokens", 0.0, "recency_tokens"),
        ("recency_tokens", float("inf"), "recency_tokens"),
        ("factors", {"occurrences": [0.0, 8.0, 2.0]}, "out of range"),
        ("factors", {"occurrences": [1.0, 8.0]}, "three numbers"),
        ("variances", {"cell": -1e-9}, "variances"),
        ("variances", {"cell": float("inf")}, "variances"),
        ("errors", float("inf"), "not finite"),
        ("growth", {"loss": float("inf"), "min_k": 0.1}, "finite"),
        ("growth", {"loss": 0.1}, "growth"),
        ("names", "a string", "names"),
        ("extra", 1, "extra"),
    ],
)
def test_a_damaged_law_is_refused(law, field, value, word):
    with pytest.raises(ValueError, match=word):
        parse_law({**asdict(law), field: value})


def test_a_damaged_matrix_or_order_is_refused(law):
    number = len(law.names)
    short_row = [row[: number - (i == 1)] for i, row in enumerate(law.covariance)]
    negative, infinite = (np.array(law.covariance) for _ in range(2))
    negative[1, 1], infinite[0, 1] = -1e-9, np.inf
    for changed, word in [
        ({"covariance": short_row}, "sizes"),
        ({"covariance": negative.tolist()}, "a variance is negative"),
        ({"covariance": infinite.tolist()}, "not finite"),
        ({"names": law.names[1:] + law.names[:1]}, "begin with the factors"),
        ({"names": [name.replace("benchmark|", "b|") for name in law.names]}, "has no benchmark"),
        ({"names": [], "values": [], "covariance": [], "factors": {}}, "sizes"),
        ({"factors": {**law.factors, "recency": [0.0, 1.0, 0.5]}}, "out of range"),
        ({"factors": {**law.factors, "recency": [1.0, 2.0, float("inf")]}}, "out of range"),
    ]:
        with pytest.raises(ValueError, match=word):
            parse_law({**asdict(law), **changed})


def test_values_at_the_ends_of_their_ranges_are_read(law, monkeypatch):
    ends = replace(
        law, freedom=1, within={"loss": 0.0, "min_k": 1.0},
        variances={**law.variances, "cell": 0.0},
        covariance=np.zeros_like(law.covariance).tolist(),
    )  # fmt: skip
    assert parse_law(asdict(ends)) == ends
    monkeypatch.setattr(stored_law, "MOST_PARAMETERS", len(law.names))
    assert parse_law(asdict(law)) == law
    monkeypatch.setattr(stored_law, "MOST_PARAMETERS", len(law.names) - 1)
    with pytest.raises(ValueError, match="sizes"):
        parse_law(asdict(law))


def test_what_the_fit_says_nothing_about_is_refused(law):
    at = {"occurrences": 2, "learning_rate": 2e-3, "recency": 10.0}
    for settings, method, word in [
        ({**at, "parameters": 1e6}, "loss", "parameters is 1e\\+06"),
        ({"occurrences": 2, "recency": 1.0}, "loss", "learning_rate is None"),
        ({**at, "colour": 1.0}, "loss", "colour"),
        (at, "los", r"^method is 'los': it is not in the fit \(new: any\)\. Did you mean loss"),
        ({**at, "occurrences": 0}, "loss", "occurrences is 0"),
    ]:
        with pytest.raises(ConfigError, match=word):
            predict(law, settings, method)


def test_too_few_cells_and_factors_that_vary_together_are_refused(rows):
    words = (
        r"^reports: they have 2 cells to fit \(a pair of swapped cells counts as one\), and a law "
        r"of occurrences, recency needs at least 4\. Give more reports, or hold out fewer cells\.$"
    )
    with pytest.raises(ConfigError, match=words):
        fit_law(rows[rows["learning_rate"] == 1e-3], {}, 1e4)
    constant = rows[rows["learning_rate"] == 1e-3].assign(occurrences=1)
    with pytest.raises(ConfigError, match="a law of no factor needs at least 4"):
        fit_law(constant, {}, 1e4, ["occurrences"])
    together = rows.assign(parameters=rows["learning_rate"] ** 2)
    with pytest.raises(ConfigError, match="vary only together"):
        fit_law(together, {}, 1e4)


def test_every_effect_has_its_own_error(law):
    """The covariance is of the parameters in the order of their names."""
    table = coefficient_rows(law, 0.9).set_index("name")
    assert list(table.index[: len(law.names)]) == law.names
    slopes = table.loc["method: copies|loss", "error"], table.loc["method|loss", "error"]
    assert slopes[0] < slopes[1]
    both = [n for n in law.names if n.startswith("benchmark × method|")]
    assert np.ptp(table.loc[both, "error"]) < 1e-2


@pytest.mark.parametrize(("column", "value"), [("shift_error", 0.0), ("shift", np.nan)])
def test_a_shift_without_an_error_is_named(rows, column, value):
    """An AUROC of 1 has a standard error of 0 in a report's tables."""
    broken = rows.assign(**{column: rows[column].where(rows.index != 7, value)})
    row = broken.loc[7]
    shift, error = (value if column == name else row[name] for name in ("shift", "shift_error"))
    words = re.escape(
        f"reports: 1 of {len(rows)} shifts can't be fitted. That of {row['method']} on "
        f"{row['benchmark']} at {row['occurrences']} copies in {row['cell']} is {shift:.3g} with "
        f"the standard error {error:.3g}: all members are above all non-members, or all scores are "
        f"equal. Hold them out (held_out=[{{occurrences: {row['occurrences']}}}]), or give swapped "
        "cells."
    )
    with pytest.raises(ConfigError, match=words):
        fit_law(broken, {}, 1e4)


@pytest.mark.parametrize("column", ["cell", "method", "benchmark"])
@pytest.mark.parametrize("mean", [0.0, -0.1])
def test_a_level_whose_mean_shift_is_not_above_0_is_named_with_its_remedy(rows, column, mean):
    """Its log δ would be −∞: the fit does not settle, or its intercept is off by several units."""
    name = rows[column].iloc[0]
    shifts = rows["shift"].mask(rows[column] == name, mean)
    words = re.escape(
        f"reports: the mean shift is not above 0 for {column} {name} ({mean:.3g}), and the law "
        f"describes log δ. Hold them out (held_out=[{{{column}: ['{name}']}}]): they are then "
        "predicted and not fitted, and what the law says holds only where copies shift the scores "
        "up."
    )
    with pytest.raises(ConfigError, match=words):
        fit_law(rows.assign(shift=shifts), {}, 1e4)


def test_a_growth_at_its_bound_is_not_identified(law, rows):
    assert unidentified_growth(law.growth) == []
    variances = rows["member_variance"].where(rows["method"] != "loss", 1e4)
    found = fit_law(rows.assign(member_variance=variances), {}, 1e4)
    assert found.growth["loss"] == pytest.approx(1.5, abs=1e-3)
    assert unidentified_growth(found.growth) == ["loss"]
    assert unidentified_growth({"loss": -1.4999, "min_k": 1.2}) == ["loss"]
    assert unidentified_growth({"loss": 1.498, "min_k": 1.4999}) == ["min_k"]
