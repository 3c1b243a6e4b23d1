"""The vectorised bootstrap against a plain loop; `test_coverage` has the intervals' coverage."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from scipy.stats import beta

from contamination.core.statistics import bootstrap, metrics
from contamination.core.statistics.metrics import AUROC


def naive(members, nonmembers, drawn, metric):
    """The same draws, one at a time, on scores repeated as often as they were drawn."""
    return np.array(
        [
            metric(np.repeat(members, w.astype(int)), np.repeat(nonmembers, v.astype(int)))
            for w, v in zip(drawn.members, drawn.nonmembers, strict=True)
        ]
    )


@cache
def weights(n, rate):
    """w_k of the thresholds k = 1 to n."""
    narrow, wide = 4 * (n + 1) - 1, 2 / 3 * (n + 1) - 1
    edges = [(k + 0.5) / (n + 1) for k in range(1, n)]
    below = 2 * beta.cdf(edges, rate * narrow, (1 - rate) * narrow)
    return np.diff([0, *below - beta.cdf(edges, rate * wide, (1 - rate) * wide), 1])


def moved(members, nonmembers, drawn, metric):
    """`naive` draws whose mean is what the examples themselves have."""
    draws = naive(members, nonmembers, drawn, metric)
    return draws - draws.mean() + metric(members, nonmembers)


def smoothed_tpr(members, nonmembers, fpr):
    """The mean of the share of members above each non-member, the highest first."""
    shares = [sum(m > x for m in members) / len(members) for x in sorted(nonmembers)[::-1]]
    return sum(w * share for w, share in zip(weights(len(nonmembers), fpr), shares, strict=True))


def smoothed_fpr(members, nonmembers, tpr):
    """The mean of the share of non-members not below each member, the lowest first."""
    shares = [sum(n >= x for n in nonmembers) / len(nonmembers) for x in sorted(members)]
    return sum(w * share for w, share in zip(weights(len(members), 1 - tpr), shares, strict=True))


@pytest.mark.parametrize("decimals", [8, 1, 0])
@pytest.mark.parametrize(("n_members", "n_nonmembers"), [(1, 1), (3, 40), (37, 21)])
def test_equals_a_naive_loop_exactly(n_members, n_nonmembers, decimals):
    rng = np.random.default_rng(n_members + decimals)
    members = rng.normal(0.5, 1, n_members).round(decimals)
    nonmembers = rng.normal(0, 1, n_nonmembers).round(decimals)
    drawn = bootstrap.draw_resample(n_members, n_nonmembers, n_draws=60, seed=1)
    ranked = bootstrap.rank_scores(members, nonmembers, drawn)
    expected = naive(members, nonmembers, drawn, AUROC.value)
    np.testing.assert_array_equal(AUROC.draws(ranked), expected)
    for rate in (0.01, 0.05, 0.5, 0.95):
        expected = moved(members, nonmembers, drawn, partial(smoothed_tpr, fpr=rate))
        np.testing.assert_allclose(metrics.tpr_draws(ranked, rate), expected, atol=1e-9)
        expected = moved(members, nonmembers, drawn, partial(smoothed_fpr, tpr=rate))
        np.testing.assert_allclose(metrics.fpr_draws(ranked, rate), expected, atol=1e-9)
    assert (metrics.tpr_draws(ranked, 1.0) == 1).all()
    assert (metrics.fpr_draws(ranked, 0.0) == 0).all()


def test_steps_are_the_rates_of_the_thresholds_that_ties_leave_possible():
    """Binomial(100, 0.05) is 1 to 10 in 95%: the 2nd to the 11th highest may be the threshold."""
    rng = np.random.default_rng(6)
    members, nonmembers = rng.normal(1, 1, 60), rng.normal(size=100)
    drawn = bootstrap.draw_resample(60, 100, 5, 0)
    for decimals, tied in ((3, False), (1, False), (0, True)):
        pair = members.round(decimals), nonmembers.round(decimals)
        ranked = bootstrap.rank_scores(*pair, drawn)
        second, eleventh = sorted(pair[1])[-2], sorted(pair[1])[-11]
        expected = tuple(sum(m > x for m in pair[0]) / 60 for x in (second, eleventh))
        assert metrics.tpr_range_of_ties(ranked, 0.05) == (expected if tied else None)


@pytest.mark.parametrize(("share", "tied"), [(0.5, True), (0.1, True), (0.04, False)])
def test_one_score_that_many_members_share_is_a_step(share, tied):
    """An exact match: the rest of the scores are all different."""
    rng = np.random.default_rng(8)
    members, nonmembers = rng.normal(1, 1, 100), rng.normal(size=100)
    third = np.sort(nonmembers)[-3]
    members[: int(share * 100)] = third
    ranked = bootstrap.rank_scores(members, nonmembers, bootstrap.draw_resample(100, 100, 5, 0))
    ends = np.sort(nonmembers)[[-2, -11]]
    expected = tuple((members[:, None] > ends).mean(axis=0).tolist())
    assert metrics.tpr_range_of_ties(ranked, 0.05) == (expected if tied else None)


def test_half_as_many_scores_as_ranks_are_steps():
    """The 2nd to the 11th highest are five pairs."""
    nonmembers = np.r_[np.arange(89.0), 200, np.repeat(np.arange(100.0, 105), 2)]
    members = np.random.default_rng(9).normal(102, 3, 60)
    ranked = bootstrap.rank_scores(members, nonmembers, bootstrap.draw_resample(60, 100, 5, 0))
    expected = (sum(members > 104) / 60, sum(members > 100) / 60)
    assert metrics.tpr_range_of_ties(ranked, 0.05) == expected


def test_steps_from_below_are_those_of_the_members_that_tie():
    rng = np.random.default_rng(7)
    members, nonmembers = rng.normal(1, 1, 100).round(), rng.normal(size=60).round()
    ranked = bootstrap.rank_scores(members, nonmembers, bootstrap.draw_resample(100, 60, 5, 0))
    second, eleventh = sorted(members)[1], sorted(members)[10]
    expected = [sum(n >= x for n in nonmembers) / 60 for x in (eleventh, second)]
    assert metrics.fpr_range_of_ties(ranked, 0.95) == pytest.approx(expected)


def test_auroc_equals_the_product_with_the_comparison_matrix():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(size=30).round(1), rng.normal(size=50).round(1)
    drawn = bootstrap.draw_resample(30, 50, n_draws=100, seed=2)
    wins = (members[:, None] > nonmembers) + 0.5 * (members[:, None] == nonmembers)
    product = ((drawn.members @ wins) * drawn.nonmembers).sum(axis=1) / (30 * 50)
    ranked = bootstrap.rank_scores(members, nonmembers, drawn)
    np.testing.assert_array_equal(AUROC.draws(ranked), product)


def test_each_side_is_resampled_to_its_own_size():
    drawn = bootstrap.draw_resample(12, 30, n_draws=500, seed=3)
    assert (drawn.members.sum(axis=1) == 12).all()
    assert (drawn.nonmembers.sum(axis=1) == 30).all()
    assert drawn.members.mean(axis=0) == pytest.approx(np.ones(12), abs=0.2)
    assert drawn.members.var() == pytest.approx(1 - 1 / 12, abs=0.05)  # multinomial


def test_draws_are_a_function_of_the_seed_on_each_side():
    one, same, other = (bootstrap.draw_resample(9, 9, 5, seed) for seed in (1, 1, 2))
    for side in ("members", "nonmembers"):
        np.testing.assert_array_equal(getattr(one, side), getattr(same, side))
        assert (getattr(one, side) != getattr(other, side)).any()
    assert (one.members != one.nonmembers).any()
    kept = bootstrap.rank_scores(np.arange(9.0), np.arange(9.0), one)
    assert {each.dtype.name for each in (one.members, kept.hits, kept.alarms)} == {"float32"}


def test_an_interval_is_the_percentiles():
    (low,), (high,) = bootstrap.percentile_intervals(np.linspace(0, 1, 1001)[None], 0.9)
    assert (low, high) == pytest.approx((0.05, 0.95))


def test_named_draws_are_resamples_with_replacement():
    """To the set's own size; counts as those of a multinomial, by an independent simulation."""
    names = [f"e{i}" for i in range(12)]
    counts = bootstrap.draw_named_counts(names, 3000, seed=5)
    assert counts.shape == (3000, 12)
    assert (counts.sum(axis=1) == 12).all()
    usual = np.random.default_rng(0).multinomial(12, np.full(12, 1 / 12), 3000)
    for number in range(4):
        share, expected = (counts == number).mean(), (usual == number).mean()
        assert share == pytest.approx(expected, abs=0.01)
    covariance = np.cov(counts.T)
    assert np.diag(covariance) == pytest.approx(np.full(12, 11 / 12), abs=0.12)
    assert covariance[0, 1:].mean() == pytest.approx(-1 / 12, abs=0.03)


def test_sets_that_share_names_are_drawn_together():
    one, other = [f"e{i}" for i in range(40)], [f"e{i}" for i in range(20, 70)]
    first, second = (bootstrap.draw_named_counts(names, 500, seed=1) for names in (one, other))
    shared = [np.corrcoef(first[:, 20 + i], second[:, i])[0, 1] for i in range(20)]
    assert min(shared) > 0.85
    apart = [np.corrcoef(first[:, i], second[:, 20 + i])[0, 1] for i in range(20)]
    assert abs(np.mean(apart)) < 0.05


def test_named_draws_depend_on_the_names_and_the_seed_alone():
    names = ["b", "a", "c"]
    counts = bootstrap.draw_named_counts(names, 300, seed=1)
    np.testing.assert_equal(counts[:, ::-1], bootstrap.draw_named_counts(names[::-1], 300, 1))
    np.testing.assert_equal(counts[:20], bootstrap.draw_named_counts(names, 20, seed=1))
    assert (counts != bootstrap.draw_named_counts(names, 300, seed=2)).any()
    assert (bootstrap.draw_named_counts(["a"], 10, seed=0) == 1).all()
