"""The one-run bound: its equation, its rules, and its error rate where ε is known."""

import re
from dataclasses import replace
from math import comb

import mpmath
import numpy as np
import pytest
from scipy.special import expit

from contamination.audits.one_run_bound.guesses import (
    AttackScores,
    GuessRule,
    OneRunBound,
    bound,
    bound_of_several,
    choose_on_half,
)
from contamination.audits.one_run_bound.one_run_epsilon import one_run_epsilon, one_run_p_value
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed

COUNTS = [(100, 20, 20), (300, 80, 60), (120, 120, 70), (64, 8, 3), (50, 10, 0), (30, 0, 0)]


def p_value_by_loops(m, r, v, epsilon, delta):
    """Theorem 5.2 of Steinke et al. (2023) in 50 digits, sum by sum."""
    with mpmath.workdps(50):
        q = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        pmf = [comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
        beta = mpmath.fsum(pmf[v:])
        alpha = max(
            (mpmath.fsum(pmf[max(0, v - i) : v]) / i for i in range(1, m + 1)),
            default=mpmath.mpf(0),
        )
        return float(min(mpmath.mpf(1), beta + 2 * m * mpmath.mpf(delta) * alpha))


@pytest.mark.parametrize(("m", "r", "v"), COUNTS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_p_value_is_theorem_5_2(m, r, v, epsilon, delta):
    expected = p_value_by_loops(m, r, v, epsilon, delta)
    assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("r", "epsilon"), [(20, 1.82), (50, 2.78), (100, 3.49), (400, 4.89)])
def test_all_right_gives_the_bounds_that_are_known(r, epsilon):
    assert one_run_epsilon(800, r, r, 0.0, 0.95) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_epsilon_is_where_the_p_value_crosses_the_level(delta):
    epsilon = one_run_epsilon(800, 200, 160, delta, 0.95)
    assert epsilon > 0.5
    assert one_run_p_value(800, 200, 160, epsilon, delta) == pytest.approx(0.05, abs=1e-8)
    assert one_run_epsilon(800, 200, 105, delta, 0.95) == 0
    small = one_run_epsilon(800, 200, 118, delta, 0.95)
    assert 0 < small < 0.5
    assert one_run_p_value(800, 200, 118, small, delta) == pytest.approx(0.05, abs=1e-8)


def test_a_larger_delta_and_fewer_right_guesses_refute_less():
    bounds = [one_run_epsilon(800, 200, 160, delta, 0.95) for delta in (0, 1e-6, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]
    by_right = [one_run_epsilon(800, 200, v, 1e-5, 0.95) for v in range(100, 201, 10)]
    assert by_right == sorted(by_right)


@pytest.mark.parametrize(("m", "r", "v"), [(100, 8, 9), (7, 8, 8), (100, 8, -1)])
def test_more_right_guesses_than_guesses_or_coins_are_an_error(m, r, v):
    with pytest.raises(ValueError, match=f"^{v} right of {r} guesses about {m} coins$"):
        one_run_p_value(m, r, v, 1.0, 0.0)


@pytest.mark.parametrize(("m", "r", "v"), COUNTS)
def test_it_agrees_with_jax_privacy_if_that_is_installed(m, r, v):
    auditing = pytest.importorskip("jax_privacy.auditing")
    for epsilon in (0.0, 0.7, 3.0):
        theirs = auditing._one_run_p_value(m, r, v, epsilon, 1e-5)
        assert one_run_p_value(m, r, v, epsilon, 1e-5) == theirs


# rules


def attack(scores, name="loss"):
    benchmarks = np.array(["a", "b"] * (len(scores) // 2))
    return AttackScores(name, np.asarray(scores, float), benchmarks)


def randomised_response(rng, examples, epsilon):
    """Scores of the (ε, 0)-private mechanism that leaks most, and the coins."""
    member = rng.random(examples) < 0.5
    told = np.where(rng.random(examples) < expit(epsilon), member, ~member)
    return attack(told + 0.01 * rng.random(examples)), member


def test_guesses_are_the_extremes_within_each_benchmark():
    scores = attack(np.arange(40.0))
    scores.scores[1::2] += 1000  # the second benchmark's scores are on another scale
    guesses = GuessRule("loss", 0.2).guess(scores)
    for side in (0, 1):
        assert guesses.signs[side::2].tolist() == [-1, -1, *[0] * 16, 1, 1]


def test_ranks_are_shares_of_the_ranked_examples_of_a_benchmark():
    scores = AttackScores("loss", np.array([1.0, 3, 3, 2, 5, 4]), np.array([*"aaabbb"]))
    among = np.array([1, 1, 1, 1, 0, 1], bool)
    expected = [1 / 6, 2 / 3, 2 / 3, 1 / 4, np.nan, 3 / 4]
    np.testing.assert_allclose(scores.ranks(among), expected)


def test_guesses_are_about_judged_examples_alone_and_equal_ranks_go_by_position():
    equal = AttackScores("loss", np.zeros(10), np.array(["a"] * 10))
    judged = np.arange(10) != 0
    guesses = GuessRule("loss", 0.5, judged).guess(equal)
    assert guesses.signs.tolist() == [0, -1, -1, 0, 0, 0, 0, 0, 1, 1]  # 4.5 guesses of 9
    assert (guesses.judged == judged).all()
    assert guesses.rule == GuessRule("loss", 0.5)
    whole = GuessRule("loss", 1.0).guess(equal)
    assert whole.signs.tolist() == [-1] * 5 + [1] * 5
    assert whole.judged.tolist() == [True] * 10


def test_a_bound_counts_the_right_guesses_of_the_judged_examples():
    scores = attack(np.arange(60.0))
    judged, member = np.arange(60) >= 20, np.arange(60) >= 26
    rule = GuessRule("loss", 0.5, judged)  # the ten lowest of forty and the ten highest
    assert bound(rule, scores, member, 1e-3, 0.9) == OneRunBound(
        rule, one_run_epsilon(40, 20, 16, 1e-3, 0.9), one_run_p_value(40, 20, 16, 0.0, 1e-3),
        40, 20, 16, 1e-3, 0.9, one_run_epsilon(40, 20, 20, 1e-3, 0.9),
    )  # fmt: skip


def test_the_best_of_several_rules_has_the_largest_bound_and_then_the_least_p_value():
    scores = attack(np.arange(40.0))
    attacks = {"loss": scores, "worse": attack(np.roll(np.arange(40.0), 10), "worse")}
    rules = [GuessRule("worse", 0.5), GuessRule("loss", 0.5), GuessRule("loss", 0.1)]
    member = np.arange(40) >= 20
    best = bound_of_several(rules, attacks, member, 0.0, 0.9)
    assert (best.rule, best.looks) == (rules[1], 3)
    assert best.epsilon == bound(rules[1], scores, member, 0.0, 1 - 0.1 / 3).epsilon > 0
    random_members = np.arange(40) % 4 < 2
    best_of_chance = bound_of_several(rules, attacks, random_members, 0.0, 0.9)
    p_values = {
        rule: bound(rule, attacks[rule.attack], random_members, 0.0, 0.9).p_value for rule in rules
    }
    assert best_of_chance.epsilon == 0
    assert best_of_chance.p_value == min(p_values.values()) < max(p_values.values())


def test_a_rule_is_chosen_by_the_bound_on_a_half_that_the_seed_draws():
    rng = np.random.default_rng(5)
    scores, member = randomised_response(rng, 61 * 2 + 1, 3.0)
    scores = replace(scores, benchmarks=np.array(["a"] * 123), scores=scores.scores[:123])
    noise = replace(scores, attack="noise", scores=rng.random(123))
    order = np.random.default_rng(derive_seed(4, "one-run halves")).permutation(123)
    chosen_on = np.isin(np.arange(123), order[:61])
    rule = choose_on_half([noise, scores], member, 1e-4, 0.9, 4, (0.1, 0.6, 0.9))
    assert (rule.judged == ~chosen_on).all()
    bounds = {
        share: bound(GuessRule("loss", share, chosen_on), scores, member, 1e-4, 0.9).epsilon
        for share in (0.1, 0.6, 0.9)
    }
    assert rule == GuessRule("loss", max(bounds, key=bounds.get))
    noise_rule = choose_on_half([noise], member, 1e-4, 0.95, 4, (0.1, 0.6))
    noise_bounds = {
        share: bound(GuessRule("noise", share, chosen_on), noise, member, 1e-4, 0.95)
        for share in (0.1, 0.6)
    }
    assert {lower_bound.epsilon for lower_bound in noise_bounds.values()} == {0}
    assert noise_rule.share == min(noise_bounds, key=lambda share: noise_bounds[share].p_value)


def test_guesses_do_not_depend_on_the_coins():
    rng = np.random.default_rng(0)
    scores, member = randomised_response(rng, 200, 1.0)
    rule = GuessRule("loss", 0.5)
    assert bound(rule, scores, member, 0, 0.95).guesses == 100
    assert bound(rule, scores, ~member, 0, 0.95).correct + bound(
        rule, scores, member, 0, 0.95
    ).correct == 100  # fmt: skip


def test_another_attacks_scores_are_refused():
    scores, member = randomised_response(np.random.default_rng(0), 100, 1.0)
    message = (
        "audit.attack is 'min_k k=0.2', but these are scores of 'loss': a rule that was fixed for "
        "one attack says nothing about another. Name the attack in advance."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        bound(GuessRule("min_k k=0.2", 0.5), scores, member, 0, 0.95)


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 1.0), (1.0, 0.5), (2.0, 1.0)])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_bound_is_above_the_true_epsilon_in_at_most_one_of_twenty(epsilon, share, delta):
    rng, rule = np.random.default_rng(7), GuessRule("loss", share)
    draws = [randomised_response(rng, 300, epsilon) for _ in range(200)]
    bounds = [bound(rule, scores, member, delta, 0.95).epsilon for scores, member in draws]
    assert np.mean(np.array(bounds) > epsilon) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert epsilon == 0 or np.median(bounds) > 0.6 * epsilon  # and it says something


def least_p_value(scores, member):
    """What is not a p-value: the best of many rules, judged by the coins that chose it."""
    shares = np.linspace(0.05, 1, 15)
    return min(bound(GuessRule("loss", s), scores, member, 0, 0.95).p_value for s in shares)


def test_a_rule_chosen_on_one_half_is_a_bound_and_one_chosen_on_all_is_not():
    rng = np.random.default_rng(1)
    null = [randomised_response(rng, 200, 0.0) for _ in range(100)]
    split = [
        bound(choose_on_half([scores], member, 0, 0.95, seed), scores, member, 0, 0.95)
        for seed, (scores, member) in enumerate(null)
    ]
    assert np.mean([of_half.epsilon > 0 for of_half in split]) <= 0.05 + 2 * 0.022
    assert all(of_half.examples == 100 for of_half in split)
    assert np.mean([least_p_value(*pair) < 0.05 for pair in null]) > 0.1


def test_several_rules_named_in_advance_are_corrected():
    rng = np.random.default_rng(2)
    rules = [GuessRule("loss", share) for share in (0.1, 0.25, 0.5, 1.0)]
    null = [randomised_response(rng, 200, 0.0) for _ in range(100)]
    bounds = [bound_of_several(rules, {"loss": s}, m, 0, 0.95) for s, m in null]
    assert np.mean([of_all.epsilon > 0 for of_all in bounds]) <= 0.05 + 2 * 0.022
    assert bounds[0].confidence == pytest.approx(1 - 0.05 / 4)


def test_the_halves_do_not_share_an_example():
    scores, member = randomised_response(np.random.default_rng(3), 101 * 2, 2.0)
    rule = choose_on_half([scores, replace(scores, attack="min_k")], member, 0, 0.95, seed=0)
    guesses = rule.guess(replace(scores, attack=rule.attack))
    assert rule.judged.sum() == 101
    assert not guesses.signs[~rule.judged].any()
    rule_by_seed = [choose_on_half([scores], member, 0, 0.95, seed).judged for seed in (0, 1)]
    assert (rule_by_seed[0] == rule.judged).all()
    assert (rule_by_seed[0] != rule_by_seed[1]).any()
