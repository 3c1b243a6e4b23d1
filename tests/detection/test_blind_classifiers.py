"""What the blind baseline's classifiers read in a text, each beside a loop over its characters."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from contamination.detection.baselines import classifiers as classifiers_module
from contamination.detection.baselines.classifiers import (
    FORMS,
    MAX_RARE_SHARE,
    WORD,
    RareGrams,
    classifiers_by_name,
    count_shared_n_grams,
    date_features,
    form_features,
    make_ridge,
)

TEXTS = [
    "In May 1820 the cat sat.\n\nIt  purred, they said: “Ça va?”",
    "In June 1821 the cat sat.\tIt  purred!",
    "the THE The 3 cats; sat - (in) 1820.",
    "",
    "the cat\u3000sat\u00a0in May 1820",
    "Dogs don't purr: the dog sat, a dog sat. ",
    "the dog sat in 1999-07 and   in 1820!?",
    "The cats purred",
]
LEARNERS = np.array([0, 1, 2, 3, 5, 6])


def grams(units, longest, join):
    """Every run of 1 to `longest` units, with how often it stands there."""
    runs = (units[i : i + n] for n in range(1, longest + 1) for i in range(len(units) - n + 1))
    return Counter(join(run) for run in runs)


def shared(counted):
    """Counts as a table (texts × n-grams) of the n-grams that two training texts have."""
    held = Counter(gram for i in LEARNERS for gram in counted[i])
    known = sorted(gram for gram, texts in held.items() if texts >= 2)
    return np.array([[each[gram] for gram in known] for each in counted], float)


def centred(features):
    """Inner products with the training texts, around their mean, of mean square 1 over these."""
    around = features - features[LEARNERS].mean(axis=0)
    around /= np.sqrt((around[LEARNERS] ** 2).sum(axis=1).mean())
    return around @ around[LEARNERS].T


def weighted(counts):
    """1 + log count, times the logarithm of how few training texts have it, of length 1."""
    rarity = np.log((1 + len(LEARNERS)) / (1 + (counts[LEARNERS] > 0).sum(axis=0))) + 1
    values = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * rarity
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-300)


def test_the_classifiers_read_words_characters_rare_words_dates_and_form(monkeypatch):
    monkeypatch.setattr(classifiers_module, "BLOCK_TEXTS", 3)
    words = shared([grams(re.findall(WORD, text), 3, " ".join) for text in TEXTS])
    letters = shared([grams(text, 4, str) for text in TEXTS])
    found = classifiers_by_name(TEXTS, LEARNERS)
    expected = {"words": weighted(words), "characters": weighted(letters),
                "dates": date_features(TEXTS), "form": form_features(TEXTS)}  # fmt: skip
    assert set(found) == {*expected, "rare n-grams"}
    for name, features in expected.items():
        np.testing.assert_allclose(found[name].kernel, centred(features), atol=1e-9)
        assert found[name].training_rows is LEARNERS
    rare = [column for column in (words > 0).T if column[LEARNERS].mean() <= MAX_RARE_SHARE]
    held = found["rare n-grams"].presence.toarray()
    assert sorted(map(tuple, held.T)) == sorted(map(tuple, np.array(rare, float)))
    assert 0 < len(rare) < words.shape[1]


def test_texts_that_share_nothing_have_one_column_of_zeros():
    alone = count_shared_n_grams(
        ["18iuh", "other", "zzz"], np.arange(3), token_pattern=WORD
    )  # one hash is 0
    assert alone.toarray().tolist() == [[0], [0], [0]]
    same = make_ridge(np.full((3, 2), 0.1), np.arange(3))
    assert not same.kernel.any()
    alone = RareGrams(csr_matrix(np.eye(4)), np.arange(4))
    most = RareGrams.from_counts(
        csr_matrix(np.tri(5)), np.arange(5)
    ).presence  # of 5, 4, 3, 2 and 1 texts
    assert (most.shape, most.dtype) == ((5, 3), np.float32)
    assert alone.scores(np.arange(3), np.arange(4), np.ones((4, 5))).tolist() == [[0] * 5] * 4


@pytest.mark.parametrize("number", [3, 4, 5, 6, 20])
def test_extremes_are_the_lowest_and_the_highest_of_each_column_and_what_ties(number):
    ratio = np.random.default_rng(number).integers(-9, 10, (number, 30)).astype(np.float32)
    expected = ratio.copy()
    for column in expected.T if number > 4 else []:
        _, low, *_, high, _ = sorted(column)
        column[(low < column) & (column < high)] = 0
    found = classifiers_module._zero_all_but_extremes(ratio, 2)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("number", [5, 31, 32, 200])
def test_at_most_30_dates_are_steps(number):
    years = np.arange(number) + 1600.0
    levels = years[1:].tolist()
    if number > 31:
        levels = [levels[int(k * (number - 2) / 29)] for k in range(30)]
    expected = [[float(year >= level) for level in levels] for year in years]
    np.testing.assert_array_equal(classifiers_module._step_features(years), expected)


def test_dates_are_the_latest_and_the_earliest_as_steps():
    texts = ["1999 and 2004-07.", "March 3, 2004", "since Dec. 2003", "12345 of 20041", "2003"]
    years = [
        classifiers_module._fractional_year(m)
        for t in texts
        for m in classifiers_module.DATE.finditer(t)
    ]
    assert years == pytest.approx([1999, 2004.5, 2004 + 2 / 12, 2003 + 11 / 12, 2003])
    # latest from 2003, December 2003, March 2004, July 2004; earliest of 2003, December 2003,
    # March 2004, none
    assert date_features(texts).tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1, 1, 0], [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 0, 0, 0],
    ]  # fmt: skip


def test_form_is_the_length_and_the_counts_standardised():
    texts = [*TEXTS, "7"]
    columns = [[np.log(len(text) + 1) for text in texts]]
    for scale in (lambda n, text: np.log(n + 1), lambda n, text: n / max(len(text), 1)):
        columns += [[scale(len(re.findall(p, t)), t) for t in texts] for p in FORMS]
    spread = np.std(columns, axis=1, keepdims=True)
    expected = (np.array(columns) - np.mean(columns, axis=1, keepdims=True)) / np.where(
        spread < 1e-12, 1, spread
    )
    np.testing.assert_allclose(form_features(texts), expected.T, atol=1e-9)
