"""Simulated books of known shares: do the intervals and the p-values keep their word?"""

import re
from functools import partial

import numpy as np
import pytest

from contamination.audits.books.contamination_rates import (
    NORMAL,
    RANKS,
    Rates,
    correct_rate,
    is_significantly_higher,
    normal_p_values,
    q_values,
    rank_p_values,
    rogan_gladen,
)
from contamination.audits.books.evaluation import blind_auroc_and_interval
from contamination.audits.books.report import AuditedBooks, build_report
from contamination.audits.books.results import BookScores, audit_books
from contamination.audits.books.selection import ValidationScores, compute_held_out_rates
from contamination.audits.books.snippets import BookSnippets, SnippetPlan, list_word_spans
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.examples import make_text
from contamination.detection.baselines.blind import blind_baseline

SHARES = (0.0, 0.25, 0.5, 1.0)
SNIPPETS = 50


def books(rng, number, share, offset, effect=2.0, snippets=SNIPPETS):
    """Scores (number × snippets) of books that differ by `offset`, `share` of each trained on."""
    trained = rng.random((number, snippets)) < share
    return (
        rng.normal(size=(number, snippets)) + rng.normal(0, offset, (number, 1)) + effect * trained
    )


def rates_of(scores, threshold=1.0):
    return Rates((scores >= threshold).mean(axis=1), np.full(len(scores), scores.shape[1], float))


def test_the_share_is_that_of_the_equation():
    for share in SHARES:
        assert rogan_gladen(share * 0.8 + (1 - share) * 0.1, 0.8, 0.1) == pytest.approx(share)
    assert (rogan_gladen(0.05, 0.8, 0.1), rogan_gladen(0.9, 0.8, 0.1)) == (0, 1)


def covered(rng, number, offset, draws):
    """How often the interval holds each share, and how often the rate's own (Wilson's) does."""
    held, naive = np.zeros((2, len(SHARES)))
    for draw in range(draws):
        sides = [rates_of(books(rng, number, share, offset)) for share in (1, 0)]
        for place, share in enumerate(SHARES):
            observed = rates_of(books(rng, 1, share, offset)).mean
            found = correct_rate(observed, SNIPPETS, *sides, seed=draw)
            held[place] += found.low <= share <= found.high
            spread = 1.96 * np.sqrt((observed * (1 - observed) + 0.25 / SNIPPETS) / SNIPPETS)
            naive[place] += abs(observed - share) <= spread
    return held / draws, naive / draws


@pytest.mark.parametrize(("number", "offset"), [(6, 0.3), (12, 0.7)])
def test_the_interval_holds_the_share_and_the_rates_own_does_not(number, offset):
    held, naive = covered(np.random.default_rng(0), number, offset, 100)
    assert held.mean() >= 0.93
    assert held.min() >= 0.87  # of 100 draws: 0.9 less a standard error
    assert naive[[0, -1]].max() <= 0.5  # false alarms at 0, misses at 1


def test_where_nothing_is_told_no_share_is_given():
    rng = np.random.default_rng(1)
    candidates = [("loss", "")]

    def made(number, share, effect):
        scores = books(rng, number, share, 0.3, effect)
        return [BookScores(f"{share} {i}", own[None], SNIPPETS) for i, own in enumerate(scores)]

    for effect, told in ((0.0, False), (3.0, True)):
        sides = (made(8, 1, effect), made(8, 0, effect), made(3, 0.5, effect))
        result = audit_books(candidates, *sides, seed=2)
        assert result.separated == told
        assert all((s.corrected is not None) == told for s in result.suspects)
    assert not is_significantly_higher(rates_of(np.zeros((5, 9))), rates_of(np.zeros((5, 9))))


def test_charts_have_the_pages_colours_and_bars_of_five_percent():
    rng = np.random.default_rng(1)
    scores = {
        role: [
            BookScores(f"{role} {i}", own[None], SNIPPETS)
            for i, own in enumerate(books(rng, number, share, 0.3, 3.0))
        ]
        for role, number, share in (("positives", 8, 1), ("negatives", 8, 0), ("suspects", 3, 0.5))
    }
    result = audit_books([("loss", "")], *scores.values(), seed=2)
    plan = SnippetPlan(SNIPPETS, 20, "words", list_word_spans, 0)
    report = build_report(result, AuditedBooks("m", plan, RANKS, scores, {}, (0.5, 0.4, 0.6)))
    charts = {chart.name: chart for chart in report.content.charts}
    assert [*charts] == ["shares", "scores", "rates"]
    for chart in charts.values():
        assert {*re.findall("#[0-9a-f]{6}", chart.svg)} <= {"#ffffff"}
    bars = charts["rates"].figure.axes[0].containers
    assert [len(bars_of_role) for bars_of_role in bars] == [20, 20, 20]
    for role, bars_of_role in zip(scores, (bars[1], bars[0], bars[2]), strict=True):
        assert sum(bar.get_height() for bar in bars_of_role) == len(scores[role])


def p_values_of_untrained(rng, offset, number, draws):
    """Rank and normal p-values of suspects that were not trained on, through the whole choice."""
    found = []
    for _ in range(draws):
        sides = [[own[None] for own in books(rng, number, s, offset, snippets=20)] for s in (1, 0)]
        held_out = compute_held_out_rates(ValidationScores([("loss", "")], *sides, seed=0))
        suspects = books(rng, 4, 0, offset, snippets=20)
        rates = np.array([held_out.rate_by_each_rule(own[None]) for own in suspects])
        negatives = Rates(held_out.negatives, np.full(number, 20.0))
        counts = np.full(4, 20.0)
        ranks = rank_p_values(rates, counts, negatives, held_out.fold)
        found.append([ranks, normal_p_values(rates.mean(axis=1), counts, negatives)])
    return np.array(found).transpose(1, 0, 2).reshape(2, -1)


@pytest.mark.parametrize("offset", [0.0, 0.7])
def test_books_that_were_not_trained_on_have_no_small_p_values(offset):
    ranks, normal = p_values_of_untrained(np.random.default_rng(3), offset, 9, 150)
    for level in (0.1, 0.2, 0.5):
        error = 2 * np.sqrt(level * (1 - level) / 150)  # suspects of a draw share the negatives
        assert (ranks <= level).mean() <= level + error
        assert (normal <= level).mean() <= level + error
    assert (normal <= 0.05).mean() <= 0.05 + 0.036


def test_a_short_book_that_was_not_trained_on_has_no_small_rank_p_value():
    rng, found = np.random.default_rng(6), []
    fold = np.zeros(30, int)
    for _ in range(60):
        negatives = rates_of(books(rng, 30, 0, 0.3, snippets=100))
        suspects = rates_of(books(rng, 10, 0, 0.3, snippets=5))
        found += [*rank_p_values(suspects.values[:, None], suspects.snippets, negatives, fold)]
    assert (np.array(found) <= 0.05).mean() <= 0.05
    assert (np.array(found) <= 0.2).mean() <= 0.2
    known = rates_of(books(rng, 30, 1, 0.3, 4.0, snippets=5))
    assert (rank_p_values(known.values[:, None], known.snippets, negatives, fold) < 0.1).all()


def test_a_rank_p_value_counts_the_median_over_the_ways_to_draw_as_few_snippets():
    negatives = Rates(np.array([0.5, 0.0, 1.0]), np.array([4.0, 4.0, 2.0]))
    for rate, snippets, reaching in (
        (1.0, 2, 1),  # of the first two of four snippets, both above: 1/6; the last always
        (0.5, 2, 2),  # of the first 5/6
        (0.75, 2, 1),  # of overlapping snippets: (1/6 + 5/6) / 2 = 1/2, where the lower counts
        (0.5, 4, 2),  # as many: all are compared
    ):
        own = np.full((1, 1), rate), np.array([float(snippets)])
        (found,) = rank_p_values(*own, negatives, np.zeros(3, int))
        assert found == pytest.approx((1 + reaching) / 4)
    alike = Rates(np.full(5, 0.5), np.full(5, 4.0))  # each reaches 1 of 1 in half of the draws
    (found,) = rank_p_values(np.ones((1, 1)), np.ones(1), alike, np.zeros(5, int))
    assert found == pytest.approx((1 + 2) / 6)


def rank_rejections(share, snippets, offset, draws=400):
    """How often p ≤ 0.05 for a suspect of so many snippets, by 20 negatives of 100 snippets."""
    rng = np.random.default_rng(8)
    found = []
    for _ in range(draws):
        negatives = rates_of(books(rng, 20, 0, offset, snippets=100))
        suspects = rates_of(books(rng, 4, share, offset, snippets=snippets))
        of_suspects = suspects.values[:, None], suspects.snippets
        found += [*rank_p_values(*of_suspects, negatives, np.zeros(20, int))]
    return np.mean(np.less_equal(found, 0.05))


@pytest.mark.parametrize(("snippets", "least"), [(4, 0.2), (10, 0.45), (50, 0.8)])
def test_twenty_negatives_find_short_suspects_of_which_half_was_trained_on(snippets, least):
    """The mean over draws found 6%, 17% and 68% of them."""
    assert rank_rejections(0.5, snippets, 0.3) >= least
    assert rank_rejections(0.0, snippets, 0.3) <= 0.05


def test_the_candidate_that_tells_is_chosen_and_judged_on_other_books():
    rng = np.random.default_rng(4)

    def sides(effect):
        good = [books(rng, 10, share, 0.2, effect) for share in (1, 0)]
        noise = rng.normal(size=(2, 7, 10, SNIPPETS))
        return [
            [np.vstack([n[:, i], g[i : i + 1]]) for i in range(10)]
            for n, g in zip(noise, good, strict=True)
        ]

    candidates = [*((f"noise {i}", "") for i in range(7)), ("good", "")]
    validation = ValidationScores(candidates, *sides(2.0), seed=0)
    assert candidates[validation.choose_rule().candidate] == ("good", "")
    found = [
        compute_held_out_rates(ValidationScores(candidates, *sides(0.0), seed=s)) for s in range(40)
    ]
    accuracy = np.mean([(one.positives.mean() + 1 - one.negatives.mean()) / 2 for one in found])
    assert accuracy == pytest.approx(0.5, abs=0.02)  # the best of eight guesses is still one


def accuracy_of(threshold, trained, others):
    """The balanced accuracy over snippets of several books."""
    hits, alarms = (np.concatenate(part) >= threshold for part in (trained, others))
    return (hits.mean() + 1 - alarms.mean()) / 2


def best_threshold(trained, others):
    """The first of the best thresholds midway between two scores, by trying each."""
    ordered = np.sort(np.concatenate([*trained, *others]))
    middles = (ordered[1:] + ordered[:-1]) / 2
    return middles[np.argmax([accuracy_of(own, trained, others) for own in middles])]


def test_a_rule_is_chosen_without_the_books_that_it_judges():
    """By loops: each fold's candidate and threshold are of the other folds' books alone."""
    rng = np.random.default_rng(20)
    trained, others = (rng.normal(shift, 1, (8, 3, 6)) for shift in (0.3, 0.0))
    candidates = [("one", ""), ("two", ""), ("three", "")]
    validation = ValidationScores(candidates, [*trained], [*others], seed=1)
    folds = validation.positives.fold, validation.negatives.fold
    assert [sorted(np.bincount(fold)) for fold in folds] == [[1, 1, 2, 2, 2]] * 2

    def books_outside(candidate, *left_out):
        return [
            [book[candidate] for book, own in zip(side, fold, strict=True) if own not in left_out]
            for side, fold in zip((trained, others), folds, strict=True)
        ]

    def held_out_accuracy(candidate, *left_out):
        rates = [], []
        for fold in {*range(5)} - {*left_out}:
            threshold = best_threshold(*books_outside(candidate, fold, *left_out))
            for rate, side, own in zip(rates, (trained, others), folds, strict=True):
                rate.extend(np.mean(book >= threshold) for book in side[own == fold, candidate])
        return (np.mean(rates[0]) + 1 - np.mean(rates[1])) / 2

    def best_rule(*left_out):
        best = int(np.argmax([held_out_accuracy(c, *left_out) for c in range(3)]))
        return best, best_threshold(*books_outside(best, *left_out))

    rules = [best_rule(fold) for fold in range(5)]
    assert len({candidate for candidate, _ in rules}) > 1
    held_out = compute_held_out_rates(validation)
    for rule, (candidate, threshold) in zip(held_out.rules, rules, strict=True):
        assert (rule.candidate, rule.threshold) == (candidate, pytest.approx(threshold))
    for found, side, fold in zip(
        (held_out.positives, held_out.negatives), (trained, others), folds, strict=True
    ):
        chosen = [rules[own] for own in fold]
        expected = [
            np.mean(book[candidate] >= threshold)
            for book, (candidate, threshold) in zip(side, chosen, strict=True)
        ]
        assert found.tolist() == pytest.approx(expected)
    overall = validation.choose_rule()
    assert (overall.candidate, overall.threshold) == pytest.approx(best_rule())


def test_q_values_are_benjamini_and_hochbergs():
    assert q_values(np.array([0.01, 0.04, 0.03, 0.5])) == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )


def test_auroc_is_that_of_all_pairs_of_snippets():
    rng = np.random.default_rng(5)
    members, others = books(rng, 5, 1, 0.5, 1.0), books(rng, 6, 0, 0.5, 1.0)
    (found,) = ValidationScores(
        [("x", "")], [m[None] for m in members], [o[None] for o in others], 0
    ).candidate_accuracies()
    pairs = members.ravel()[:, None] - others.ravel()
    assert found.auroc == pytest.approx((pairs > 0).mean())
    rng, draws = np.random.default_rng(6), []
    for _ in range(2_000):  # whole books are drawn
        drawn = [
            side[rng.integers(len(side), size=len(side))].ravel() for side in (members, others)
        ]
        draws.append(AUROC.value(*drawn))
    of_books = Estimate(
        5, 6, found.auroc, np.array(draws), AUROC.trials(5 * SNIPPETS, 6 * SNIPPETS)
    )
    low, high = confidence_interval(of_books, 0.95)
    assert high - low > 0.13  # that of single snippets is half as wide
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def drawn_books(rng, names, shared=()):
    """Snippets of books, each with words of its own, and words that all of them share."""
    for name in names:
        own = [*(f"{name}{i}" for i in range(6)), *shared] * 4
        texts = [
            make_text(f"{name} {i}", " ".join(rng.permutation(own)[:30]), None, "")
            for i in range(6)
        ]
        yield BookSnippets(texts, len(texts))


def test_the_blind_row_does_not_know_a_book_again_but_knows_a_style():
    rng = np.random.default_rng(6)
    alike = [list(drawn_books(rng, names)) for names in ("abcdef", "ghijkl")]
    _, low, high = blind_auroc_and_interval(*alike, seed=0)
    assert low <= 0.5 <= high
    styled = [
        list(drawn_books(rng, "abcdef", ["thou"])),
        list(drawn_books(rng, "ghijkl", ["cool"])),
    ]
    value, low, _ = blind_auroc_and_interval(*styled, seed=0)
    assert value > 0.9
    assert low > 0.5
    texts = [text.text for side in alike for book in side for text in book.texts]
    known = blind_baseline(texts, np.arange(72) < 36, seed=0).estimates(
        np.arange(36), np.arange(36, 72), [AUROC], 100
    )
    assert known["auroc"].value > 0.95  # snippet by snippet, it does know a book again


def test_five_negatives_are_enough_for_p_values_of_a_normal_distribution():
    """Of ranks the lowest is 1/6, whatever a suspect's rate."""
    rng = np.random.default_rng(4)
    sides = [
        [BookScores(f"{share} {i}", own[None], SNIPPETS)
         for i, own in enumerate(books(rng, number, share, 0.3, 9.0))]
        for number, share in ((5, 1), (5, 0), (1, 0.5))
    ]  # fmt: skip
    sides[2] += [BookScores("unseen", books(rng, 1, 0, 0.3), SNIPPETS)]
    by_ranks, by_normal = (
        audit_books([("loss", "")], *sides, null_model=name) for name in (RANKS, NORMAL)
    )
    assert min(by_ranks.lowest_p) == pytest.approx(1 / 6)
    assert max(by_normal.lowest_p) < 0.001
    found = {suspect.title: suspect.p for suspect in by_normal.suspects}
    assert found["0.5 0"] < 0.01
    assert found["unseen"] > 0.05


@pytest.mark.parametrize(
    ("negatives", "suspects", "together"),
    [(5, 13, None), (18, 1, None), (19, 1, 1), (19, 13, 13), (25, 13, 10), (259, 13, 1)],
)
def test_it_is_known_how_many_suspects_must_stand_out_together(negatives, suspects, together):
    """By Benjamini and Hochberg's rule: k of S are found where S / (1 + n) is at most k · 5%."""
    rng = np.random.default_rng(0)
    score = partial(books, rng, offset=0.3, snippets=10)
    sides = [
        [BookScores(f"{n}", own[None], 10) for n, own in enumerate(score(size, share))]
        for size, share in ((8, 1), (negatives, 0), (suspects, 0))
    ]
    result = audit_books([("loss", "")], *sides)
    assert result.suspects_needed_together(0.05 * (1 + 1e-9)) == together
    p = np.ones(suspects)
    for number in range(1, suspects + 1):
        p[:number] = 1 / (1 + negatives)
        found = (q_values(p) <= 0.05 * (1 + 1e-9)).any()
        assert found == (together is not None and number >= together)
