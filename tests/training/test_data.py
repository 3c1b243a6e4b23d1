"""The order in which a training reads sequences."""

import numpy as np
import pandas as pd
import pytest

from contamination.training.data import (
    PADDING,
    SequenceOrder,
    iter_micro_batch_rows,
    make_exposure_table,
)

ORDER = SequenceOrder(sequences=45, batch=8, seed=3)


def test_an_epoch_sees_every_sequence_once():
    rows = np.concatenate([ORDER.rows_of_step(step) for step in range(ORDER.steps)])
    assert ORDER.steps == 6
    assert sorted(rows[rows != PADDING]) == list(range(45))
    assert (rows == PADDING).sum() == 3


@pytest.mark.parametrize(("world", "micro"), [(1, 8), (1, 2), (2, 2), (4, 1), (2, 4)])
def test_a_step_is_the_same_at_any_world_size(world, micro):
    parts = [
        list(iter_micro_batch_rows(ORDER.rows_of_step(2), rank, world, micro))
        for rank in range(world)
    ]
    together = np.concatenate(
        [parts[r][m] for m in range(8 // world // micro) for r in range(world)]
    )
    assert together.tolist() == ORDER.rows_of_step(2).tolist()


def test_without_a_seed_the_order_is_the_corpus_s():
    rows = np.concatenate([SequenceOrder(45, 8, None).rows_of_step(step) for step in range(6)])
    assert rows[rows != PADDING].tolist() == list(range(45))


def test_step_of_inverts_the_order():
    steps = ORDER.step_by_sequence()
    for step in range(ORDER.steps):
        rows = ORDER.rows_of_step(step)
        assert (steps[rows[rows != PADDING]] == step).all()


TWICE = SequenceOrder(sequences=45, batch=8, seed=3, epochs=2)


def test_each_epoch_sees_every_sequence_once_in_an_order_of_its_own():
    rows = [TWICE.rows_of_step(step) for step in range(TWICE.steps)]
    first, second = np.concatenate(rows[:6]), np.concatenate(rows[6:])
    assert TWICE.steps == 12
    assert (
        first.tolist() == np.concatenate([ORDER.rows_of_step(step) for step in range(6)]).tolist()
    )
    assert sorted(second[second != PADDING]) == list(range(45))
    assert first.tolist() != second.tolist()
    assert TWICE.rows_of_step(2).tolist() == ORDER.rows_of_step(2).tolist()  # back again
    assert [TWICE.count_sequences_seen(n) for n in (0, 1, 6, 7, 12)] == [0, 8, 45, 53, 90]


def test_exposures_name_a_step_of_each_epoch():
    ledger = pd.DataFrame({"sequence": [0, 44], "reworded": None}).astype({"reworded": object})
    seen = [
        (step + 1, row) for step in range(12) for row in TWICE.rows_of_step(step) if row in (0, 44)
    ]
    found = make_exposure_table(ledger, TWICE)
    assert sorted(zip(found["step"], found["sequence"], strict=True)) == sorted(seen)
    assert len(found) == 4


def test_exposures_name_the_step_of_each_copy():
    ledger = pd.DataFrame({"sequence": [0, 44, 44, 17]})
    seen = {row: step for step in range(1, 7) for row in ORDER.rows_of_step(step - 1)}
    assert make_exposure_table(ledger, ORDER)["step"].tolist() == [seen[n] for n in (0, 44, 44, 17)]
