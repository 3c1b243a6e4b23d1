"""Each set test's equation against a naive loop, and its p-values without contamination."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy.stats import kstest, rankdata, t, ttest_1samp, ttest_ind

from contamination.audits.set_tests.context_share import context_share_tail
from contamination.audits.set_tests.dataset_inference import _t_p_value, dataset_inference_p_value
from contamination.audits.set_tests.dyepack import dyepack_tail, most_frequent_answer
from contamination.audits.set_tests.order_test import (
    exact_order_tail,
    order_t_p_value,
    order_versions,
)
from contamination.audits.set_tests.proportion import (
    scaled_adjusted_p_values,
    share_not_trained_on,
)
from contamination.audits.set_tests.version_rank import (
    ScoredVersions,
    permuted_p_value,
    rank_tail,
)
from contamination.core.errors import DataError
from contamination.core.statistics.clopper_pearson import clopper_pearson
from contamination.core.statistics.significance import conformal_p_values

UNIFORM = 0.01
"""The least p of a Kolmogorov-Smirnov test against the uniform distribution."""


def versions(rng, items=12, number=4, shift=0.0, noise=1.0):
    """Items of very different difficulty, whose first version was published."""
    scores = rng.normal(0, 10, (items, 1)) + rng.normal(0, noise, (items, number))
    scores[:, 0] += shift
    item = np.repeat(np.arange(items), number)
    return ScoredVersions(scores.ravel(), item, np.arange(items * number) % number == 0)


# versions


@pytest.mark.parametrize("ties", [False, True])
def test_rank_p_value_is_the_share_of_all_draws(ties):
    rng = np.random.default_rng(1)
    drawn = versions(rng, items=5, number=3)
    scores = np.round(drawn.scores) if ties else drawn.scores
    drawn = ScoredVersions(scores, drawn.item, drawn.is_published)
    ranks = np.array([rankdata(row) for row in scores.reshape(5, 3)])
    sums = [sum(ranks[i, v] for i, v in enumerate(draw)) for draw in product(range(3), repeat=5)]
    expected = np.mean([total >= ranks[:, 0].sum() - 1e-9 for total in sums])
    assert rank_tail(drawn).p_value == pytest.approx(expected, abs=1e-12)


def test_items_may_have_different_numbers_of_versions():
    drawn = ScoredVersions(
        np.array([1.0, 2.0, 5.0, 4.0, 3.0]), np.array([0, 0, 1, 1, 1]),
        np.array([False, True, False, True, False]),
    )  # fmt: skip
    sums = [a + b for a in (1, 2) for b in (1, 2, 3)]
    assert rank_tail(drawn).p_value == pytest.approx(np.mean([total >= 2 + 2 for total in sums]))


def test_one_canary_among_unused_ones_has_rank_over_number():
    """Zhang et al. (2024): p = rank / (n + 1), where the best of n + 1 has rank 1."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        scores = rng.normal(size=100)
        canary = ScoredVersions(scores, np.zeros(100, np.intp), np.arange(100) == 0)
        rank = 1 + int((scores > scores[0]).sum())
        assert rank_tail(canary).p_value == pytest.approx(rank / 100)


def test_order_of_texts_does_not_matter():
    rng = np.random.default_rng(3)
    drawn = versions(rng, shift=1.0)
    order = rng.permutation(len(drawn.scores))
    shuffled = ScoredVersions(drawn.scores[order], drawn.item[order], drawn.is_published[order])
    assert rank_tail(shuffled).p_value == pytest.approx(rank_tail(drawn).p_value)


def test_rank_p_values_are_uniform_over_draws_of_the_published_version():
    rng = np.random.default_rng(4)
    drawn = versions(rng, items=30, number=5)
    p_values = [rank_tail(drawn.redrawn(rng)).p_value for _ in range(400)]
    assert kstest(p_values, "uniform").pvalue > UNIFORM


def test_randomised_p_values_are_uniform_however_discrete_the_statistic_is():
    rng = np.random.default_rng(14)
    drawn = versions(rng, items=3, number=3)
    tails = np.array([rank_tail(drawn.redrawn(rng)) for _ in range(1000)])
    assert kstest(tails[:, 0], "uniform").pvalue < 1e-6
    randomised = tails[:, 1] + rng.random(1000) * (tails[:, 0] - tails[:, 1])
    assert kstest(randomised, "uniform").pvalue > UNIFORM


def test_redrawing_publishes_each_version_as_often():
    rng = np.random.default_rng(5)
    drawn = versions(rng, items=3, number=4)
    times = sum(drawn.redrawn(rng).is_published.astype(int) for _ in range(2000))
    assert np.abs(times - 500).max() < 100  # five standard errors


def test_a_shift_is_found_by_ranks_and_by_scores():
    rng = np.random.default_rng(6)
    shifted = versions(rng, items=40, shift=1.0)
    assert rank_tail(shifted).p_value < 1e-3
    assert permuted_p_value(shifted, 0) < 1e-3
    some = shifted.of_items(np.arange(3, 9))
    assert len(some.scores) == 24
    assert some.is_published.sum() == 6


@pytest.mark.parametrize("published", [[True, True], [False, False], [True]])
def test_items_without_one_published_version_among_others_are_refused(published):
    with pytest.raises(DataError, match=r"item 0 has \d published of \d versions"):
        ScoredVersions(
            np.arange(len(published), dtype=float), np.zeros(len(published), np.intp),
            np.array(published),
        )  # fmt: skip


# DyePack


@pytest.mark.parametrize(
    ("backdoors", "options", "activated", "printed"),
    [(8, 10, 7, 7.3e-7), (8, 7, 8, 1.73e-7), (6, 10, 4, 0.00127)],
)
def test_dyepack_prints_the_papers_figures(backdoors, options, activated, printed):
    p_value = dyepack_tail(activated, [options] * backdoors).p_value
    assert p_value == pytest.approx(printed, rel=0.005)
    by_loop = sum(
        comb(backdoors, k) * (1 / options) ** k * (1 - 1 / options) ** (backdoors - k)
        for k in range(activated, backdoors + 1)
    )
    assert p_value == pytest.approx(by_loop, rel=1e-12)


def test_backdoors_may_have_different_numbers_of_options():
    draws = [*product(range(2), range(3), range(5))]
    for activated in range(4):
        expected = np.mean([sum(d == 0 for d in draw) >= activated for draw in draws])
        assert dyepack_tail(activated, [2, 3, 5]).p_value == pytest.approx(expected)


def test_the_most_frequent_answer_is_by_majority_of_probes():
    scores = np.array([[0, 1, 0], [2, 3, 0], [9, 0, 0], [0, 0, 8]], float)
    assert most_frequent_answer(scores) == 1
    assert most_frequent_answer(scores[2:]) == 0  # a tie: the first


# order


def shards(rng, number=20, orders=10, shift=0.0):
    level = rng.normal(0, 50, number)
    published = level + shift + rng.normal(size=number)
    return published, level[:, None] + rng.normal(size=(number, orders))


def test_order_t_is_students_with_ddof_1():
    rng = np.random.default_rng(7)
    published, random = shards(rng, number=6)
    differences = [p - sum(r) / len(r) for p, r in zip(published, random, strict=True)]
    mean = sum(differences) / 6
    spread = np.sqrt(sum((d - mean) ** 2 for d in differences) / 5)
    test = ttest_1samp(differences, 0.0, alternative="greater")
    assert test.statistic == pytest.approx(mean / (spread / np.sqrt(6)))
    assert order_t_p_value(published, random) == pytest.approx(test.pvalue, rel=1e-9)


def test_a_denominator_of_r_would_reject_too_often():
    """What the public script does: with 4 shards it rejects clearly more than 5%."""
    rng = np.random.default_rng(8)
    rejected = []
    for _ in range(4000):
        published, random = shards(rng, number=4, orders=20)
        differences = published - random.mean(axis=1)
        wrong = differences.mean() / (differences.std(ddof=0) / 2)
        right = order_t_p_value(published, random)
        rejected.append((right <= 0.05, t.sf(wrong, 3) <= 0.05))
    right, wrong = np.mean(rejected, axis=0)
    assert 0.04 < right < 0.06
    assert wrong > 0.065


def test_order_p_values_are_uniform_over_draws_of_the_published_order():
    rng = np.random.default_rng(9)
    published, random = shards(rng)
    orders = np.column_stack([published, random])
    found = []
    for _ in range(400):
        shuffled = rng.permuted(orders, axis=1)
        sides = shuffled[:, 0], shuffled[:, 1:]
        found.append((order_t_p_value(*sides), exact_order_tail(*sides).p_value))
    for p_values in np.array(found).T:
        assert kstest(p_values, "uniform").pvalue > UNIFORM


def test_skewed_shards_break_the_t_test_and_not_the_exact_one():
    rng = np.random.default_rng(16)
    orders = -(rng.exponential(size=(1_000, 5, 21)) ** 2)
    t_rejects = [order_t_p_value(o[:, 0], o[:, 1:]) <= 0.05 for o in orders]
    exact_rejects = [exact_order_tail(o[:, 0], o[:, 1:]).p_value <= 0.05 for o in orders]
    assert np.mean(t_rejects) > 0.2
    assert np.mean(exact_rejects) < 0.07


def test_a_known_order_is_found():
    published, random = shards(np.random.default_rng(10), shift=2.0)
    assert order_t_p_value(published, random) < 1e-4
    assert exact_order_tail(published, random).p_value < 1e-4
    assert order_versions(published, random).is_published.sum() == 20


@pytest.mark.parametrize("number", [1, 3])
def test_shards_without_a_spread_are_refused(number):
    with pytest.raises(DataError, match=rf"the order test has {number} shards"):
        order_t_p_value(np.ones(number), np.zeros((number, 4)))


# dataset inference, proportion, context, intervals


def test_dataset_inference_is_uniform_without_and_finds_with():
    rng = np.random.default_rng(11)
    scores, is_suspect = rng.normal(size=(4, 120)), np.arange(120) < 60
    p_values = [
        dataset_inference_p_value(scores, rng.permutation(is_suspect), seed, splits=1)
        for seed in range(300)
    ]
    assert kstest(p_values, "uniform").pvalue > UNIFORM
    shifted = scores + 1.5 * is_suspect * np.array([[1], [0], [1], [0]])
    assert dataset_inference_p_value(shifted, is_suspect, 0) < 1e-3
    assert dataset_inference_p_value(shifted, is_suspect, 0, splits=1) < 1e-2


def test_dataset_inference_reads_ranks_alone():
    rng = np.random.default_rng(12)
    scores, is_suspect = rng.normal(size=(3, 40)), np.arange(40) < 20
    first = dataset_inference_p_value(scores, is_suspect, 5)
    assert dataset_inference_p_value(np.exp(scores), is_suspect, 5) == pytest.approx(first)


def test_dataset_inference_is_students_t_and_1_without_a_spread():
    rng = np.random.default_rng(15)
    suspects, others = rng.normal(size=12), rng.normal(size=9)
    expected = ttest_ind(suspects, others, alternative="greater").pvalue
    assert _t_p_value(suspects, others) == pytest.approx(expected)
    is_suspect = np.arange(20) < 10
    assert dataset_inference_p_value(np.ones((2, 20)), is_suspect, 0) == 1
    assert dataset_inference_p_value(1.0 * is_suspect[None], is_suspect, 0, splits=1) <= 1


def test_share_not_trained_on_is_storeys():
    p_values = np.array([0.01, 0.02, 0.3, 0.5, 0.6, 0.9])
    assert share_not_trained_on(p_values) == pytest.approx((1 + 2) / (6 * 0.5))
    p_values = np.array([0.01] * 9 + [0.7])
    expected = (1 + 1) / (10 * 0.5)
    assert share_not_trained_on(p_values) == pytest.approx(expected)
    scaled = sorted(expected * p_values)
    by_loop = [min(s * 10 / k for k, s in enumerate(scaled, 1) if k > i) for i in range(10)]
    by_loop[-1] = 1.0  # above λ, so not listed at any level
    assert np.sort(scaled_adjusted_p_values(p_values)) == pytest.approx(by_loop)


def test_no_item_is_listed_that_counts_as_not_trained_on():
    p_values = np.append(np.full(99, 0.01), 0.9)  # so that π₀ is 0.04
    listed = scaled_adjusted_p_values(p_values) <= 0.1
    assert listed.tolist() == [True] * 99 + [False]


def test_scaled_items_have_at_most_the_level_of_false_ones():
    rng = np.random.default_rng(13)
    false_shares = []
    for _ in range(300):
        is_trained = np.arange(100) < 60
        scores = rng.normal(2.0 * is_trained)
        p_values = conformal_p_values(scores, rng.normal(size=300))
        listed = scaled_adjusted_p_values(p_values) <= 0.1
        false_shares.append((listed & ~is_trained).sum() / max(1, listed.sum()))
    assert 0.05 < np.mean(false_shares) < 0.11


def test_context_share_is_a_binomial_tail():
    expected = sum(comb(9, k) for k in range(7, 10)) / 2**9
    assert context_share_tail(7, 9).p_value == pytest.approx(expected)
    assert context_share_tail(0, 9).p_value == 1
    assert context_share_tail(7, 9).above == context_share_tail(8, 9).p_value


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (3, 200), (11, 22)])
def test_clopper_pearson_ends_are_where_two_tests_stop(hits, trials):
    def tail(share, counts):
        return sum(comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in counts)

    low, high = clopper_pearson(hits, trials)
    if hits:
        assert tail(low, range(hits, trials + 1)) == pytest.approx(0.025)
    else:
        assert low == 0
    if hits < trials:
        assert tail(high, range(hits + 1)) == pytest.approx(0.025)
    else:
        assert high == 1
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="4 hits of 3"):
        clopper_pearson(4, 3)
