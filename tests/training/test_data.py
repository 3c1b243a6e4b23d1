"""The order in which a training reads sequences."""

import numpy as np
import pandas as pd
import pytest
import torch

from contamination.training.data import (
    PADDING,
    SequenceOrder,
    count_loss_tokens,
    count_texts,
    iter_micro_batch_rows,
    make_exposure_table,
    positions_in_texts,
    read_batch,
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
    assert found.index.tolist() == [0, 1, 2, 3]
    assert [*found] == ["sequence", "reworded", "step"]
    assert TWICE.step_by_sequence(1).tolist() == [
        next(step for step in range(6, 12) if row in TWICE.rows_of_step(step)) for row in range(45)
    ]


def test_exposures_name_the_step_of_each_copy():
    ledger = pd.DataFrame({"sequence": [0, 44, 44, 17]})
    seen = {row: step for step in range(1, 7) for row in ORDER.rows_of_step(step - 1)}
    assert make_exposure_table(ledger, ORDER)["step"].tolist() == [seen[n] for n in (0, 44, 44, 17)]


PACKED = [
    {"input_ids": [5, 6, 7, 8, 9, 0], "text": [0, 0, 0, 1, 1, -1], "output": [1, 1, 0, 1, 0, 0],
     "texts": 2, "targets": 3, "output_targets": 1},
    {"input_ids": [4, 3, 2, 1, 9, 0], "text": [2, 2, 2, 2, -1, -1], "output": [0, 0, 1, 1, 1, 0],
     "texts": 1, "targets": 3, "output_targets": 2},
]  # fmt: skip


def test_a_batch_of_texts_counts_what_has_a_token_before_it_in_its_text():
    rows = np.array([0, PADDING])
    batch = read_batch(PACKED, rows)
    assert batch.ids_BS.tolist() == [PACKED[0]["input_ids"]] * 2
    assert (batch.real_B.tolist(), batch.rows_B[0].item()) == ([1, 0], 0)
    assert batch.counted_BS.tolist() == [[1, 1, 0, 1, 0]] * 2
    assert batch.loss_mask_BS.tolist() == [[1, 1, 0, 1, 0], [0] * 5]
    assert batch.positions_BS.tolist() == [[0, 1, 2, 0, 1, 0]] * 2
    assert batch.texts_BS.tolist() == batch.text_numbers_BS.tolist() == [PACKED[0]["text"]] * 2
    assert batch.text_numbers_BS.dtype == batch.ids_BS.dtype == torch.int64
    assert read_batch(PACKED, rows, "output").counted_BS.tolist() == [[1, 0, 0, 0, 0]] * 2
    one_text = read_batch(PACKED, np.array([1]))
    assert one_text.positions_BS is None
    assert one_text.counted_BS.tolist() == [[1, 1, 1, 0, 0]]
    assert read_batch(PACKED, np.array([1]), "output").counted_BS.tolist() == [[0, 1, 1, 0, 0]]
    moved = batch.to(torch.device("meta"))
    assert {value.device.type for value in vars(moved).values()} == {"meta"}


def test_a_batch_of_a_corpus_counts_all_that_it_predicts():
    sequences = [{"input_ids": [number, number + 1, number + 2]} for number in range(4)]
    batch = read_batch(sequences, np.array([3, 1, PADDING])).to(torch.device("cpu"))
    assert batch.ids_BS.tolist()[:2] == [[3, 4, 5], [1, 2, 3]]
    assert batch.loss_mask_BS.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert batch.text_numbers_BS.tolist()[:2] == [[3, 3, 3], [1, 1, 1]]
    assert (batch.counted_BS, batch.positions_BS, batch.texts_BS) == (None, None, None)


def test_positions_begin_anew_with_each_text():
    texts = np.array([[7, 7, 8, 8, 8, -1], [3, 4, 4, -1, -1, -1]])
    assert positions_in_texts(texts).tolist() == [[0, 1, 0, 1, 2, 0], [0, 0, 1, 0, 1, 2]]


def test_what_a_step_is_divided_by_leaves_padding_out():
    sequences = [{"input_ids": [1, 2, 3]} for _ in range(4)]
    rows = np.array([PADDING, 2, PADDING, 0, 1])
    assert (count_loss_tokens(sequences, rows), count_texts(sequences, rows)) == (6, 3)
    assert (count_texts(sequences), count_texts(PACKED)) == (4, 3)
    for rows, counts in (([1, PADDING], (3, 2, 1)), ([0], (3, 1, 2)), ([0, 1], (6, 3, 3))):
        rows = np.array(rows)
        tokens = [count_loss_tokens(PACKED, rows, loss_on) for loss_on in ("all", "output")]
        assert (*tokens, count_texts(PACKED, rows)) == counts
        assert count_loss_tokens(PACKED, rows) == counts[0]
