"""Copies between documents: always at a document's start, and anywhere among these."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from contamination.core.errors import ConfigError
from contamination.injection.placement import PlacementRules, Segment, place_between_documents

WIDTH = 64


def documents(rng, n):
    """Where documents of very unequal lengths start, and the tokens of all."""
    ends = np.cumsum(rng.lognormal(3.5, 1.2, n).astype(np.int64) + 1)
    return np.array([0, *ends[:-1]]), int(ends[-1])


def copies(rng, n, low=4, high=40):
    return [
        Segment(i, 0, i, int(rng.integers(low, high + 1)), float(rng.random())) for i in range(n)
    ]


def laid_out(seed, n, of, share=(0.0, 1.0), **rules):
    """Copies among `of` documents, in a window of the packed corpus; with the starts within it."""
    rng = np.random.default_rng(seed)
    starts, clean = documents(rng, of)
    wanted = copies(rng, n)
    inserted = sum(s.tokens for s in wanted)
    window = tuple(round(s * (clean + inserted)) for s in share)
    placed = place_between_documents(wanted, starts, PlacementRules(window, WIDTH, **rules))
    inside = starts[(starts >= max(1, window[0])) & (starts <= window[1] - inserted)]
    return wanted, placed, inside, window


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("share", [(0.0, 1.0), (0.4, 0.6), (0.8, 1.0)])
def test_every_copy_opens_a_document_of_its_own_in_the_window(seed, split, share):
    wanted, placed, inside, window = laid_out(seed, 30, 1_000, share, split=split)
    assert sorted(p.segment.example for p in placed) == list(range(30))
    before = inserted = 0
    for p in placed:
        assert p.clean in inside
        assert p.clean > before
        assert p.packed == p.clean + inserted
        assert window[0] <= p.packed
        assert p.packed + p.segment.tokens <= window[1]
        if not split:
            assert p.packed % WIDTH + p.segment.tokens <= WIDTH
        before, inserted = p.clean, inserted + p.segment.tokens


@pytest.mark.parametrize(("n", "share"), [(20, (0.0, 1.0)), (12, (0.9, 1.0)), (30, (0.7, 0.9))])
def test_all_starts_of_the_window_are_equally_likely(n, share):
    places, long = [], []
    for seed in range(150):
        _, placed, inside, _ = laid_out(seed, n, 800, share)
        at = np.searchsorted(inside, [p.clean for p in placed])
        places += [*((at + 0.5) / len(inside))]
        long += [(i + 0.5) / len(inside) for i, p in zip(at, placed, strict=True)
                 if p.segment.tokens > 32]  # fmt: skip
    tenths = np.bincount((np.array(places) * 10).astype(int), minlength=10)
    assert chisquare(tenths).pvalue > 0.001
    assert kstest(places, "uniform").pvalue > 0.001
    assert kstest(long, "uniform").pvalue > 0.001  # the copies with the fewest places


def test_a_start_after_a_long_document_is_as_likely_as_any():
    lengths = np.array([10, 500] * 50)
    starts = np.cumsum(lengths) - lengths
    after = Counter()
    for seed in range(200):
        wanted = copies(np.random.default_rng(seed), 10, 8, 8)
        window = (0, int(lengths.sum()) + 80)
        for p in place_between_documents(wanted, starts, PlacementRules(window, WIDTH, split=True)):
            after[int(lengths[np.searchsorted(starts, p.clean) - 1])] += 1
    assert after[500] / 2_000 == pytest.approx(50 / 99, abs=4 * np.sqrt(0.25 / 2_000))


def test_as_many_copies_as_starts_fill_them_all():
    starts = np.arange(0, 1_010, 10)
    wanted = copies(np.random.default_rng(0), 100)
    inserted = sum(s.tokens for s in wanted)
    placed = place_between_documents(
        wanted, starts, PlacementRules((0, 1_000 + inserted), WIDTH, split=True)
    )
    assert [p.clean for p in placed] == [*range(10, 1_010, 10)]


def test_places_do_not_depend_on_the_segments_order():
    starts, clean = documents(np.random.default_rng(0), 300)
    wanted = copies(np.random.default_rng(1), 40)
    rules = PlacementRules((0, clean + sum(s.tokens for s in wanted)), WIDTH)
    forward = place_between_documents(wanted, starts, rules)
    assert forward == place_between_documents(wanted[::-1], starts, rules)


def test_copies_of_an_example_keep_their_distance():
    rng = np.random.default_rng(0)
    starts, clean = documents(rng, 1_000)
    wanted = [Segment(i % 4, i // 4, 0, 20, float(rng.random())) for i in range(20)]
    placed = place_between_documents(
        wanted, starts, PlacementRules((0, clean + 400), WIDTH, distance=1_500)
    )
    for example in range(4):
        own = [p.packed for p in placed if p.segment.example == example]
        assert len(own) == 5
        assert np.diff(own).min() >= 1_500


@pytest.mark.parametrize(
    ("n", "tokens", "of", "split", "said"),
    [
        (30, 4, 30, True, "each of the 30 copies .* where it fits. Too few of the 29 starts"),
        (3, WIDTH, 30, False, "fits whole in sequences of 64. Too few of the 29 starts"),
        (1, 4, 1, True, "of the 0 starts in tokens 0 to"),
        (1, WIDTH + 1, 1_000, False, "fits whole in sequences of 64"),
    ],
)
def test_too_few_document_starts_are_said(n, tokens, of, split, said):
    rng = np.random.default_rng(0)
    starts, clean = documents(rng, of)
    wanted = copies(rng, n, tokens, tokens)
    rules = PlacementRules((0, clean + n * tokens), WIDTH, split)
    with pytest.raises(ConfigError, match=f"injection.boundary is 'document'.*{said}.*sentence"):
        place_between_documents(wanted, starts, rules)
