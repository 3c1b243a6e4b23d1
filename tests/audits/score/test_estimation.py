"""Corrected scores on simulated answers: with and without contamination."""

from dataclasses import replace

import numpy as np
import pytest

from contamination.audits.score.estimation import (
    COMBINED,
    CONSTAT,
    EPG_IPW,
    HELD_OUT,
    IMPUTATION,
    IPW,
    MEMBER,
    NAIVE,
    NONMEMBER,
    UNKNOWN,
    draw_clusters,
    estimate_scores,
)
from contamination.audits.score.findings import summarize
from contamination.audits.score.report import SMALLEST
from tests.audits.score.simulated import simulate

REPEATS, DRAWS = 12, 100


def errors(**options):
    """The error of each score in points, by name, shape (repeats,)."""
    points = {}
    for seed in range(REPEATS):
        items, clean = simulate(seed, **options)
        for name, value in estimate_scores(items, 0, seed).values.items():
            points.setdefault(name, []).append(100 * (value - clean))
    return {name: np.array(of_name) for name, of_name in points.items()}


def test_without_contamination_ipw_and_combined_leave_the_score_and_epg_lowers_it():
    of_name = errors(share=0.0)
    assert np.abs(of_name[IPW]).max() < 0.3
    assert np.abs(of_name[COMBINED]).max() < 0.3
    assert of_name[NAIVE] == pytest.approx(0)
    assert -5 < of_name[EPG_IPW].mean() < -0.5  # the largest of 200 z is above 0 by chance


def test_planted_contamination_is_corrected_for_by_a_score_that_separates():
    of_name = errors(separation=5.0, spiked=100)
    assert of_name[NAIVE].mean() > 6
    for name in (IPW, COMBINED, IMPUTATION):
        assert abs(of_name[name].mean()) < 1.5, name


def test_a_weak_score_corrects_too_little():
    of_name = errors(separation=1.0)
    assert 0 < of_name[IPW].mean() < of_name[NAIVE].mean()


def test_contamination_that_goes_with_difficulty_biases_ipw_alone():
    of_name = errors(separation=5.0, spiked=100, by_difficulty=-1.5)
    assert of_name[IPW].mean() > 4
    assert abs(of_name[COMBINED].mean()) < 1.5


def test_the_intervals_without_contamination_include_no_inflation_and_the_clean_score():
    covered = []
    for seed in range(REPEATS):
        items, _ = simulate(seed, share=0.0, models=5)
        findings = summarize(items, estimate_scores(items, DRAWS, seed), 0.95, None)
        by_name = {score.name: score for score in findings.scores}
        assert findings.constat_p > 0.005
        for name in (IPW, COMBINED):
            assert by_name[name].inflation_low <= SMALLEST
        covered.append([by_name[name].low <= 0.5 <= by_name[name].high for name in (IPW, HELD_OUT)])
    assert np.mean(covered) > 0.75


def test_constat_finds_planted_contamination():
    items, _ = simulate(3, unknown=400, spiked=400, boost=1.0, models=6)
    estimates = estimate_scores(items, DRAWS, 0)
    findings = summarize(items, estimates, 0.95, None)
    assert findings.constat_p < 0.05
    assert estimates.values[NAIVE] - estimates.values[CONSTAT] > 0.05


def test_the_draws_are_the_same_for_a_seed_and_independent_of_units_of_the_score():
    items, _ = simulate(1)
    first, again = (estimate_scores(items, 20, 5) for _ in range(2))
    scaled = estimate_scores(replace(items, score=1000 * items.score - 7), 20, 5)
    for name in first.values:
        assert first.draws[name].tolist() == again.draws[name].tolist()
        assert scaled.draws[name] == pytest.approx(first.draws[name], abs=1e-6)
    assert estimate_scores(items, 20, 6).draws[IPW].tolist() != first.draws[IPW].tolist()


def test_clusters_are_drawn_whole_and_within_their_role():
    items, _ = simulate(2, unknown=40, spiked=10)
    items = replace(items, clusters=np.arange(60) // 4)
    counts = draw_clusters(items, np.random.default_rng(0))
    unknown = counts[items.role == UNKNOWN].reshape(10, 4)
    assert (unknown == unknown[:, :1]).all()
    assert unknown[:, 0].sum() == 10
    assert len({*unknown[:, 0]}) > 1
    for role in (MEMBER, NONMEMBER):
        assert counts[items.role == role].sum() > 0


def test_a_given_prevalence_is_used():
    items, _ = simulate(4, separation=1.0)
    low, high = (estimate_scores(items, 0, 0, prevalence) for prevalence in (0.05, 0.6))
    assert (low.prevalence, high.prevalence) == (0.05, 0.6)
    assert low.membership.mean() < high.membership.mean()


def test_prediction_from_reference_models_takes_known_nonmembers():
    items, _ = simulate(5, models=3)
    predicted = estimate_scores(replace(items, predicted=None), 0, 0)
    assert IMPUTATION in predicted.values
    assert np.ptp(predicted.predicted) > 0.05
    few, _ = simulate(5, models=3, spiked=5)
    few = replace(few, predicted=None)
    estimates = estimate_scores(few, DRAWS, 0)
    assert {IMPUTATION, COMBINED} & estimates.values.keys() == set()
    text = " ".join(summarize(few, estimates, 0.95, None).warnings)
    assert "No prediction of clean correctness" in text
    assert "5 known members: give 10 or more" in text
    assert "Few reference models" in text


@pytest.mark.parametrize(
    ("options", "chance", "warning"),
    [
        ({}, 0.6, "Accuracy near chance"),
        ({"separation": 0.0}, None, "does not tell the spiked examples apart"),
        ({"separation": 5.0, "by_difficulty": -1.5}, None, "Contamination goes with difficulty"),
    ],
)
def test_each_warning_has_its_cause(options, chance, warning):
    items, _ = simulate(6, **options)
    text = " ".join(summarize(items, estimate_scores(items, DRAWS, 0), 0.95, chance).warnings)
    assert warning in text
    plain, _ = simulate(6, separation=5.0, spiked=100)
    plain_warnings = summarize(plain, estimate_scores(plain, DRAWS, 0), 0.95, 0.25).warnings
    assert warning not in " ".join(plain_warnings)


def test_a_score_that_reads_difficulty_is_a_warning():
    items, _ = simulate(7)
    reading = replace(items, score=items.score + 4 * items.correct)
    text = " ".join(summarize(reading, estimate_scores(reading, DRAWS, 0), 0.95, None).warnings)
    assert "membership score goes with difficulty" in text
    unpredicted = replace(items, predicted=None)
    findings = summarize(unpredicted, estimate_scores(unpredicted, DRAWS, 0), 0.95, None)
    assert "goes with difficulty can't be checked" in " ".join(findings.warnings)
