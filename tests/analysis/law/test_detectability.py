import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.analysis.law.detectability import (
    auroc_of_shift,
    calibrated_variance,
    log_design,
    member_variance,
    shift_of_auroc,
    tpr_of_shift,
)


def test_auroc_and_tpr_are_those_of_simulated_normal_scores():
    rng = np.random.default_rng(0)
    outside, inside = rng.normal(0, 1, 200_000), rng.normal(0.7, np.sqrt(1.6), 200_000)
    auroc = (inside > outside).mean()
    assert auroc == pytest.approx(float(auroc_of_shift(0.7, 1.0, 1.6)), abs=4e-3)
    rate = (inside > np.quantile(outside, 0.99)).mean()
    assert rate == pytest.approx(float(tpr_of_shift(0.7, 0.01, 1.0, 1.6)), abs=3e-3)


def test_the_table_of_swapped_replicates_gives_the_aurocs_that_were_seen():
    """docs/results.md: shifts of loss at 1, 2, 4, 8 copies → the AUROC of the design notes."""
    np.testing.assert_allclose(
        auroc_of_shift([0.25, 0.46, 0.98, 1.78]), [0.570, 0.628, 0.756, 0.896], atol=1e-3
    )


def test_a_shift_is_found_again_and_a_certain_auroc_has_the_largest():
    shifts = np.array([-0.5, 0.0, 1.0, 3.0])
    inverted = shift_of_auroc(auroc_of_shift(shifts, 0.4, 0.9), 0.4, 0.9)
    np.testing.assert_allclose(inverted, shifts, atol=1e-12)
    assert shift_of_auroc(1.0) == 9.0
    assert shift_of_auroc(0.0) == -9.0
    np.testing.assert_allclose(shift_of_auroc(auroc_of_shift(shifts)), shifts, atol=1e-12)


def test_without_variances_both_are_those_of_the_non_members():
    assert float(auroc_of_shift(1.0)) == pytest.approx(float(auroc_of_shift(1.0, 1.0, 1.0)))
    assert float(shift_of_auroc(0.7)) == pytest.approx(float(shift_of_auroc(0.7, 1.0, 1.0)))
    assert float(tpr_of_shift(1.0, 0.1)) == pytest.approx(float(tpr_of_shift(1.0, 0.1, 1.0, 1.0)))
    twice = norm.ppf(0.9) * np.sqrt(2.0)
    assert float(tpr_of_shift(1.0, 0.1, 2.0, 4.0)) == pytest.approx(norm.cdf((1 - twice) / 2))


def test_calibration_by_many_references_leaves_the_spread_within():
    assert calibrated_variance(0.3, 1) == pytest.approx(0.6)
    assert calibrated_variance(0.3, np.inf) == pytest.approx(0.3)


def test_the_members_variance_is_that_of_the_non_members_without_a_shift():
    assert member_variance(0.0, 0.7) == 1.0
    assert member_variance(1.0, 0.7) == pytest.approx(np.exp(0.7))
    limits = member_variance(np.array([9.0, -9.0]), 1.5)
    np.testing.assert_allclose(limits, np.exp([5.0, -5.0]))


def test_the_design_has_logs_around_the_centres():
    design = log_design({"a": [1.0, 4.0], "b": [2.0, 2.0]}, {"a": 2.0, "b": 1.0})
    np.testing.assert_allclose(design, np.log([[0.5, 2.0], [2.0, 2.0]]))
    assert log_design(pd.DataFrame({"a": [1.0, 4.0]}), {}).shape == (2, 0)
