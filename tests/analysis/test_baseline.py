"""The blind baseline finds what it should, and nothing where there is nothing."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd

from analysis.inference.baseline import SPREAD, blind_scores, out_of_fold
from core.bootstrap import interval, resample
from core.estimates import chosen_metrics, estimate, widened
from core.metrics import auroc

WORDS = np.array([f"word{i}" for i in range(60)])


def texts(n: int, seed: int, length: int = 25) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(n)]


def table(text: list[str], member: np.ndarray, benchmark: str = "boolq") -> pd.DataFrame:
    return pd.DataFrame({"benchmark": benchmark, "text": text, "member": member})


def test_intervals_on_random_labels_hold_one_half():
    """60 random splits of the same texts, with the spread that the results give the baseline."""
    text, held, n = texts(48, 0), 0, 24
    for repetition in range(60):
        member = np.random.default_rng(repetition).permutation(np.arange(2 * n) < n)
        scores = out_of_fold(text, member, folds=5, seed=repetition)
        wanted = chosen_metrics([0.05], [0.95])[:1]
        drawn = resample(n, n, 200, repetition)
        found = estimate(scores[member], scores[~member], drawn, wanted)["auroc"]
        low, high = interval(widened(found, SPREAD).draws, 0.95)
        held += low <= 0.5 <= high
    assert held >= 51


def test_finds_words_that_give_members_away():
    member = np.arange(60) < 30
    given_away = [t + " since 2024" * int(m) for t, m in zip(texts(60, 2), member, strict=True)]
    scores = blind_scores(table(given_away, member), folds=5, seed=0)
    assert auroc(scores[member], scores[~member]) > 0.95


def test_finds_a_difference_in_length():
    member = np.arange(60) < 30
    shorter = texts(30, 3, 24) + texts(30, 4, 12)
    scores = blind_scores(table(shorter, member), folds=5, seed=0)
    assert auroc(scores[member], scores[~member]) > 0.95


def test_a_text_never_helps_to_score_itself():
    """Memorising is possible on the training folds, so in-fold scores would be near 1."""
    member = np.random.default_rng(5).permutation(np.arange(80) < 40)
    scores = out_of_fold(texts(80, 6), member, folds=5, seed=1)
    assert auroc(scores[member], scores[~member]) < 0.75


def test_scores_are_a_function_of_the_seed_and_of_each_benchmark_alone():
    member = np.arange(40) % 2 == 0
    one = table(texts(40, 7), member)
    both = pd.concat([table(texts(40, 8), member, "imdb"), one])
    alone = blind_scores(one, folds=4, seed=3)
    np.testing.assert_array_equal(alone, blind_scores(both, folds=4, seed=3)[40:])
    assert (alone != blind_scores(one, folds=4, seed=4)).any()


def test_too_few_examples_are_left_out_and_said(caplog):
    member = np.array([True, False, False])
    with caplog.at_level(logging.WARNING):
        scores = blind_scores(table(["a", "", "b c"], member), folds=5, seed=0)
    assert np.isnan(scores).all()
    assert "boolq: too few examples for the blind baseline" in caplog.text


def test_texts_without_words_have_scores():
    member = np.arange(8) < 4
    scores = blind_scores(table(["", "?", "", "!", "", "", "…", "x"], member), folds=2, seed=0)
    assert np.isfinite(scores).all()
