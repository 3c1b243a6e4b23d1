"""Half-lives and effects over seeds: naive values, and how often chance alone is found clear."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from contamination.audits.forgetting.curves import fits_table, half_life_table, mean_and_interval
from contamination.audits.forgetting.effects import (
    FACTORS,
    effects_table,
    factor_table,
    largest_correlation,
    regress_within_seeds,
)
from contamination.core.statistics.forgetting_curve import FORMS, fit_forgetting, half_life
from tests.audits.forgetting.simulated import LAST_STEP, SEEN_BY, STEP_TOKENS, forgetting_cell

TOKENS = np.array([15_000, 31_000, 56_000, 97_000, 180_000, 280_000, 430_000.0])


def points(rng, half_life=400_000, seeds=3, between=0.15, noise=0.05, level=2.0):
    """The excess d′ of some seeds, whose rates differ by `between` of the mean rate."""
    rows = []
    for seed in range(seeds):
        rate = np.log(2) / half_life * (1 + between * rng.normal())
        values = level * np.exp(-rate * (TOKENS - TOKENS[0])) + noise * rng.normal(size=len(TOKENS))
        rows += [
            {"condition": "a", "method": "loss", "occurrences": "any", "seed": seed, "step": step,
             "tokens_since": tokens, "excess": value}
            for step, (tokens, value) in enumerate(zip(TOKENS, values, strict=True))
        ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_half_life_has_the_students_interval_of_its_rates():
    table = points(np.random.default_rng(1))
    fits = fits_table(table)
    found = half_life_table(fits).set_index("form").loc["exponential"]
    rates = fits[fits["form"] == "exponential"]["rate"].to_numpy()
    mean, half = rates.mean(), 4.302653 * rates.std(ddof=1) / np.sqrt(3)
    assert found["rate_low"] == pytest.approx(mean - half, rel=1e-6)
    assert found["half_life"] == pytest.approx(np.log(2) / mean)
    assert found["half_life_low"] == pytest.approx(np.log(2) / (mean + half), rel=1e-6)
    assert found["chosen"]
    held_out = fits[fits["form"] == "exponential"]["held_out_error"]
    assert found["held_out_error"] == pytest.approx(held_out.mean())


def test_a_curve_of_each_form_is_fitted_to_each_seed_and_predicts_its_last_point():
    table = points(np.random.default_rng(1), seeds=2)
    observed = table[table["step"] > 0].sample(frac=1, random_state=0)
    unexposed = table[table["step"] == 0].assign(tokens_since=0.0)
    fits = fits_table(pd.concat([unexposed, observed])).sort_values(["seed", "form"])
    expected = []
    for seed in (0, 1):
        values = table[(table["seed"] == seed) & (table["step"] > 0)]["excess"].to_numpy()
        for form in FORMS:
            curve = fit_forgetting(form, TOKENS[1:], values)
            without_last = fit_forgetting(form, TOKENS[1:-1], values[:-1])
            expected.append({
                "condition": "a", "method": "loss", "occurrences": "any", "seed": seed,
                "form": form, "anchor": TOKENS[1], "level": curve.level, "rate": curve.rate,
                "half_life": curve.half_life, "aic": curve.aic,
                "held_out_error": abs(without_last.value(TOKENS[-1]) - values[-1]),
                "at_limit": curve.at_limit,
            })  # fmt: skip
    assert [*fits.columns] == [*expected[0]]
    assert fits.to_dict("records") == [pytest.approx(row) for row in expected]
    assert fits_table(table[table["step"] < 3]).empty
    assert len(fits_table(table[table["step"] < 4])) == 4
    assert [*fits_table(table[:0]).columns] == [*expected[0]]
    for row in half_life_table(fits).to_dict("records"):
        of_form = fits[fits["form"] == row["form"]]
        rate, low, high = mean_and_interval(of_form["rate"].to_numpy())
        assert row == pytest.approx({
            "condition": "a", "method": "loss", "occurrences": "any", "form": row["form"],
            "seeds": 2, "anchor": TOKENS[1], "level": of_form["level"].mean(), "rate": rate,
            "rate_low": low, "rate_high": high,
            "half_life": half_life(row["form"], rate, TOKENS[1]),
            "half_life_low": half_life(row["form"], high, TOKENS[1]),
            "half_life_high": half_life(row["form"], low, TOKENS[1]),
            "aic": of_form["aic"].sum(), "held_out_error": of_form["held_out_error"].mean(),
            "chosen": of_form["aic"].sum() == min(fits.groupby("form")["aic"].sum()),
        })  # fmt: skip


def test_the_interval_of_a_half_life_contains_the_truth_as_often_as_it_says():
    rng, covered = np.random.default_rng(2), 0
    for _ in range(100):
        table = half_life_table(fits_table(points(rng)))
        found = table.set_index("form").loc["exponential"]
        covered += found["half_life_low"] <= 400_000 <= found["half_life_high"]
    assert covered >= 89


def test_where_nothing_is_forgotten_the_interval_has_no_upper_end():
    rng, unending = np.random.default_rng(3), 0
    for _ in range(60):
        table = half_life_table(fits_table(points(rng, half_life=np.inf)))
        unending += np.isinf(table.set_index("form").loc["exponential", "half_life_high"])
    assert unending >= 54  # the upper end is missing unless the rate is clearly above 0: 97.5%


def test_one_seed_has_no_interval():
    mean, *ends = mean_and_interval(np.array([3.0]))
    assert mean == 3
    assert np.isnan(ends).all()


def design(rng, seeds=3):
    """The crossed factors of the experiment, for each of some seeds."""
    rows = [
        {"condition": f"{rate}-{decay}-{size}", "seed": seed, "learning_rate": rate,
         "decay_per_million": decay * 2.0**rate * 1e3, "corpus_tokens": size}
        for seed in range(seeds) for rate in (-8.0, -10.0) for decay in (0, 4) for size in (18, 20)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_regression_is_that_of_deviations_from_the_seeds_means():
    rng = np.random.default_rng(4)
    table = design(rng)
    factors = table[["learning_rate", "decay_per_million", "corpus_tokens"]].to_numpy()
    rates, seeds = rng.normal(size=len(table)), table["seed"].to_numpy()
    found = regress_within_seeds(rates, factors, seeds)
    x, y = factors.copy(), rates.copy()
    for seed in range(3):
        x[seeds == seed] -= factors[seeds == seed].mean(axis=0)
        y[seeds == seed] -= rates[seeds == seed].mean()
    slopes = np.linalg.solve(x.T @ x, x.T @ y)
    variance = ((y - x @ slopes) ** 2).sum() / (24 - 3 - 3)
    np.testing.assert_allclose(found.slopes, slopes)
    np.testing.assert_allclose(found.errors, np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x))))
    assert found.freedom == 18
    tiny = regress_within_seeds(rates, factors * 2.0**-30, seeds)  # in another unit
    np.testing.assert_allclose(tiny.slopes * 2.0**-30, found.slopes, rtol=1e-3)


def test_a_regression_needs_one_more_cell_than_it_has_coefficients():
    rates, factor, seeds = np.array([1.0, 2, 4]), np.array([[0.0], [1], [2]]), np.zeros(3, int)
    regression = regress_within_seeds(rates, factor, seeds)
    assert (regression.freedom, regression.slopes.tolist()) == (1, pytest.approx([1.5]))
    assert regress_within_seeds(rates[:2], factor[:2], seeds[:2]) is None


def test_the_factors_of_a_cell_are_of_the_steps_after_the_last_exposure():
    cell = forgetting_cell(0, decay=3.0)
    metrics = cell.model.metrics
    metrics = metrics.assign(learning_rate=1e-3 * metrics["step"], tokens=metrics["tokens"] + 500)
    cell = replace(cell, model=replace(cell.model, metrics=metrics))
    cell.__dict__["tokens_before"] = 96_000.0
    (row,) = factor_table([cell]).to_dict("records")
    steps = range(SEEN_BY + 1, LAST_STEP + 1)
    rates = [1e-3 * step for step in steps]
    assert row == pytest.approx({
        "condition": cell.cell.cell.condition, "seed": cell.cell.cell.seed,
        "learning_rate": np.log2(np.mean(rates)),
        "decay_per_million": 3.0 * sum(rates) / (len(rates) * STEP_TOKENS) * 1e6,
        "corpus_tokens": np.log2(96_000 + SEEN_BY * STEP_TOKENS + 500),
    })  # fmt: skip


def test_each_effect_has_students_interval_and_p_value():
    factors = design(None).assign(corpus_tokens=18.0)
    rates = np.random.default_rng(6).normal(size=24)
    names = ["learning_rate", "decay_per_million"]
    fits = pd.concat([
        fits_of(factors, rates), fits_of(factors, 2 * rates).assign(form="power"),
        fits_of(factors, 3 * rates).assign(occurrences="4"),
        fits_of(factors, -rates).assign(method="zlib"),
    ])  # fmt: skip
    table, problems = effects_table(fits, factors)
    assert problems == []
    seeds = factors["seed"].to_numpy()
    fit = regress_within_seeds(rates, factors[names].to_numpy(), seeds)
    expected = [
        {"method": method, "factor": name, "change": FACTORS[name], "effect": sign * slope,
         "effect_low": sign * slope - student.ppf(0.975, 19) * error,
         "effect_high": sign * slope + student.ppf(0.975, 19) * error,
         "p": 2 * student.cdf(-abs(slope) / error, 19), "cells": 24}
        for method, sign in (("loss", 1), ("zlib", -1))
        for name, slope, error in zip(names, fit.slopes, fit.errors, strict=True)
    ]  # fmt: skip
    assert table.to_dict("records") == [pytest.approx(row) for row in expected]


def fits_of(factors, rates):
    return factors[["condition", "seed"]].assign(
        method="loss", occurrences="any", form="exponential", rate=rates / 1e6
    )


def test_an_effect_is_found_and_chance_is_found_clear_at_its_level():
    rng, factors = np.random.default_rng(5), design(None)
    shared = {seed: rng.normal() for seed in range(3)}  # what the cells of a seed share
    base = 2 + factors["seed"].map(shared).to_numpy() + 0.5 * factors["learning_rate"].to_numpy()
    clear = []
    for _ in range(200):
        rates = base + 0.3 * rng.normal(size=len(factors))
        table, problems = effects_table(fits_of(factors, rates), factors)
        assert not problems
        clear.append((table.set_index("factor")["p"] < 0.05).to_dict())
    shares = pd.DataFrame(clear).mean()
    assert shares["learning_rate"] > 0.99
    assert 0.01 <= shares["decay_per_million"] <= 0.1
    assert 0.01 <= shares["corpus_tokens"] <= 0.1


def test_factors_that_vary_together_are_not_told_apart():
    factors = design(None)
    tied = factors.assign(corpus_tokens=factors["learning_rate"] * 2)
    table, problems = effects_table(fits_of(tied, np.arange(24.0)), tied)
    assert table.empty
    assert "apart" in problems[0]
    two_methods = pd.concat([fits_of(tied, np.arange(24.0)).assign(method=name) for name in "ab"])
    assert effects_table(two_methods, tied)[1] == problems
    assert problems == [
        "The cells can't tell learning rate after the exposure, doubled and Σλη per million "
        "tokens, plus 1 and tokens trained on by then, doubled apart, or are too few: cross these "
        "factors, in several seeds."
    ]
    assert largest_correlation(tied) == pytest.approx(1)
    opposed = tied.assign(corpus_tokens=-tied["learning_rate"], decay_per_million=0.0)
    assert largest_correlation(opposed) == pytest.approx(1)
    unknown = opposed.assign(corpus_tokens=np.nan)
    assert np.isnan(largest_correlation(unknown))
    constant = factors.assign(learning_rate=-8.0, decay_per_million=0.0, corpus_tokens=18.0)
    assert "No factor varies" in effects_table(fits_of(constant, np.arange(24.0)), constant)[1][0]
    assert np.isnan(largest_correlation(constant))
