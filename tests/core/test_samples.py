"""Intervals of examples that come in clusters draw whole clusters, and hold the truth."""

import numpy as np
import pytest
from scipy.stats import binom

from contamination.core.statistics.estimates import confidence_interval, estimate_metrics
from contamination.core.statistics.metrics import AUROC, tpr_at_fpr
from contamination.core.statistics.samples import (
    LabelledSample,
    draw_cluster_counts,
    widening_factor,
)

METRICS = [AUROC, tpr_at_fpr(0.05)]


def test_clusters_are_drawn_whole():
    cluster = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 4))
    counts = draw_cluster_counts(cluster, 200, 1)
    firsts = counts[:, [np.flatnonzero(cluster == k)[0] for k in range(6)]]
    np.testing.assert_array_equal(counts, firsts[:, cluster])
    assert (firsts.sum(axis=1) == 6).all()
    assert firsts.mean() == 1
    assert abs(firsts.var() - 5 / 6) < 0.1  # a multinomial's
    np.testing.assert_array_equal(counts, draw_cluster_counts(cluster, 200, 1))
    assert (counts != draw_cluster_counts(cluster, 200, 2)).any()


def test_of_clusters_of_several_sizes_the_last_is_cut():
    cluster = np.repeat(np.arange(4), [1, 9, 5, 30])
    counts = draw_cluster_counts(cluster, 500, 0)
    assert (counts.sum(axis=1) == 45).all()
    uneven = [sum(len(set(own[cluster == k])) > 1 for k in range(4)) for own in counts]
    assert max(uneven) == 1
    assert np.mean(uneven) > 0.3
    assert len({tuple(own[cluster == 3] - own[cluster == 3].min()) for own in counts}) > 50


def held(clusters, size, repetitions, seed=0):
    """How often the interval of each metric held the truth: of whole clusters, of examples."""
    rng, own = np.random.default_rng(seed), np.repeat(np.arange(clusters), size)
    plans = [LabelledSample((len(own), len(own)), (own, own), 200, i) for i in range(5)]
    found = np.zeros((2, len(METRICS)), int)
    for i in range(repetitions):
        sides = rng.normal(0, 0.55, (2, clusters))[:, own] + rng.normal(0, 0.84, (2, len(own)))
        plan = plans[i % 5]
        for row, lines in enumerate(
            (
                plan.estimate(*sides, METRICS),
                estimate_metrics(*sides, plan.resample_of_single_examples, METRICS),
            )
        ):
            for column, (metric, truth) in enumerate(zip(METRICS, (0.5, 0.05), strict=True)):
                low, high = confidence_interval(lines[metric.name], 0.95)
                found[row, column] += low <= truth <= high
    return found


@pytest.mark.parametrize("clusters", [10, 50])
def test_scores_that_say_nothing_hold_one_half(clusters):
    whole, single = held(clusters, 20 if clusters == 10 else 12, 80)
    least = binom.ppf(0.001, 80, 0.93)
    assert (whole >= least).all()
    assert single[0] < least


def test_where_all_draws_agree_a_cluster_counts_as_one_example():
    cluster = np.repeat(np.arange(10), 30)
    plan = LabelledSample((300, 300), (cluster, cluster), 50, 0)
    high, low = np.arange(300.0) + 1000, np.arange(300.0)
    found = plan.estimate(high, low, METRICS)
    for metric in METRICS:
        assert found[metric.name].value == 1
        assert metric.trials is not None
        assert found[metric.name].trials == metric.trials(10, 10)
    alone = estimate_metrics(high, low, plan.resample_of_single_examples, METRICS)["auroc"]
    assert confidence_interval(found["auroc"], 0.95)[0] < confidence_interval(alone, 0.95)[0] - 0.05


def test_one_cluster_shows_no_variance():
    one, many = np.zeros(120, int), np.arange(120)
    found = LabelledSample((120, 120), (one, many), 20, 0).estimate(
        np.arange(120.0), np.arange(120.0), METRICS
    )
    assert found["auroc"].needs == "≥ 2 clusters of members"
    assert np.isnan(found["auroc"].value)


def test_few_clusters_widen_and_many_do_not():
    assert widening_factor(2, 2) > 3
    assert widening_factor(10, 10) == pytest.approx(1.130, abs=0.001)
    assert widening_factor(2000, 2000) == pytest.approx(1, abs=0.001)
