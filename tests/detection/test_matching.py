"""Matching of members to non-members by what a blind classifier sees."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from contamination.core.statistics.bootstrap import draw_resample
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import blind_baseline
from contamination.detection.baselines.matching import (
    RIDGE_PENALTY,
    leftover_style_auroc,
    matched_auroc,
    matched_auroc_given_blind,
)

VOCABULARY = 200


def sides(member, values):
    return values[member], values[~member]


def drawn(member, draws=200):
    return draw_resample(int(member.sum()), int((~member).sum()), draws, 0)


def planted(seed, style, signal, n=600):
    """Texts of two styles, members more often of the first; a score that sees style, and signal."""
    rng = np.random.default_rng(seed)
    member = np.arange(n) % 2 == 0
    first = rng.random(n) < np.where(member, 0.5 + style, 0.5 - style)
    seen = np.column_stack([first + 0.1 * rng.random(n), first + rng.normal(size=n)])
    return member, first + 0.5 * rng.normal(size=n) + signal * member, seen


def thin(style, n=240, seed=0):
    """Texts in whose choice of words members differ a little, by all words; and that difference."""
    rng = np.random.default_rng(seed)
    member, tilt = np.arange(n) % 2 == 0, rng.normal(size=VOCABULARY)
    texts, values = [], np.zeros(n)
    for row, sign in enumerate(np.where(member, 1, -1)):
        share = np.exp(sign * style * tilt)
        words = rng.choice(VOCABULARY, 40, p=share / share.sum())
        texts.append(" ".join(f"w{word}" for word in words))
        values[row] = tilt[words].sum()
    return texts, member, values


def test_it_is_a_loop_over_pairs():
    member, scores, seen = planted(1, 0.3, 0.2, 80)
    scores = scores.round(1)  # ties
    standard = (seen - seen.mean(axis=0)) / seen.std(axis=0)
    model = LogisticRegression(C=1 / RIDGE_PENALTY, tol=1e-10, max_iter=10_000).fit(
        standard, member
    )
    weight = np.where(member, *model.predict_proba(standard).T)
    won = total = 0.0
    for i in np.flatnonzero(member):
        for j in np.flatnonzero(~member):
            total += weight[i] * weight[j]
            won += weight[i] * weight[j] * (np.sign(scores[i] - scores[j]) + 1) / 2
    found = matched_auroc(*sides(member, scores), sides(member, seen), drawn(member))
    assert found.value == pytest.approx(won / total, abs=1e-4)
    for column in standard.T:  # both sides have the same mean of what is matched on
        members, others = (np.average(column[s], weights=weight[s]) for s in (member, ~member))
        assert members == pytest.approx(others, abs=0.01)


@pytest.mark.parametrize("style", [0.1, 0.3])
def test_style_alone_is_a_half_after_matching(style):
    """The interval holds 0.5 in most of 40 sets, and the mean is there."""
    raw, found = [], []
    for seed in range(40):
        member, scores, seen = planted(seed, style, 0)
        raw.append(AUROC.value(*sides(member, scores)))
        found.append(matched_auroc(*sides(member, scores), sides(member, seen), drawn(member)))
    assert np.mean(raw) > 0.5 + style / 2
    assert np.mean([one.value for one in found]) == pytest.approx(0.5, abs=0.015)
    assert (
        sum(low <= 0.5 <= high for low, high in (confidence_interval(f, 0.95) for f in found)) >= 35
    )


def test_signal_stays():
    member, scores, seen = planted(0, 0, 1)
    found = matched_auroc(*sides(member, scores), sides(member, seen), drawn(member))
    assert found.value == pytest.approx(AUROC.value(*sides(member, scores)), abs=0.03)
    assert confidence_interval(found, 0.95)[0] > 0.7


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_score_is_no_surer_than_its_texts_are_many(sign):
    member, _, seen = planted(0, 0.1, 0, 40)
    scores = sign * member.astype(float)
    found = matched_auroc(*sides(member, scores), sides(member, seen), drawn(member))
    assert found.value == (1 + sign) / 2
    low, high = confidence_interval(found, 0.95)
    assert 0 <= low < high <= 1
    assert high - low > 0.03


def test_texts_that_nothing_matches_have_no_value():
    member, scores, _ = planted(0, 0, 1)
    told = np.column_stack([member, member]).astype(float)
    found = matched_auroc(*sides(member, scores), sides(member, told), drawn(member))
    assert found.needs == "members and non-members that the texts alone do not distinguish"
    assert np.isnan(found.value)


def test_a_score_of_style_alone_shows_what_matching_leaves():
    texts, member, values = thin(0.25)
    made = blind_baseline(texts, member, 0)
    left = leftover_style_auroc(made.style, (120, 120), 200)
    assert confidence_interval(left, 0.95)[0] > 0.55
    found = matched_auroc_given_blind(made, member, *sides(member, values), drawn(member))
    raw = AUROC.value(*sides(member, values))
    assert 0.55 < found.value < raw - 0.05


def test_nothing_is_left_where_labels_are_drawn():
    texts, member, _ = thin(0, seed=2)
    low, high = confidence_interval(
        leftover_style_auroc(blind_baseline(texts, member, 0).style, (120, 120), 200), 0.95
    )
    assert 0.35 < low < 0.5 < high < 0.65


def test_what_is_left_of_texts_that_tell_each_label_is_a_number():
    words = np.random.default_rng(0).integers(0, 200, (40, 20))
    member = np.arange(40) % 2 == 0
    rows = zip(words, member, strict=True)
    texts = [" ".join(f"w{w}" for w in row) + " zap" * int(m) for row, m in rows]
    left = leftover_style_auroc(blind_baseline(texts, member, 0).style, (20, 20), 200)
    low, high = confidence_interval(left, 0.95)
    assert 0.9 < low <= left.value <= high <= 1
