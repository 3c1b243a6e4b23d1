from types import SimpleNamespace

import numpy as np
import pytest

from core.errors import ConfigError
from injection.splice import Segment, boundary_finder, check_distance, lay_out

WIDTH = 64


def segments(rng, n, low=4, high=WIDTH):
    return [
        Segment(i, 0, i, int(rng.integers(low, high + 1)), float(rng.random())) for i in range(n)
    ]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("split", [False, True])
def test_every_segment_is_placed_once_in_order_without_overlap(seed, split):
    rng = np.random.default_rng(seed)
    wanted = segments(rng, 40)
    inserted = sum(s.tokens for s in wanted)
    clean = -(-inserted // WIDTH) * WIDTH * 3 - inserted
    placed = lay_out(wanted, (0, clean + inserted), WIDTH, lambda p: p + (-p % 3), split=split)
    assert sorted(p.segment.example for p in placed) == list(range(40))
    end = shift = 0
    for item in placed:
        assert item.packed >= end
        assert item.packed == item.clean + shift
        end, shift = item.packed + item.segment.tokens, shift + item.segment.tokens
        if not split:
            assert item.packed // WIDTH == (end - 1) // WIDTH
    assert end <= clean + inserted


def test_places_do_not_depend_on_the_segments_order():
    wanted = segments(np.random.default_rng(1), 20)
    forward = lay_out(wanted, (0, 5_000), WIDTH, lambda p: p, split=False)
    backward = lay_out(wanted[::-1], (0, 5_000), WIDTH, lambda p: p, split=False)
    assert forward == backward


def test_the_last_segments_are_pulled_back_into_the_corpus():
    wanted = [Segment(i, 0, i, 60, 0.999) for i in range(4)]
    placed = lay_out(wanted, (0, 6 * WIDTH), WIDTH, lambda p: p, split=False)
    assert max(p.packed + 60 for p in placed) <= 6 * WIDTH


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("start", [0, 20, 40])
def test_segments_stand_in_their_window_of_the_packed_corpus(seed, split, start):
    wanted = segments(np.random.default_rng(seed), 30, high=WIDTH // 2)
    window = start * WIDTH, (start + 30) * WIDTH
    placed = lay_out(wanted, window, WIDTH, lambda p: p + (-p % 3), split=split)
    assert min(p.packed for p in placed) >= window[0]
    assert max(p.packed + p.segment.tokens for p in placed) <= window[1]


def test_segments_are_spread_over_the_whole_window():
    rng = np.random.default_rng(0)
    places = []
    for _ in range(300):
        wanted = segments(rng, 20, low=20, high=20)
        placed = lay_out(wanted, (1_000, 2_000), WIDTH, lambda p: p, split=True)
        places += [(p.packed + 10 - 1_000) / 1_000 for p in placed]
    for quarter in (0.25, 0.5, 0.75):
        assert np.mean(np.array(places) < quarter) == pytest.approx(quarter, abs=0.03)


def test_a_boundary_is_the_next_word_or_sentence_within_256_tokens():
    """Ids: 0 goes on, 1 starts a word, 2 ends a sentence, 3 does both. A long stretch has none."""
    starts, ends = np.array([0, 1, 0, 1], bool), np.array([0, 0, 1, 1], bool)
    rng = np.random.default_rng(0)
    ids = np.r_[rng.choice(4, 300, p=[0.7, 0.2, 0.08, 0.02]), np.zeros(600, int), 2, 1, 0, 3]
    stream = SimpleNamespace(read=lambda start, stop: ids[start:stop])
    tokenizer = SimpleNamespace(starts_word=starts, ends_sentence=ends)
    token, word, sentence = (
        boundary_finder(stream, kind, tokenizer) for kind in ("token", "word", "sentence")
    )
    for place in range(len(ids)):
        words = [i for i in range(place, min(place + 256, len(ids))) if starts[ids[i]]]
        opens = [i for i in words if i > 0 and ends[ids[i - 1]]]
        assert token(place) == place
        assert word(place) == min(words, default=place)
        assert sentence(place) == min(opens or words, default=place)


def test_too_little_room_is_said():
    wanted = [Segment(i, 0, i, 60, 0.5) for i in range(4)]
    with pytest.raises(ConfigError, match="can't be placed whole"):
        lay_out(wanted, (0, 300), 100, lambda p: p, split=False)
    with pytest.raises(ConfigError, match="can't be placed whole"):
        lay_out([Segment(0, 0, 0, 70, 0.5)], (0, 170), WIDTH, lambda p: p, split=False)


def test_copies_that_are_too_close_are_refused():
    wanted = [Segment(0, copy, 0, 10, place) for copy, place in enumerate((0.1, 0.5))]
    placed = lay_out(wanted, (0, 1_000), WIDTH, lambda p: p, split=False)
    check_distance(placed, 400)
    with pytest.raises(ConfigError, match="copy_distance_tokens is 500"):
        check_distance(placed, 500)
