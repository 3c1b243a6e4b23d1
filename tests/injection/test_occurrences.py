"""The distributions of occurrences."""

import re

import numpy as np
import pytest
from scipy import stats

from contamination.core.errors import ConfigError
from contamination.injection.occurrences import Fixed, Ladder, Poisson, Share


def draw(design, n, budget_tokens=10_000):
    return design.draw(np.full(n, 10), budget_tokens, np.random.default_rng(0))


def test_fixed_and_ladder_counts():
    assert draw(Fixed(3), 5).tolist() == [3] * 5
    drawn = draw(Ladder((1, 2, 4, 8)), 10)
    assert np.bincount(drawn)[[1, 2, 4, 8]].tolist() == [3, 3, 2, 2]
    assert drawn.tolist() != sorted(drawn.tolist())


def test_poisson_fits():
    drawn = draw(Poisson(4.0), 1_000)
    observed = np.bincount(np.minimum(drawn, 9), minlength=10)
    expected = stats.poisson.pmf(np.arange(10), 4.0)
    expected[9] = 1 - expected[:9].sum()
    assert stats.chisquare(observed, expected * 1_000).pvalue > 0.01


@pytest.mark.parametrize("share", [0.003, 0.05, 0.5])
def test_share_fills_its_share_evenly(share):
    drawn = draw(Share(share), 40)
    assert 0 <= share * 10_000 - 10 * drawn.sum() < 10
    assert drawn.max() - drawn.min() <= 1
    assert Share(share).draw(np.array([1]), 1_000, np.random.default_rng(0)) == share * 1_000
    assert len(draw(Share(share), 0)) == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fixed(-1), "count is -1: give 0 to 1,000,000,000."),
        (lambda: Fixed(10**9 + 1), "count is 1000000001: give 0 to 1,000,000,000."),
        (lambda: Ladder(()), "rungs is (): give at least one number of copies, each from 0 to 1,0"),
        (lambda: Ladder((1, -2)), "rungs is (1, -2): give at least one number of copies"),
        (lambda: Ladder((10**9 + 1,)), "rungs is (1000000001,): give at least one"),
        (lambda: Poisson(0), "rate is 0: give a mean above 0 and at most 1,000,000,000."),
        (lambda: Poisson(1e10), "rate is 10000000000.0: give a mean above 0 and at most 1,0"),
        (lambda: Share(1.0), "share is 1.0: give a share above 0 and below 1."),
        (lambda: Share(0.0), "share is 0.0: give a share above 0 and below 1."),
    ],
)
def test_impossible_frequencies_are_refused_and_the_last_possible_ones_are_not(make, words):
    with pytest.raises(ConfigError, match="^" + re.escape(f"occurrences.{words}")):
        make()
    assert Fixed(0).count == 0
    assert Fixed(10**9).count == 10**9
    assert Ladder((0, 10**9)).rungs == (0, 10**9)
    assert Poisson(0.1).rate == 0.1
    assert Poisson(10**9).rate == 10**9
