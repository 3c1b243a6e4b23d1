import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.analysis.law.calibration import (
    CalibratedSample,
    calibrated_samples,
    compare_calibration,
)
from contamination.analysis.law.measurements import wide_scores, within_variances
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
    assert {sample.condition for sample in samples} == {
        cell.condition for cell in cells if not cell.swapped
    }
    assert {sample.cell for sample in samples} == {cell.name for cell in cells}
    assert {sample.occurrences for sample in samples} == {1, 2, 4, 8}
    assert calibrated_samples(cells[:2]) == []  # one pair has no other seed


def test_the_reference_is_the_training_of_the_other_seed_without_the_example(cells):
    """Of two pairs, by a loop: the member of a pair is out of one of the other pair's cells."""
    one_rate = [cell for cell in cells if cell.learning_rate == 1e-3]
    wide = {cell.name: wide_scores(cell) for cell in one_rate}
    for sample in calibrated_samples(one_rate)[::7]:
        (own_cell,) = (cell for cell in one_rate if cell.name == sample.cell)
        key = sample.benchmark, sample.method
        references = [wide[cell.name][key] for cell in one_rate if cell.seed != own_cell.seed]
        for table in (sample.members, sample.nonmembers):
            for name, raw, calibrated in table.itertuples():
                rows = [reference.loc[name] for reference in references]
                (level,) = (row["standard"] for row in rows if not row["member"])
                assert raw == wide[own_cell.name][key].loc[name, "standard"]
                assert calibrated == pytest.approx(raw - level)
        assert not wide[own_cell.name][key].loc[sample.nonmembers.index, "member"].any()
        copies = wide[own_cell.name][key].loc[sample.members.index, "occurrences"]
        assert set(copies) == {sample.occurrences}


@pytest.mark.parametrize(("a_dose", "samples"), [(5, 64), (4, 0)])
def test_a_sample_has_five_members_or_more(a_dose, samples):
    one_rate = cells_of(simulate_cells(learning_rates=(1e-3,), a_dose=a_dose))
    assert len(calibrated_samples(one_rate)) == samples  # 4 cells, benchmarks, methods, copies


def test_without_other_conditions_nothing_is_tested(cells):
    one = [cell for cell in cells if cell.learning_rate == 1e-3]
    samples = calibrated_samples(one)
    assert samples
    assert not len(compare_calibration(samples, within_variances(one), 0.9, 0))


def make_sample(condition, method, members, nonmembers, references=1):
    """A sample of 2 copies; each example is (raw, calibrated)."""
    columns = ["raw", "calibrated"]
    tables = [
        pd.DataFrame(values, [f"{side}{i}" for i in range(len(values))], columns, dtype=float)
        for side, values in (("in", members), ("out", nonmembers))
    ]
    return CalibratedSample(condition, f"{condition}-seed0", "imdb", method, 2, references, *tables)


SAMPLES = [
    # raw: 3 of 4 pairs; calibrated: 3 and a tie
    make_sample("x", "loss", [(1, 2), (3, 3)], [(0, 2), (2, 1)]),
    # raw: 2 of 4; calibrated: 3 of 4
    make_sample("y", "loss", [(1, 1), (1, 3)], [(0, 0), (2, 2)]),
    # of one condition, but with a variance of another
    make_sample("x", "zlib", [(3, 3), (1, 1), (4, 4)], [(0, 0), (2, 2), (2, 3)], references=3),
    # without a variance of another condition
    make_sample("x", "min_k", [(1, 1)], [(0, 0)]),
]
WITHIN = pd.DataFrame(
    [
        ("x", "imdb", "loss", 0.4, False),
        ("y", "imdb", "loss", 0.2, False),
        ("y", "imdb", "loss", 0.9, True),  # an upper bound
        ("z", "imdb", "zlib", 0.3, False),
        ("z", "boolq", "min_k", 0.3, False),  # of another benchmark
        ("x", "imdb", "min_k", 0.3, False),  # of the condition itself
    ],
    columns=["condition", "benchmark", "method", "within", "upper_bound"],
)


def predicted(auroc, within, references):
    return norm.cdf(norm.ppf(auroc) / np.sqrt(within * (1 + 1 / references)))


def test_raw_predicted_and_calibrated_are_those_of_the_formula():
    table = compare_calibration(SAMPLES, WITHIN, 0.9, 0)
    loss_predicted = (predicted(0.75, 0.2, 1) + predicted(0.5, 0.4, 1)) / 2
    loss = (2, 1, 0.625, loss_predicted, 0.8125, 0.8125 - loss_predicted)
    # Members 3 and 4 are above all three, 1 above one.
    zlib_predicted, zlib_calibrated = predicted(7 / 9, 0.3, 3), 6.5 / 9
    zlib = (1, 3, 7 / 9, zlib_predicted, zlib_calibrated, zlib_calibrated - zlib_predicted)
    rows = [("loss", 0, *loss), ("loss", 2, *loss), ("zlib", 0, *zlib), ("zlib", 2, *zlib)]
    columns = [
        "method", "occurrences", "cells", "references", "raw", "predicted", "calibrated",
        "difference", "low", "high",
    ]  # fmt: skip
    assert list(table.columns) == columns
    pd.testing.assert_frame_equal(table[columns[:-2]], pd.DataFrame(rows, columns=columns[:-2]))


def test_the_interval_is_of_the_confidence_and_of_the_seed():
    tables = {
        (confidence, seed): compare_calibration(SAMPLES, WITHIN, confidence, seed)
        for confidence, seed in [(0.5, 0), (0.9, 0), (0.9, 1)]
    }
    narrow, wide = tables[0.5, 0], tables[0.9, 0]
    assert (wide["low"] <= narrow["low"]).all()
    assert (narrow["low"] <= narrow["high"]).all()
    assert (narrow["high"] <= wide["high"]).all()
    assert (wide["low"] < narrow["low"]).any()
    assert (wide["high"] > narrow["high"]).any()
    assert not wide["low"].equals(tables[0.9, 1]["low"])
    pd.testing.assert_frame_equal(compare_calibration(SAMPLES, WITHIN, 0.9, 0), wide)
