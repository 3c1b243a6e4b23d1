"""The tests of the texts alone: what they see, how often they are wrong, and near-copies."""

from dataclasses import replace

import numpy as np
import pytest

from contamination.audits.benchmark import blind as blind_module
from contamination.audits.benchmark.blind import blind_tests, shape_counts, shape_of
from contamination.audits.benchmark.exchangeability import Design, studentised
from contamination.audits.benchmark.origin import check_near_copies
from contamination.core.errors import DataError
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.baselines.words import WordModel

NOUNS = ["river", "stone", "lamp", "winter", "market", "engine", "paper", "garden", "signal"]
MARKS = "!#$%&()*+-/:;<=>@[]^_{|}~"
"""Each in few texts, as an unusual mark is."""


@pytest.fixture(autouse=True)
def little_work(monkeypatch):
    """Few shuffles, and counts of a few sentences in the place of English."""
    monkeypatch.setattr(blind_module, "SHUFFLES", 39)
    monkeypatch.setattr(blind_module, "RELABELLINGS", 199)
    model = WordModel.of([question(np.random.default_rng(9)) for _ in range(300)])
    scores = lambda texts: np.array([model.scores(text) for text in texts]).T  # noqa: E731
    monkeypatch.setattr(blind_module, "word_scores", scores)


def question(rng):
    """A question whose length, marks and names vary."""
    words = rng.choice(NOUNS, int(rng.integers(4, 9)))
    names = [word.title() if rng.random() < 0.3 else word for word in words]
    mark = ", " if rng.random() < 0.5 else " "
    return f"Is it the {mark.join(['the '.join(names[:2]), ' '.join(names[2:])])} of the town?"


def texts_of(questions, fresh, clusters=()):
    rows = [
        make_text(f"{side}/{i}", text, side == "question", "")
        for side, texts in (("question", questions), ("fresh", fresh))
        for i, text in enumerate(texts)
    ]
    return Texts.of(
        replace(row, cluster=name)
        for row, name in zip(rows, clusters or [""] * len(rows), strict=True)
    )


def two_sides(seed, change=str, number=20):
    rng = np.random.default_rng(seed)
    drawn = [question(rng) for _ in range(2 * number)]
    return texts_of([change(text) for text in drawn[:number]], drawn[number:])


CHANGES = {
    "lower case": str.lower,
    "a blank before the mark": lambda text: text.replace("?", " ?"),
    "no mark": lambda text: text.rstrip("?"),
    "a trailing blank": lambda text: f"{text} ",
    "a date": lambda text: f"(As of March 2026) {text}",
    "the last word missing": lambda text: text.rsplit(" ", 1)[0],
    "other marks": lambda text: text.replace("?", "\u037e"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_consistent_change_is_seen_in_twenty_texts(name):
    for seed in range(2):
        assert blind_tests(two_sides(seed, CHANGES[name]), seed).shapes_p <= 0.005


def test_a_missing_last_word_is_seen_by_the_words():
    shortened = two_sides(0, lambda text: text.rsplit(" ", 1)[0] + "?")
    assert blind_tests(shortened, 0).words_p <= 0.005
    assert blind_tests(two_sides(0), 0).words_p > 0.05


@pytest.mark.parametrize("sizes", [(1, 1), (2, 10)])
def test_shapes_keep_the_level(sizes):
    """With means over clusters most sets with clusters of 2 and 10 would be rejected."""
    cluster = np.repeat(np.arange(24), np.repeat(sizes, 12))
    design = Design(cluster < 12, cluster)
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        texts = ["".join(mark for mark in MARKS if rng.random() < 0.06) for _ in cluster]
        rejected += blind_module._shapes_p(texts, design, seed) <= 0.05
    assert rejected <= 13  # of 100; 5 are expected at most


def test_one_text_of_each_cluster_is_compared_and_all_versions():
    cluster = np.array([0, 0, 0, 1, 2, 2, 3, 3])
    is_question = np.array([1, 1, 1, 0, 0, 0, 1, 0], bool)
    drawn = {tuple(Design(is_question, cluster).representatives(seed)) for seed in range(50)}
    assert drawn == {(a, 3, b, 6, 7) for a in (0, 1, 2) for b in (4, 5)}


def test_several_scores_are_compared_at_once_as_one_by_one():
    rng = np.random.default_rng(0)
    cluster = np.array([*range(12), 12, 12, 12, 13, 13])
    design = Design(np.arange(17) % 2 == 0, cluster)
    scores = rng.normal(size=(4, 17))
    (labels,) = design.relabellings(30, 1)
    together = studentised(*design.differences(scores[:, None], labels))
    for score, statistics in zip(scores, together, strict=True):
        alone = studentised(*design.differences(score, labels))
        each = studentised(*design.differences(np.tile(score, (30, 1)), labels))
        np.testing.assert_allclose(statistics, alone)
        np.testing.assert_allclose(statistics, each)


def test_a_shape_keeps_case_numbers_marks_and_blanks():
    assert shape_of("Is NASA's  iPad 12,5\tbetter? I say Ünder\n") == (
        "Aa AA'a  aA 0,0\ta? A a Aa\n"
    )
    counts = shape_counts(["a b", "a b.", "a b", "a b.", "a b", "a b.", "a b", "a b."])
    assert {tuple(row) for row in np.sign(counts - counts.mean(axis=1, keepdims=True))} == {
        (-1, 1) * 4, (1, -1) * 4,
    }  # fmt: skip
    assert shape_counts(["same"] * 9).shape == (0, 9)


def test_word_scores_are_those_of_the_equations():
    corpus = "the cat sat on the mat . a dog sat . the cat ran . a cat slept on a mat ."
    model, words = WordModel.of([corpus]), corpus.split()
    pairs = list(zip(words[:-1], words[1:], strict=True))

    def log_share(word):
        return np.log((words.count(word) + 0.5) / len(words))

    def ratio(first, second):
        if first not in words or second not in words:
            return 0.0
        types = len({b for a, b in pairs if a == first})
        share = np.exp(log_share(second))
        given = (pairs.count((first, second)) + types * share) / (words.count(first) + types)
        return np.log(given / share)

    text = "A dog ran on the zebra mat"
    lower = text.lower().split()
    known = [(a, b) for a, b in zip(lower[:-1], lower[1:], strict=True) if "zebra" not in (a, b)]
    expected = [
        log_share("zebra"),
        np.mean([min(0, ratio(a, b)) for a, b in known]),
        ratio(".", "a"),
        ratio("mat", "."),
    ]
    np.testing.assert_allclose(model.scores(text), expected)
    np.testing.assert_allclose(model.scores(f"'{text}.'")[2:], expected[2:])
    assert model.scores("The cat sat on the")[3] < model.scores("The cat sat on the mat")[3]
    assert np.isfinite(model.scores("")).all()
    assert np.isfinite(model.scores("?!")).all()


def test_a_copy_with_a_typing_error_is_a_near_copy():
    rng = np.random.default_rng(0)
    drawn = [f"Did {' '.join(rng.permutation(NOUNS)[:6])} and {i} fall?" for i in range(54)]
    questions, fresh = ["Does the river stand before the stone?", *drawn[:27]], drawn[27:]
    assert check_near_copies(texts_of(questions, fresh)) == 0
    copies = (
        "Does the rvier stand before the stone?",
        "Does the river stnd before the stone?",
        "does the river stand before the stones",
        "Does the river strand before the stone",
    )
    for copy in copies:
        assert check_near_copies(texts_of(questions, [*fresh, copy])) == 1
    others = (
        "Does the river fall before the stone?",
        "Was the river stand before the stone?",
        "Does a river stand before the stone?",
        "Does the river 10 before the stone?",
    )
    for other in others:
        assert check_near_copies(texts_of(questions, [*fresh, other])) == 0
    both = [*fresh, *copies[:2]]
    with pytest.raises(DataError, match="2 of its texts are near-copies .* but for a typing error"):
        check_near_copies(texts_of(questions, both))
    clusters = ["a", *[""] * 27, *[""] * 27, "a", "a"]
    assert check_near_copies(texts_of(questions, both, clusters)) == 0


def test_siblings_that_fill_a_form_are_no_copies():
    letters = "abcdefghijklmnopqrstuvwxyz"
    siblings = [f"What is the capital of Bora{letter}?" for letter in letters]
    assert check_near_copies(texts_of(siblings[:13], siblings[13:])) == 0
