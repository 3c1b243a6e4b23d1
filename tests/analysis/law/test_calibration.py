import numpy as np
import pytest

from contamination.analysis.law.calibration import calibrated_samples, compare_calibration
from contamination.analysis.law.measurements import within_variances
from tests.analysis.law.conftest import cells_of, simulate_cells


@pytest.fixture(scope="module")
def cells():
    return cells_of(simulate_cells(learning_rates=(1e-3, 2e-3, 4e-3), seeds=(0, 1), number=2))


def test_calibration_that_removes_the_levels_agrees_with_the_law(cells):
    table = compare_calibration(calibrated_samples(cells), within_variances(cells), 0.99, 0)
    whole = table[table["occurrences"] == 0]
    assert set(whole["method"]) == {"loss", "min_k"}
    assert ((whole["low"] < 0) & (whole["high"] > 0)).all()
    assert (whole["calibrated"] > whole["raw"]).all()


def test_calibration_that_removed_less_is_told_apart(cells):
    """The variances of trainings that share less than the law says: halved."""
    within = within_variances(cells)
    wrong = within.assign(within=within["within"] / 2)
    table = compare_calibration(calibrated_samples(cells), wrong, 0.9, 0)
    assert (table[table["occurrences"] == 0]["high"] < 0).all()


def test_references_are_trainings_of_other_seeds_that_did_not_see_the_example(cells):
    samples = calibrated_samples(cells)
    assert {sample.references for sample in samples} == {1}
    assert {len(s.members) for s in samples} == {40}
    one = samples[0]
    calibrated = np.concatenate([one.nonmembers["calibrated"], one.members["calibrated"]])
    raw = np.concatenate([one.nonmembers["raw"], one.members["raw"]])
    assert not np.allclose(calibrated, raw)
    assert calibrated_samples(cells[:2]) == []  # one pair has no other seed


def test_without_other_conditions_nothing_is_tested(cells):
    one = [cell for cell in cells if cell.learning_rate == 1e-3]
    samples = calibrated_samples(one)
    assert samples
    assert not len(compare_calibration(samples, within_variances(one), 0.9, 0))
