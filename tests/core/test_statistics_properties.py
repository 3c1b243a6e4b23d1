"""What holds of every statistic of `core.statistics`, whatever the scores are."""

from dataclasses import replace
from itertools import combinations, pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contamination.core.statistics.bootstrap import (
    DRAWS_AT_ONCE,
    Resample,
    draw_counts,
    draw_named_counts,
    draw_resample,
    percentile_intervals,
    rank_scores,
)
from contamination.core.statistics.clopper_pearson import clopper_pearson
from contamination.core.statistics.estimates import (
    Estimate,
    confidence_interval,
    confidence_intervals,
    estimate_metrics,
    joint_intervals,
    jointly_valid_confidence,
    mean_estimate,
    mean_trials,
    pairwise_standardised_differences,
)
from contamination.core.statistics.metrics import AUROC, fpr_at_tpr, tpr_at_fpr
from contamination.core.statistics.samples import (
    LabelledSample,
    UnitSample,
    clusters_by_side,
    draw_cluster_counts,
    estimate_difference,
    estimate_mean,
    number_clusters,
    widening_factor,
)
from contamination.core.statistics.significance import (
    clustered_p_values,
    conformal_p_values,
    holm_correction,
    relabelled_differences,
    relabelling_p_value,
)
from tests.properties import RISING, SEEDS, flags, orders, scores

METRICS = [AUROC, tpr_at_fpr(0.25), tpr_at_fpr(0.5), fpr_at_tpr(0.75), fpr_at_tpr(0.5)]
METRICS = [replace(metric, least_members=1, least_nonmembers=1) for metric in METRICS]
BY_NAME = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
P_VALUES = st.lists(st.sampled_from([0.001, 0.01, 0.02, 0.04, 0.2, 0.5, 1.0]), min_size=1,
                    max_size=7).map(np.array)  # fmt: skip
CLUSTERS = st.lists(st.integers(0, 3), min_size=2, max_size=9).map(
    lambda numbers: np.unique(numbers, return_inverse=True)[1]
)


def measured(members, nonmembers, metric, resample):
    """All that an estimate says."""
    found = estimate_metrics(members, nonmembers, resample, [metric])[metric.name]
    return found, confidence_interval(found, 0.9)


def assert_same(one, other):
    (estimate, interval), (other_estimate, other_interval) = one, other
    assert estimate.value == pytest.approx(other_estimate.value, abs=1e-12)
    np.testing.assert_allclose(estimate.draws, other_estimate.draws, rtol=0, atol=1e-6)
    assert (estimate.trials, estimate.needs) == (other_estimate.trials, other_estimate.needs)
    assert (estimate.steps is None) == (other_estimate.steps is None)
    if estimate.steps:
        assert estimate.steps == pytest.approx(other_estimate.steps)
    assert interval == pytest.approx(other_interval, abs=1e-6)


@BY_NAME
@given(st.data(), scores(), scores(), SEEDS)
def test_a_metric_counts_examples_whatever_their_order(metric, data, members, nonmembers, seed):
    drawn = draw_resample(len(members), len(nonmembers), 20, seed)
    own, other = data.draw(orders(len(members))), data.draw(orders(len(nonmembers)))
    moved = Resample(drawn.members[:, own], drawn.nonmembers[:, other])
    assert_same(
        measured(members, nonmembers, metric, drawn),
        measured(members[own], nonmembers[other], metric, moved),
    )


@BY_NAME
@pytest.mark.parametrize("name", RISING)
@given(scores(), scores(), SEEDS)
def test_a_metric_depends_on_ranks_alone(metric, name, members, nonmembers, seed):
    drawn = draw_resample(len(members), len(nonmembers), 10, seed)
    rescaled = RISING[name](members), RISING[name](nonmembers)
    assert_same(measured(members, nonmembers, metric, drawn), measured(*rescaled, metric, drawn))


@BY_NAME
@given(scores(), scores())
def test_a_metric_is_the_same_of_each_example_twice(metric, members, nonmembers):
    twice = metric.value(np.repeat(members, 2), np.repeat(nonmembers, 2))
    assert twice == pytest.approx(metric.value(members, nonmembers))


@BY_NAME
@given(scores(), scores())
def test_a_resample_of_each_example_once_is_the_metric_itself(metric, members, nonmembers):
    """But for rates, whose draws are means over thresholds: these stay the same under shifts."""
    ones = Resample(*(np.ones((1, len(side)), np.float32) for side in (members, nonmembers)))
    (draw,) = metric.draws(rank_scores(members, nonmembers, ones))
    if metric is METRICS[0]:
        assert draw == pytest.approx(metric.value(members, nonmembers), abs=1e-12)
    drawn = draw_resample(len(members), len(nonmembers), 5, 0)
    draws = metric.draws(rank_scores(members, nonmembers, drawn))
    if metric is not METRICS[0]:
        assert draws.mean() == pytest.approx(draw)  # draws have the mean of the examples


@given(scores(), scores(), SEEDS)
def test_labels_exchanged_reflect_the_auroc(members, nonmembers, seed):
    drawn = draw_resample(len(members), len(nonmembers), 20, seed)
    mirrored = Resample(drawn.nonmembers, drawn.members)
    (one, (low, high)), (other, (other_low, other_high)) = (
        measured(members, nonmembers, AUROC, drawn),
        measured(nonmembers, members, AUROC, mirrored),
    )
    assert one.value == pytest.approx(1 - other.value)
    np.testing.assert_allclose(one.draws, 1 - other.draws, atol=1e-12)
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low))


@given(scores(2), scores(2), st.sampled_from([0.1, 0.25, 0.5, 0.75]))
def test_a_false_positive_rate_is_a_true_positive_rate_of_the_exchanged_sides(
    members, nonmembers, rate
):
    """By counting: no threshold with a TPR of at least `rate` has a lower FPR, and the reverse."""
    thresholds = [*members, *nonmembers, np.inf]
    pairs = [((members >= t).mean(), (nonmembers >= t).mean()) for t in thresholds]
    lowest = min(fpr for tpr, fpr in pairs if tpr >= rate)
    assert fpr_at_tpr(rate).value(members, nonmembers) == lowest
    highest = max(tpr for tpr, fpr in pairs if fpr <= rate)
    assert tpr_at_fpr(rate).value(members, nonmembers) == highest


@BY_NAME
@given(scores(2), scores(2), SEEDS)
def test_an_interval_includes_its_value_and_grows_with_confidence(
    metric, members, nonmembers, seed
):
    drawn = draw_resample(len(members), len(nonmembers), 40, seed)
    found = estimate_metrics(members, nonmembers, drawn, [metric])[metric.name]
    ends = [confidence_interval(found, level) for level in (0.5, 0.8, 0.95)]
    for low, high in ends:
        assert 0 <= low <= found.value + 1e-9
        assert found.value - 1e-9 <= high <= 1
    for (low, high), (lower, higher) in pairwise(ends):
        assert lower <= low + 1e-9
        assert high <= higher + 1e-9


@given(st.lists(st.tuples(scores(3, 6), scores(3, 6)), min_size=2, max_size=4), SEEDS, st.data())
def test_intervals_and_differences_of_several_do_not_depend_on_their_order(sides, seed, data):
    found = []
    for number, (members, nonmembers) in enumerate(sides):
        drawn = draw_resample(len(members), len(nonmembers), 30, seed + number)
        found.append(estimate_metrics(members, nonmembers, drawn, [AUROC])["auroc"])
    order = data.draw(orders(len(found)))
    moved = [found[i] for i in order]
    for intervals in (confidence_intervals, joint_intervals):
        np.testing.assert_allclose(
            np.array(intervals(found, 0.9))[:, order], intervals(moved, 0.9), atol=1e-9
        )
    evidence = pairwise_standardised_differences(found, 0.9)
    np.testing.assert_allclose(evidence, -evidence.T, atol=1e-9)
    np.testing.assert_allclose(
        evidence[np.ix_(order, order)], pairwise_standardised_differences(moved, 0.9), atol=1e-6
    )
    joint = jointly_valid_confidence(found, 0.9)
    assert 0.9 <= joint <= 1 - 0.1 / len(found) + 1e-12
    assert joint == pytest.approx(jointly_valid_confidence(moved, 0.9))


@given(st.integers(1, 12), st.integers(1, 5), SEEDS)
def test_each_draw_has_as_many_examples_as_there_are(n, draws, seed):
    counts = draw_counts(n, draws, seed)
    assert counts.shape == (draws, n)
    assert (counts.sum(axis=1) == n).all()
    assert (counts >= 0).all()


@given(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6, unique=True),
       st.data(), SEEDS)  # fmt: skip
def test_named_draws_belong_to_names(names, data, seed):
    """Their order does not matter, nor how many draws there are."""
    counts = draw_named_counts(names, 12, seed)
    assert counts.shape == (12, len(names))
    assert (counts.sum(axis=1) == len(names)).all()
    order = data.draw(orders(len(names)))
    np.testing.assert_array_equal(
        draw_named_counts([names[i] for i in order], 12, seed), counts[:, order]
    )
    np.testing.assert_array_equal(draw_named_counts(names, DRAWS_AT_ONCE + 1, seed)[:12], counts)


@given(st.lists(scores(4, 4), min_size=1, max_size=3), st.sampled_from([0.5, 0.9]))
def test_percentiles_move_with_their_draws(rows, confidence):
    draws = np.array(rows)
    low, high = percentile_intervals(draws, confidence)
    moved_low, moved_high = percentile_intervals(-3 * draws + 1, confidence)
    np.testing.assert_allclose((moved_low, moved_high), (1 - 3 * high, 1 - 3 * low))
    assert (low >= draws.min(axis=1)).all()
    assert (high <= draws.max(axis=1)).all()


@given(scores(2), SEEDS, st.floats(-3, 3), st.floats(-5, 5))
def test_a_mean_and_a_difference_move_with_their_values(values, seed, factor, shift):
    drawn = draw_counts(len(values), 15, seed)
    one, other = estimate_mean(values, drawn), estimate_mean(factor * values + shift, drawn)
    assert other.value == pytest.approx(factor * one.value + shift)
    np.testing.assert_allclose(other.draws, factor * one.draws + shift, atol=1e-5)
    twice = estimate_mean(np.repeat(values, 2), np.repeat(drawn, 2, axis=1))
    np.testing.assert_allclose(twice.draws, one.draws, atol=1e-6)
    difference, reverse = estimate_difference(one, other), estimate_difference(other, one)
    assert difference.value == pytest.approx(-reverse.value)
    np.testing.assert_allclose(difference.draws, -reverse.draws)


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=8), st.data(), SEEDS)
def test_all_units_of_a_text_are_drawn_together(texts, data, seed):
    ids = np.array(texts)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    sample = UnitSample.draw(mask, ids, 10, seed)
    assert sample.rows.tolist() == np.flatnonzero(mask).tolist()
    assert sample.texts == len(set(ids[mask]))
    for name in set(ids[mask]):
        same = sample.drawn[:, ids[sample.rows] == name]
        assert (same == same[:, :1]).all()
    named = {name: f"text {place}" for place, name in enumerate(sorted(set(texts)))}
    renamed = UnitSample.draw(mask, np.array([named[name] for name in texts]), 10, seed)
    np.testing.assert_array_equal(renamed.drawn, sample.drawn)


NAMES = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(["", "a", "b"])), max_size=8)


@given(NAMES)
def test_clusters_are_numbered_by_their_first_example(named):
    numbers = number_clusters(named)
    if not any(cluster for _, cluster in named):
        assert numbers is None
        return
    for (i, one), (j, other) in combinations(enumerate(named), 2):
        assert (numbers[i] == numbers[j]) == (one == other and one[1] != "")
    _, first = np.unique(numbers, return_index=True)
    assert numbers[first].tolist() == [*range(len(first))]
    assert first.tolist() == sorted(first)
    renamed = number_clusters(
        [(benchmark, cluster and f"of {cluster}") for benchmark, cluster in named]
    )
    assert renamed.tolist() == numbers.tolist()


@given(CLUSTERS, SEEDS)
def test_a_draw_has_whole_clusters_and_a_part_of_the_last(cluster, seed):
    counts = draw_cluster_counts(cluster, 12, seed)
    assert (counts.sum(axis=1) == len(cluster)).all()
    for draw in counts:
        uneven = [np.ptp(draw[cluster == k]) for k in np.unique(cluster)]
        assert sorted(uneven)[-1] <= 1
        assert sum(spread > 0 for spread in uneven) <= 1


@given(CLUSTERS, st.data())
def test_the_sides_of_clusters_keep_who_is_together(cluster, data):
    member = data.draw(flags(len(cluster)))
    for side, own in zip((member, ~member), clusters_by_side(cluster, member), strict=True):
        assert set(own) == set(range(max(own) + 1))
        together = cluster[side][:, None] == cluster[side]
        np.testing.assert_array_equal(own[:, None] == own, together)


@given(st.integers(2, 30), st.integers(2, 30))
def test_few_clusters_widen_on_either_side_alike(members, nonmembers):
    assert widening_factor(members, nonmembers) == widening_factor(nonmembers, members) > 1
    assert widening_factor(members + 1, nonmembers + 1) < widening_factor(members, nonmembers)


@given(CLUSTERS, st.data(), SEEDS)
def test_an_estimate_of_clusters_keeps_its_value_and_widens_its_draws(cluster, data, seed):
    member = data.draw(flags(len(cluster)))
    values = data.draw(scores(len(cluster), len(cluster)))
    sample = LabelledSample.of(member, cluster, 25, seed)
    (found,) = sample.estimate(values[member], values[~member], [AUROC]).values()
    few = min(sample.cluster_counts) < 2
    assert (found.needs != "") == few == bool(np.isnan(found.value))
    if few:
        return
    assert found.value == AUROC.value(values[member], values[~member])
    plain = estimate_metrics(values[member], values[~member], sample.resample, [AUROC])["auroc"]
    assert found.draws.mean() == pytest.approx(plain.draws.mean())
    assert found.draws.std() == pytest.approx(
        widening_factor(*sample.cluster_counts) * plain.draws.std()
    )
    assert found.trials <= AUROC.trials(int(member.sum()), int((~member).sum()))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.data())
def test_the_trials_of_a_mean_do_not_depend_on_the_order(trials, data):
    order = data.draw(orders(len(trials)))
    found = mean_trials(trials)
    assert found == pytest.approx(mean_trials([trials[i] for i in order]))
    assert found <= sum(trials) + 1e-9
    assert (found == pytest.approx(sum(trials))) == (len(set(trials)) == 1)
    doubled = mean_trials(trials, weights=[2.0] * len(trials))
    assert doubled == pytest.approx(found)
    one = np.ones((len(trials), len(trials)))  # the same examples: the mean is no more certain
    same = mean_trials([trials[0]] * len(trials), overlap=one)
    assert same == pytest.approx(trials[0])


@given(st.lists(scores(3, 3), min_size=1, max_size=4), st.data())
def test_a_mean_over_benchmarks_does_not_depend_on_their_order(rows, data):
    estimates = [Estimate(n + 2, 3, row.mean(), row, trials=5.0 + n) for n, row in enumerate(rows)]
    order = data.draw(orders(len(rows)))
    one, other = mean_estimate(estimates), mean_estimate([estimates[i] for i in order])
    assert one.value == pytest.approx(other.value)
    np.testing.assert_allclose(one.draws, other.draws, atol=1e-12)
    assert one.trials == pytest.approx(other.trials)
    assert (one.n_members, one.smallest) == (other.n_members, other.smallest)


def naive_conformal(score, null):
    return (1 + sum(value >= score for value in null)) / (1 + len(null))


@pytest.mark.parametrize("name", RISING)
@given(st.data(), scores(), scores())
def test_a_conformal_p_value_counts_and_depends_on_ranks_alone(name, data, own, null):
    found = conformal_p_values(own, null)
    assert found.tolist() == pytest.approx([naive_conformal(score, null) for score in own])
    order = data.draw(orders(len(null)))
    rescaled = conformal_p_values(RISING[name](own), RISING[name](null[order]))
    np.testing.assert_allclose(found, rescaled)


@given(scores(2, 6))
def test_a_conformal_p_value_is_valid_for_each_of_exchangeable_texts(values):
    """Exactly: each of n + 1 texts is as likely the further one."""
    p_values = [
        conformal_p_values(values[[i]], np.delete(values, i))[0] for i in range(len(values))
    ]
    for level in np.unique(p_values):
        assert np.mean(np.array(p_values) <= level) <= level + 1e-12
    within = conformal_p_values(values, values, np.ones(len(values), bool))
    assert within.tolist() == pytest.approx(p_values)  # a text is no evidence against itself


@given(CLUSTERS, st.data())
def test_a_clustered_p_value_is_valid_for_each_of_exchangeable_clusters(cluster, data):
    """Exactly, for clusters that are exchangeable and a random text of the one in question."""
    values = data.draw(scores(len(cluster), len(cluster)))
    names = np.unique(cluster)
    assume(len(names) > 1)
    p_values, weights = [], []
    for name in names:
        own = cluster == name
        null = np.unique(cluster[~own], return_inverse=True)[1]
        strange = np.full(own.sum(), null.max() + 1)
        found = clustered_p_values(values[own], strange, values[~own], null)
        for score, p_value in zip(values[own], found, strict=True):
            shares = [np.mean(values[cluster == k] >= score) for k in names if k != name]
            assert p_value == pytest.approx((1 + sum(shares)) / (1 + len(shares)), abs=1e-8)
        inside = clustered_p_values(values[own], cluster[own], values, cluster)
        np.testing.assert_allclose(inside, found)  # its own cluster is no evidence
        p_values += found.tolist()
        weights += [1 / len(found) / len(names)] * len(found)
    for level in set(p_values):
        reached = sum(w for p, w in zip(p_values, weights, strict=True) if p <= level)
        assert reached <= level + 1e-8


@given(scores(1, 5), scores(1, 5), SEEDS)
def test_random_relabellings_are_relabellings(members, nonmembers, seed):
    """Each is one of all differences, and so often drawn as there are relabellings that give it."""
    values = np.concatenate([members, nonmembers])
    every = [
        np.mean(values[list(chosen)]) - np.mean(np.delete(values, chosen))
        for chosen in combinations(range(len(values)), len(members))
    ]
    drawn = relabelled_differences(members, nonmembers, 400, seed)
    exact = {round(value, 6): every.count(value) for value in every}
    assert {round(value, 6) for value in drawn} <= set(exact)
    observed = members.mean() - nonmembers.mean()
    share = np.mean(np.abs(every) >= abs(observed) - 1e-9)
    p_value = relabelling_p_value(observed, drawn)
    error = 4.5 * np.sqrt(share * (1 - share) / 400) + 1 / 401
    assert abs(p_value - share) <= error
    moved = relabelled_differences(2 * members + 3, 2 * nonmembers + 3, 400, seed)
    np.testing.assert_allclose(moved, 2 * drawn, atol=1e-9)


@given(P_VALUES, st.data())
def test_holms_correction_is_the_closed_test_of_bonferroni(p_values, data):
    """Adjusted: the largest of Bonferroni's p-values over all families that have the hypothesis."""
    found, numbers = holm_correction(p_values), range(len(p_values))
    families = [f for size in numbers for f in combinations(numbers, size + 1)]
    for own in numbers:
        closed = max(min(1, len(f) * p_values[[*f]].min()) for f in families if own in f)
        assert found[own] == pytest.approx(closed)
    order = data.draw(orders(len(p_values)))
    np.testing.assert_allclose(holm_correction(p_values[order]), found[order])


@pytest.mark.parametrize("trials", range(1, 9))
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_clopper_and_pearsons_interval_covers_every_proportion(trials, confidence):
    """By enumeration of all outcomes, at the ends of all intervals and between them."""
    ends = [clopper_pearson(hits, trials, confidence) for hits in range(trials + 1)]
    for low, high in zip(*(np.array(side) for side in zip(*ends, strict=True)), strict=True):
        assert 0 <= low < high <= 1
    grid = sorted({*np.linspace(0, 1, 101), *(end + way for both in ends for end in both
                   for way in (-1e-9, 0, 1e-9) if 0 <= end + way <= 1)})  # fmt: skip
    for truth in grid:
        chance = [
            comb(trials, hits) * truth**hits * (1 - truth) ** (trials - hits)
            for hits in range(trials + 1)
        ]
        covered = sum(
            p for p, (low, high) in zip(chance, ends, strict=True) if low <= truth <= high
        )
        assert covered >= confidence - 1e-6
    for hits, (low, high) in enumerate(ends):
        other_low, other_high = ends[trials - hits]  # hits and misses exchanged
        assert (low, high) == pytest.approx((1 - other_high, 1 - other_low))
        tail = (1 - confidence) / 2
        counts = np.arange(trials + 1)
        for end, reaching in ((low, counts >= hits), (high, counts <= hits)):
            if 0 < end < 1:
                chance = [comb(trials, k) * end**k * (1 - end) ** (trials - k) for k in counts]
                assert np.sum(np.array(chance)[reaching]) == pytest.approx(tail)


@pytest.mark.parametrize(
    "sides", [([1, 4, 6], [0, 2, 5]), ([1, 1, 2], [1, 2]), ([3, 5], [4, 9, 1])]
)
def test_draws_are_as_likely_as_all_resamples(sides):
    """The mean and the variance of an AUROC over all resamples, by enumeration."""
    members, nonmembers = (np.array(side, float) for side in sides)
    every = [
        AUROC.value(members[list(own)], nonmembers[list(other)])
        for own in product(range(len(members)), repeat=len(members))
        for other in product(range(len(nonmembers)), repeat=len(nonmembers))
    ]
    drawn = draw_resample(len(members), len(nonmembers), 3_000, 0)
    draws = estimate_metrics(members, nonmembers, drawn, [AUROC])["auroc"].draws
    spread = np.std(every)
    assert abs(draws.mean() - np.mean(every)) <= 5 * spread / np.sqrt(3_000) + 1e-9
    assert draws.std() == pytest.approx(spread, rel=0.1, abs=1e-9)
    assert {round(d, 6) for d in draws} <= {round(e, 6) for e in every}
