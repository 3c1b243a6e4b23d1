"""Curves of forgetting: their equations, fits, half-lives, and what weight decay leaves."""

import math

import numpy as np
import pytest

from contamination.core.statistics.forgetting_curve import (
    EXPONENTIAL,
    FORMS,
    POWER,
    ForgettingCurve,
    fit_forgetting,
    half_life,
    share_left_by_weight_decay,
)

TOKENS = np.array([15_000, 31_000, 56_000, 97_000, 180_000, 280_000, 430_000.0])


def naive(form, anchor, level, rate, tokens):
    values = []
    for t in tokens:
        if form == EXPONENTIAL:
            values.append(level * math.exp(-rate * (t - anchor)))
        else:
            values.append(level * (t / anchor) ** (-rate))
    return np.array(values)


@pytest.mark.parametrize(("form", "rate"), [(EXPONENTIAL, 2e-6), (POWER, 0.3), (POWER, -0.1)])
def test_a_curve_is_its_equation(form, rate):
    curve = ForgettingCurve(form, 15_000, 3.0, rate)
    expected = naive(form, 15_000, 3.0, rate, TOKENS)
    np.testing.assert_allclose(curve.value(TOKENS), expected, rtol=1e-12)
    np.testing.assert_allclose(curve.factor(TOKENS), expected / 3.0, rtol=1e-12)


@pytest.mark.parametrize(("form", "rate"), [(EXPONENTIAL, 2e-6), (EXPONENTIAL, 4e-5), (POWER, 0.3)])
def test_the_half_life_halves(form, rate):
    curve = ForgettingCurve(form, 15_000, 3.0, rate)
    assert float(curve.value(curve.anchor + curve.half_life)) == pytest.approx(1.5)


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_fall_has_no_half_life(form):
    assert half_life(form, 0.0, 1e4) == half_life(form, -1e-6, 1e4) == math.inf


@pytest.mark.parametrize("level", [3.0, -0.5])
@pytest.mark.parametrize(
    ("form", "rate"),
    [(EXPONENTIAL, 2e-6), (EXPONENTIAL, 3e-5), (EXPONENTIAL, -1e-6), (EXPONENTIAL, 0.0),
     (POWER, 0.3), (POWER, 1.5), (POWER, -0.2)],
)  # fmt: skip
def test_a_fit_finds_the_curve(form, rate, level):
    found = fit_forgetting(form, TOKENS, naive(form, TOKENS.min(), level, rate, TOKENS))
    assert (found.anchor, found.points) == (15_000, 7)
    assert found.level == pytest.approx(level, rel=1e-6)
    assert found.rate == pytest.approx(rate, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_fit_has_the_least_squares_of_a_dense_search(form):
    values = 2.0 - np.log(TOKENS / 9_000) / 3 + np.array([0.1, -0.2, 0.05, 0.1, -0.1, 0.2, -0.1])
    found = fit_forgetting(form, TOKENS, values)
    clock = TOKENS - 15_000 if form == EXPONENTIAL else np.log(TOKENS / 15_000)
    squares = []
    for rate in np.linspace(-5, 5, 4001) / clock.max():
        shape = np.exp(-rate * clock)
        level = (shape * values).sum() / (shape**2).sum()
        squares.append(((values - level * shape) ** 2).sum())
    residuals = values - naive(form, 15_000, found.level, found.rate, TOKENS)
    assert found.squares == pytest.approx((residuals**2).sum())
    assert found.squares <= min(squares) + 1e-12
    assert found.aic == pytest.approx(7 * math.log(found.squares / 7) + 6)


def test_the_form_that_made_the_values_has_the_lower_aic():
    rng = np.random.default_rng(0)
    for form, rate in ((EXPONENTIAL, 3e-6), (POWER, 0.5)):
        chosen = []
        for _ in range(50):
            values = naive(form, 15_000, 3.0, rate, TOKENS) + 0.1 * rng.normal(size=7)
            chosen.append(min(FORMS, key=lambda f, v=values: fit_forgetting(f, TOKENS, v).aic))
        assert chosen.count(form) > 45


@pytest.mark.parametrize(
    ("tokens", "values", "said"),
    [([1, 1, 2], [1, 1, 1], "2 different numbers"), ([0, 1, 2], [1, 1, 1], "above 0"),
     ([1, 2, 3], [1, np.nan, 1], "finite")],
)  # fmt: skip
def test_values_that_no_curve_fits_are_refused(tokens, values, said):
    with pytest.raises(ValueError, match=said):
        fit_forgetting(POWER, tokens, values)
    with pytest.raises(ValueError, match="choose from exponential, power"):
        fit_forgetting("sigmoid", [1, 2, 3], [1, 1, 1])


def test_weight_decay_leaves_the_product_of_bordt_et_al():
    rates, decays = [4e-3, 4e-3, 1e-3], [0.0, 2.0, 8.0]
    expected = 1.0
    for rate, decay in zip(rates, decays, strict=True):
        expected *= 1 - rate * decay
    assert share_left_by_weight_decay(rates, decays) == pytest.approx(expected)
    assert share_left_by_weight_decay([], []) == 1


@pytest.mark.parametrize("form", FORMS)
def test_points_that_jump_give_no_half_life_and_nothing_does_not_grow(form):
    """Of noise about a quarter of the fits have the largest rate that is tried."""
    jump = fit_forgetting(form, TOKENS, np.where(np.arange(len(TOKENS)) == 0, 1.0, 0.0))
    assert jump.at_limit
    smooth = ForgettingCurve(form, float(TOKENS.min()), 1.0, 1e-6 if form == "exponential" else 0.3)
    assert not fit_forgetting(form, TOKENS, smooth.value(TOKENS)).at_limit
    nothing = fit_forgetting(form, TOKENS, np.zeros(len(TOKENS)))
    assert (nothing.rate, nothing.level, nothing.at_limit) == (0, 0, False)
