"""The ratio screen and the chunks that it reads."""

import numpy as np
import pytest
from scipy.stats import binomtest

from contamination.audits.unlearning.forget_ratio import (
    apply_ratio_screen,
    score_ratios,
    still_known_mask,
    suspicious_mask,
)
from contamination.audits.unlearning.inputs import (
    choose_chunk_indices,
    cut_into_chunks,
    divide_into_chunks,
)
from contamination.core.errors import DataError
from contamination.core.seeds import derive_seed, unit_hash
from contamination.data.examples import make_text
from tests.audits.unlearning.test_statistics import units


def test_a_chunk_is_suspicious_within_the_ratio():
    before, after = np.full(5, -2.0), np.array([-2.0, -2.29, -2.31, -1.75, -1.73])
    assert suspicious_mask(score_ratios(before, after), 1.15).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_certain_models_have_a_ratio():
    found = score_ratios(np.array([0.0, 0.0, -1.0]), np.array([0.0, -1.0, 0.0]))
    assert suspicious_mask(found, 1.15).tolist() == [True, False, False]


def test_precision_and_recall_are_those_of_a_count():
    before = np.full(10, -2.0)
    after = np.where(np.arange(10) % 3, -2.0, -4.0)  # 0, 3, 6 and 9 changed: members 0, 3
    clean = np.full(10, -4.0)
    found = apply_ratio_screen(units(5, 5), before, after, clean, 1.15)
    assert found.precision.value == 3 / 6
    assert found.recall.value == 3 / 5
    assert found.false_alarms.value == 3 / 5
    assert found.members.value == 0.5
    assert (found.known, found.recall_of_known.value) == (3, 1)
    assert apply_ratio_screen(units(5, 5), before, before * 2, None, 1.15).precision is None
    known = still_known_mask(before, after, clean)
    assert known.tolist() == [bool(i % 3) for i in range(10)]


def test_rates_have_wilsons_interval():
    from contamination.core.statistics.estimates import confidence_interval

    before, found = np.full(60, -2.0), units(40, 20)
    after = np.where(np.arange(60) < 10, -2.0, -4.0)
    low, high = confidence_interval(
        apply_ratio_screen(found, before, after, None, 1.15).recall, 0.95
    )
    wanted = binomtest(10, 40).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((wanted.low, wanted.high), abs=0.02)


def test_longer_texts_are_cut_and_a_scrap_joins_the_chunk_before():
    assert cut_into_chunks("a b", 3) == ["a b"]
    assert cut_into_chunks("a b  c d e f g", 3) == ["a b  c", "d e f g"]
    assert cut_into_chunks("a b c d e", 3) == ["a b c", "d e"]
    assert cut_into_chunks("a b c d e f", 4) == ["a b c d", "e f"]  # half as many words
    assert cut_into_chunks("a b c d e f g h i", 4) == ["a b c d", "e f g h i"]
    assert cut_into_chunks(" a  b\n", 2) == [" a  b\n"]  # a text of one chunk is left as it is
    texts, rows = divide_into_chunks(
        [make_text("x", "a b c d e", True, ""), make_text("y", "a", None, "")], 3
    )
    assert [(text.example_id, text.text, text.label) for text in texts] == [
        ("x#0", "a b c", True), ("x#1", "d e", True), ("y", "a", None),
    ]  # fmt: skip
    assert [*rows.columns] == ["chunk", "text_id", "benchmark", "member"]
    assert rows["chunk"].tolist() == ["x#0", "x#1", "y"]
    assert rows["text_id"].tolist() == ["x", "x", "y"]
    assert rows["member"].tolist()[:2] == [True, True]
    assert rows["member"].isna().tolist() == [False, False, True]
    with pytest.raises(DataError, match="'x#0' names two chunks"):
        divide_into_chunks(
            [make_text("x", "a b c d e", True, ""), make_text("x#0", "a", None, "")], 3
        )


def test_completed_chunks_are_drawn_evenly():
    texts = [make_text(str(i), "a", i < 90, "") for i in range(100)]
    _, rows = divide_into_chunks(texts, 5)
    places = choose_chunk_indices(rows, 16, 0)
    assert sum(place < 90 for place in places) == 8
    assert choose_chunk_indices(rows, 16, 1) != places
    assert len(choose_chunk_indices(rows, 500, 0)) == 100


def test_chunks_of_each_label_are_drawn_in_turn_by_the_hash_of_their_ids():
    labels = [True, True, True, False, False, False, None]
    texts = [make_text(str(i), "a", label, "") for i, label in enumerate(labels)]
    _, rows = divide_into_chunks(texts, 5)
    seed = derive_seed(3, "completed")
    hashes = [unit_hash(f"{seed} {i}") for i in range(7)]
    sides = [sorted(side, key=hashes.__getitem__) for side in ([0, 1, 2], [3, 4, 5], [6])]
    drawn_by_turn = [
        sorted((side[turn] for side in sides if turn < len(side)), key=hashes.__getitem__)
        for turn in range(3)
    ]
    order = sum(drawn_by_turn, [])
    for limit in range(8):
        assert choose_chunk_indices(rows, limit, 3) == sorted(order[:limit])
