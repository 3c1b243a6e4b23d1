import numpy as np
import pytest

from core.bootstrap import resample
from core.estimates import interval
from core.metrics import AUROC
from detection.matching import matched, strata_of


def sides(member, values):
    return values[member], values[~member]


def drawn(member, draws=200):
    return resample(int(member.sum()), int((~member).sum()), draws, 0)


def planted(seed, style, signal, n=600):
    """Texts of two styles, members more often of the first; a score that sees style, and signal."""
    rng = np.random.default_rng(seed)
    member = np.arange(n) % 2 == 0
    first = rng.random(n) < np.where(member, 0.5 + style, 0.5 - style)
    blind = first + 0.1 * rng.random(n)
    return member, first + 0.5 * rng.normal(size=n) + signal * member, blind


def test_it_is_a_loop_over_pairs():
    member, scores, blind = planted(1, 0.3, 0.2, 80)
    scores = scores.round(1)  # ties
    strata = strata_of(blind)
    share = np.array([member[strata == k].mean() for k in strata])
    weight = np.where(member, 1 - share, share)
    won = total = 0.0
    for i in np.flatnonzero(member):
        for j in np.flatnonzero(~member):
            total += weight[i] * weight[j]
            won += weight[i] * weight[j] * (np.sign(scores[i] - scores[j]) + 1) / 2
    found = matched(*sides(member, scores), sides(member, blind), drawn(member))
    assert found.value == pytest.approx(won / total, abs=1e-6)


@pytest.mark.parametrize("style", [0.1, 0.3])
def test_style_alone_is_a_half_after_matching(style):
    """The interval holds 0.5 in most of 40 sets, and the mean is there."""
    raw, found = [], []
    for seed in range(40):
        member, scores, blind = planted(seed, style, 0)
        raw.append(AUROC.value(*sides(member, scores)))
        found.append(matched(*sides(member, scores), sides(member, blind), drawn(member)))
    assert np.mean(raw) > 0.5 + style / 2
    assert np.mean([one.value for one in found]) == pytest.approx(0.5, abs=0.015)
    assert sum(low <= 0.5 <= high for low, high in (interval(f, 0.95) for f in found)) >= 35


def test_signal_stays():
    member, scores, blind = planted(0, 0, 1)
    found = matched(*sides(member, scores), sides(member, blind), drawn(member))
    assert found.value == pytest.approx(AUROC.value(*sides(member, scores)), abs=0.03)
    assert interval(found, 0.95)[0] > 0.7


def test_texts_that_nothing_matches_have_no_value():
    member, scores, _ = planted(0, 0, 1)
    found = matched(*sides(member, scores), sides(member, member.astype(float)), drawn(member))
    assert found.needs == "texts of both kinds with like blind scores"
    assert np.isnan(found.value)
