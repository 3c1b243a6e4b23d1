"""Where segments are placed in a stream of documents."""

from types import SimpleNamespace

import numpy as np
import pytest

from contamination.core.errors import ConfigError
from contamination.injection.placement import (
    Segment,
    boundary_finder,
    check_copy_distance,
    place_within_window,
)

WIDTH = 64


def segments(rng, n, low=4, high=WIDTH):
    return [
        Segment(i, 0, i, int(rng.integers(low, high + 1)), float(rng.random())) for i in range(n)
    ]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("split", [False, True])
def test_every_segment_is_placed_once_in_order_without_overlap(seed, split):
    rng = np.random.default_rng(seed)
    wanted = segments(rng, 40)
    inserted = sum(s.tokens for s in wanted)
    clean = -(-inserted // WIDTH) * WIDTH * 3 - inserted
    placed = place_within_window(
        wanted, (0, clean + inserted), WIDTH, lambda p: p + (-p % 3), split=split
    )
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
    forward = place_within_window(wanted, (0, 5_000), WIDTH, lambda p: p, split=False)
    backward = place_within_window(wanted[::-1], (0, 5_000), WIDTH, lambda p: p, split=False)
    assert forward == backward


def places(placed):
    return [(p.clean, p.packed) for p in placed]


def test_a_position_is_a_share_of_the_windows_clean_tokens():
    shares = [(0.5, 1, 0), (0.9999, 3, 0), (0.0, 2, 0), (0.5, 0, 1), (0.5, 0, 0), (0.5, 1, 1)]
    wanted = [Segment(example, copy, 0, 4, share) for share, example, copy in shares]
    placed = place_within_window(
        wanted, (100, 224), WIDTH, lambda p: p, split=True
    )  # of which 100 are clean
    half = [(151, 155 + 4 * before) for before in range(4)]
    assert places(placed) == [(101, 101), *half, (200, 220)]
    order = [(p.segment.example, p.segment.copy) for p in placed]
    assert order == [(2, 0), (0, 0), (0, 1), (1, 0), (1, 1), (3, 0)]


@pytest.mark.parametrize(
    ("boundaries", "clean"),
    [([71], 71), ([75], 75), ([76, 81], 11)],  # the 8th boundary is tried, a 9th one is not
)
def test_a_boundary_is_looked_for_that_leaves_a_segment_whole(boundaries, clean):
    """Behind 9 other tokens, at none of the first seven; else it opens the next sequence of 10."""
    boundaries = [1, 7, 17, 26, 37, 46, 57, 69, *boundaries]

    def boundary(position):
        return next(b for b in boundaries if b >= position)

    wanted = [Segment(0, 0, 0, 9, 0.0), Segment(1, 0, 0, 6, 0.03)]
    placed = place_within_window(wanted, (0, 200), 10, boundary, split=False)
    assert places(placed) == [(1, 1), (clean, clean + 9)]


@pytest.mark.parametrize(
    ("window", "step", "split", "expected"),
    [  # of four segments of 60 at the window's end
        ((0, 384), 1, False, [(132, 132), (136, 196), (140, 260), (144, 324)]),
        ((0, 384), 100, True, [(144, 144), (144, 204), (144, 264), (144, 324)]),
        ((0, 240), 1, True, [(0, 0), (0, 60), (0, 120), (0, 180)]),
        ((64, 320), 1, False, [(68, 68), (72, 132), (76, 196), (80, 260)]),
    ],
)
def test_the_last_segments_are_pulled_back_into_the_window(window, step, split, expected):
    wanted = [Segment(i, 0, i, 60, 0.999) for i in range(4)]
    placed = place_within_window(wanted, window, WIDTH, lambda p: p + (-p % step), split=split)
    assert places(placed) == expected
    assert [p.segment for p in placed] == wanted


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("start", [0, 20, 40])
def test_segments_stand_in_their_window_of_the_packed_corpus(seed, split, start):
    wanted = segments(np.random.default_rng(seed), 30, high=WIDTH // 2)
    window = start * WIDTH, (start + 30) * WIDTH
    placed = place_within_window(wanted, window, WIDTH, lambda p: p + (-p % 3), split=split)
    assert min(p.packed for p in placed) >= window[0]
    assert max(p.packed + p.segment.tokens for p in placed) <= window[1]


def test_segments_are_spread_over_the_whole_window():
    rng = np.random.default_rng(0)
    places = []
    for _ in range(300):
        wanted = segments(rng, 20, low=20, high=20)
        placed = place_within_window(wanted, (1_000, 2_000), WIDTH, lambda p: p, split=True)
        places += [(p.packed + 10 - 1_000) / 1_000 for p in placed]
    for quarter in (0.25, 0.5, 0.75):
        assert np.mean(np.array(places) < quarter) == pytest.approx(quarter, abs=0.03)


def test_a_boundary_is_the_next_word_or_sentence_within_256_tokens():
    """Ids: 0 goes on, 1 starts a word, 2 ends a sentence, 3 does both. A long stretch has none."""
    starts, ends = np.array([0, 1, 0, 1], bool), np.array([0, 0, 1, 1], bool)
    rng = np.random.default_rng(0)
    ids = np.r_[rng.choice(4, 300, p=[0.7, 0.2, 0.08, 0.02]), np.zeros(600, int), 2, 1, 0, 3]
    stream = SimpleNamespace(read=lambda start, stop: ids[start:stop])
    tokenizer = SimpleNamespace(is_word_start=starts, is_sentence_end=ends)
    token, word, sentence = (
        boundary_finder(stream, kind, tokenizer) for kind in ("token", "word", "sentence")
    )
    for place in range(len(ids)):
        words = [i for i in range(place, min(place + 256, len(ids))) if starts[ids[i]]]
        opens = [i for i in words if i > 0 and ends[ids[i - 1]]]
        assert token(place) == place
        assert word(place) == min(words, default=place)
        assert sentence(place) == min(opens or words, default=place)


@pytest.mark.parametrize(
    ("n", "tokens", "window", "width"),
    [(4, 60, (0, 300), 100), (1, 70, (0, 170), WIDTH), (1, 63, (66, 130), WIDTH),
     (1, 60, (0, 59), WIDTH)],
)  # fmt: skip
def test_too_little_room_is_said(n, tokens, window, width):
    said = f"can't be placed unsplit into tokens {window[0]} to {window[1]} of .* of {width}: raise"
    with pytest.raises(ConfigError, match=said):
        place_within_window(
            [Segment(i, 0, i, tokens, 0.5) for i in range(n)], window, width, int, split=False
        )


def test_a_segment_may_be_a_whole_sequence_and_fill_its_window():
    whole = [Segment(0, 0, 0, WIDTH, 0.5)]
    placed = place_within_window(whole, (WIDTH, 2 * WIDTH), WIDTH, int, split=False)
    assert places(placed) == [(WIDTH, WIDTH)]
    longer = [Segment(0, 0, 0, WIDTH + 1, 0.0)]
    assert places(place_within_window(longer, (0, 200), WIDTH, int, split=True)) == [(1, 1)]


def test_copies_that_are_too_close_are_refused():
    wanted = [Segment(n % 2, n // 2, 0, 10, place) for n, place in
              enumerate((0.1, 0.15, 0.4, 0.8, 0.85, 0.9))]  # fmt: skip
    placed = place_within_window(wanted, (0, 1_060), WIDTH, int, split=True)
    assert [p.packed for p in placed] == [101, 161, 421, 831, 891, 951]
    check_copy_distance(placed, 120)
    with pytest.raises(ConfigError, match="copy_distance_tokens is 121"):
        check_copy_distance(placed, 121)
