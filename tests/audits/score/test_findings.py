"""Intervals, ConStat's test and every warning, word for word, from estimates that are given."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from contamination.audits.score.estimation import (
    CONSTAT,
    IMPUTATION,
    IPW,
    MEMBER,
    NAIVE,
    NONMEMBER,
    UNKNOWN,
    Items,
    ScoreEstimates,
)
from contamination.audits.score.findings import CorrectedScore, Findings, summarize

COUNT = 10
"""Of the items of each role."""


@pytest.fixture
def items():
    role = np.repeat([UNKNOWN, MEMBER, NONMEMBER], COUNT)
    correct = np.tile([0.0, 1.0], 3 * COUNT // 2)
    correct[role == NONMEMBER] = [0, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    score = np.tile(np.arange(COUNT, dtype=float), 3)
    return Items(correct, score, role, np.arange(3 * COUNT))


@pytest.fixture
def estimates():
    naive = np.linspace(0.3, 0.7, 101)
    draws = {NAIVE: naive, IPW: naive / 2, CONSTAT: np.full(101, 0.42)}
    membership, predicted = np.arange(COUNT) / 20, np.tile([0.25, 0.75], COUNT // 2)
    values = {NAIVE: 0.5, IPW: 0.25, CONSTAT: 0.42}
    return ScoreEstimates(values, draws, 0.3, membership, predicted, np.linspace(1, 2, 101))


def spearman(ranks):
    """The correlation of 1 … n with other ranks, and its p-value by Student's t."""
    n = len(ranks)
    distances = sum((rank - place) ** 2 for place, rank in enumerate(ranks, 1))
    correlation = 1 - 6 * distances / (n * (n**2 - 1))
    statistic = abs(correlation) * np.sqrt((n - 2) / (1 - correlation**2))
    return correlation, 2 * t.sf(statistic, n - 2)


def test_intervals_are_percentiles_and_those_of_inflation_are_paired(items, estimates):
    findings = summarize(items, estimates, 0.9, None)
    numbers = [[0.5, 0.32, 0.68, 0, 0, 0], [0.25, 0.16, 0.34, 0.25, 0.16, 0.34],
               [0.42, 0.42, 0.42, 0.08, -0.1, 0.26]]  # fmt: skip
    for score, name, expected in zip(findings.scores, (NAIVE, IPW, CONSTAT), numbers, strict=True):
        assert isinstance(score, CorrectedScore)
        assert score.name == name
        interval_ends = [score.value, score.low, score.high,
                 score.inflation, score.inflation_low, score.inflation_high]  # fmt: skip
        assert interval_ends == pytest.approx(expected)
    # δ* − δ = (naive − 0.42) − 0.08 is 0.08 or more from 0.58 on: 31 of 101 draws, less rounding
    assert findings.constat_p == pytest.approx(31.5 / 102, abs=0.6 / 102)
    assert findings.warnings == []
    assert findings.confidence == 0.9


def test_without_reference_models_there_is_no_constat(items, estimates):
    values = {name: value for name, value in estimates.values.items() if name != CONSTAT}
    findings = summarize(items, replace(estimates, values=values), 0.9, None)
    assert isinstance(findings, Findings)
    assert findings.constat_p is None
    assert [score.name for score in findings.scores] == [NAIVE, IPW]


def warnings_of(items, estimates, chance=None):
    return summarize(items, estimates, 0.9, chance).warnings


def test_accuracy_is_near_chance_if_the_interval_begins_at_or_below_it(items, estimates):
    low = summarize(items, estimates, 0.9, None).scores[0].low
    warning = (
        "**Accuracy near chance.** The interval of the observed score begins at 0.320, and "
        "guessing gives 0.33: a model that can't answer shows little inflation in its accuracy. "
        "Compare the log-probability of the answers as well."
    )
    assert warnings_of(items, estimates, 0.33) == [warning]
    assert len(warnings_of(items, estimates, low)) == 1
    assert warnings_of(items, estimates, low - 1e-9) == []


def test_answers_of_one_correctness_are_alike(items, estimates):
    correct = np.where(items.role == UNKNOWN, 0.5, items.correct)
    assert warnings_of(replace(items, correct=correct), estimates) == [
        "**All answers are alike.** Each of 10 items of unknown membership has correctness 0.5, so "
        "the intervals of naive, IPW and EPG-IPW have no width, which says nothing of their error. "
        "Give more items, or easier or harder ones."
    ]
    correct[0] = 1.5  # a spread of exactly 1 is one
    assert warnings_of(replace(items, correct=correct), estimates) == []


@pytest.mark.parametrize("role", [MEMBER, NONMEMBER])
def test_fewer_than_ten_spiked_examples_are_few(items, estimates, role):
    fewer = items.role.copy()
    fewer[np.flatnonzero(fewer == role)[0]] = UNKNOWN
    assert warnings_of(replace(items, role=fewer), estimates) == [
        f"**Few spiked examples.** 9 known {role}s: give 10 or more."
    ]


def test_a_calibration_without_a_slope_is_warned_of(items, estimates):
    flat = replace(estimates, slope_draws=np.where(np.arange(101) < 6, 0.0, 1.0))
    assert warnings_of(items, flat) == [
        "**The membership score does not tell the spiked examples apart.** Its calibration has a "
        "slope of 0 or less in more than 5% of the draws. IPW and EPG-IPW then correct for "
        "nothing, and the share of members can't be estimated: give another method's scores."
    ]
    few = replace(estimates, slope_draws=np.where(np.arange(101) < 5, -1.0, 1.0))
    assert warnings_of(items, few) == []


def test_a_membership_score_that_goes_with_difficulty_is_warned_of(items, estimates):
    ranks = [9, 10, 7, 8, 5, 6, 3, 4, 1, 2]
    correct = items.correct.copy()
    correct[items.role == NONMEMBER] = np.array(ranks) / 10
    correlation, p_value = spearman(ranks)
    assert warnings_of(replace(items, correct=correct), estimates) == [
        "**The membership score goes with difficulty.** Among the known non-members its rank "
        f"correlation with correctness is {correlation:.2f} (p = {p_value:.2g}): IPW and EPG-IPW "
        "change the score even without contamination."
    ]
    constant = np.where(items.role == NONMEMBER, 3.0, items.score)
    assert warnings_of(replace(items, correct=correct, score=constant), estimates) == []


@pytest.mark.parametrize("rises", [True, False])
def test_contamination_that_goes_with_difficulty_is_warned_of(items, estimates, rises):
    ranks = [2, 1, 4, 3, 6, 5, 8, 7, 10, 9] if rises else [9, 10, 7, 8, 5, 6, 3, 4, 1, 2]
    correlation, p_value = spearman(ranks)
    harder, direction = ("easier", "low") if rises else ("harder", "high")
    assert warnings_of(items, replace(estimates, predicted=np.array(ranks) / 10)) == [
        f"**Contamination goes with difficulty.** Among the items of unknown membership likely "
        f"members are {harder} (rank correlation with ĉ {correlation:.2f}, p = {p_value:.2g}): "
        f"IPW and EPG-IPW are too {direction}. Prefer imputation or the combined score."
    ]
    nine = np.arange(9)
    few = replace(estimates, membership=nine / 20, predicted=nine / 10)
    assert warnings_of(items, few) == []
    assert warnings_of(items, replace(estimates, predicted=np.full(COUNT, 0.4))) == []


def test_what_reference_models_and_predictions_are_lacking_is_said(items, estimates):
    assert warnings_of(items, replace(estimates, predicted=None)) == [
        "**Whether contamination goes with difficulty can't be checked.** It takes predicted clean "
        "correctness or reference models. If it does, IPW and EPG-IPW are biased."
    ]
    few, enough = (replace(items, references=np.ones((3 * COUNT, n))) for n in (3, 4))
    no_prediction = (
        "**No prediction of clean correctness.** It takes 10 known non-members to fit it on the "
        "reference models."
    )
    assert warnings_of(few, estimates) == [
        "**Few reference models.** 3: ConStat's interval can't show how much such models differ. "
        "Give 4 or more.",
        no_prediction,
    ]
    assert warnings_of(enough, estimates) == [no_prediction]
    imputed = replace(
        estimates, values=estimates.values | {IMPUTATION: 0.4},
        draws=estimates.draws | {IMPUTATION: estimates.draws[NAIVE]},
    )  # fmt: skip
    assert warnings_of(enough, imputed) == warnings_of(items, imputed) == []
