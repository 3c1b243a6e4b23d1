"""Values with draws, their mean and their spread."""

from __future__ import annotations

import numpy as np
import pytest

from core.bootstrap import Resample, rank, resample
from core.estimates import Estimate, chosen_metrics, estimate, mean


def test_metrics_are_named_after_their_rates():
    names = [metric.name for metric in chosen_metrics([0.001, 0.05], [0.95])]
    assert names == ["auroc", "tpr_at_fpr_0.001", "tpr_at_fpr_0.05", "fpr_at_tpr_0.95"]


@pytest.mark.parametrize("metric", chosen_metrics([0.05, 0.3], [0.95, 0.6]), ids=lambda m: m.name)
def test_a_guess_reaches_the_metrics_guess_and_a_shift_its_better_side(metric):
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=400), rng.normal(size=400)) for _ in range(100)]
    random = np.mean([metric.value(*pair) for pair in pairs])
    shifted = np.mean([metric.value(members + 0.5, others) for members, others in pairs])
    assert random == pytest.approx(metric.guess, abs=0.01)
    assert (shifted > random + 0.05) == metric.higher_is_better
    assert (shifted < random - 0.05) != metric.higher_is_better


def test_each_metric_keeps_its_own_rate():
    members, nonmembers = np.arange(5.0, 25.0), np.arange(20.0)
    wanted = chosen_metrics([0.05, 0.5], [0.95])
    found = estimate(members, nonmembers, resample(20, 20, 50, 0), wanted)
    assert found["tpr_at_fpr_0.05"].value < found["tpr_at_fpr_0.5"].value
    assert found["tpr_at_fpr_0.05"].draws.mean() < found["tpr_at_fpr_0.5"].draws.mean()


def test_the_value_on_the_examples_themselves_is_a_draw_of_one_each():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(1, 1, 15).round(1), rng.normal(0, 1, 12).round(1)
    once = Resample(np.ones((1, 15), np.float32), np.ones((1, 12), np.float32))
    for metric in chosen_metrics([0.05], [0.95]):
        drawn = metric.draws(rank(members, nonmembers, once))
        assert drawn.tolist() == [metric.value(members, nonmembers)]


def test_the_mean_averages_draws_and_adds_sizes():
    one = Estimate(3, 4, 0.5, np.array([0.4, 0.6]))
    other = Estimate(5, 6, 0.7, np.array([0.8, 0.6]))
    both = mean([one, other])
    assert (both.n_members, both.n_nonmembers) == (8, 10)
    assert both.value == pytest.approx(0.6)
    assert both.draws.tolist() == pytest.approx([0.6, 0.6])
