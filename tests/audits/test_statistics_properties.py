"""What holds of the audits' statistics when texts are permuted, doubled, rescaled or relabelled.

Exact tests on few texts are compared with the enumeration of all labellings.
"""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from contamination.audits.benchmark.effects import (
    paired_auroc,
    question_p_values,
    without_cluster_means,
)
from contamination.audits.benchmark.exchangeability import (
    Design,
    combined_scores,
    merged_clusters,
    set_test,
)
from contamination.audits.books.contamination_rates import (
    Rates,
    q_values,
    rank_p_values,
    rogan_gladen,
)
from contamination.audits.one_run_bound.one_run_epsilon import one_run_epsilon, one_run_p_value
from contamination.audits.reference_attack.bavaria import bavaria
from contamination.audits.reference_attack.lira import lira_offline, lira_online
from contamination.audits.reference_attack.rmia import rmia
from contamination.audits.reference_attack.strength import mean_auroc
from contamination.audits.score.constat import bootstrap_p_value, expected_accuracy
from contamination.audits.score.epg_ipw import epg_ipw_score
from contamination.audits.score.platt import (
    estimate_prevalence,
    fit_platt,
    log_likelihood_ratios,
    membership_probabilities,
)
from contamination.audits.score.weighted_scores import (
    combined_score,
    imputed_score,
    ipw_score,
    naive_score,
)
from contamination.audits.set_tests.context_share import context_share_tail
from contamination.audits.set_tests.dataset_inference import dataset_inference_p_value
from contamination.audits.set_tests.dyepack import dyepack_tail
from contamination.audits.set_tests.order_test import exact_order_tail, order_t_p_value
from contamination.audits.set_tests.proportion import (
    scaled_adjusted_p_values,
    share_not_trained_on,
)
from contamination.audits.set_tests.version_rank import ScoredVersions, rank_tail
from contamination.audits.unlearning.comparison import ks_distance, swap_p_value
from contamination.audits.unlearning.exact_memorization import exact_memorization
from contamination.audits.unlearning.extraction_strength import extraction_strength
from contamination.audits.unlearning.forget_quality import forget_quality
from contamination.audits.unlearning.forget_ratio import fieller_interval, forget_ratio
from contamination.audits.unlearning.model_utility import model_utility
from contamination.audits.unlearning.privleak import privleak, privleak_interval
from contamination.audits.unlearning.truth_ratio import (
    mean_closeness_to_1,
    mean_preference_for_truth,
    truth_ratio,
)
from contamination.core.statistics.estimates import Estimate
from tests.properties import RISING, SEEDS, flags, orders, scores

P_VALUES = st.lists(st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=7)


# ---- sets of questions -------------------------------------------------------------------------


@st.composite
def designs(draw, paired=False):
    """Labels and clusters of few texts, two units of each side at least."""
    if paired:
        sizes = draw(st.lists(st.integers(2, 3), min_size=2, max_size=4))
        cluster = np.repeat(np.arange(len(sizes)), sizes)
        is_question = np.append(True, np.diff(cluster) > 0)  # the first of each cluster
        return Design(is_question, cluster)
    label = draw(flags(6))
    assume(min(label.sum(), (~label).sum()) >= 2)
    sizes = draw(st.lists(st.integers(1, 2), min_size=6, max_size=6))
    return Design(np.repeat(label, sizes), np.repeat(np.arange(6), sizes))


@settings(max_examples=20)
@given(st.data(), st.booleans(), SEEDS)
def test_a_set_test_is_that_of_all_relabellings(data, paired, seed):
    design = data.draw(designs(paired))
    values = data.draw(scores(len(design.cluster), len(design.cluster)))
    number = int(design.cluster.max()) + 1
    rows = [np.flatnonzero(design.cluster == cluster) for cluster in range(number)]
    if paired:
        labels = [np.isin(np.arange(len(values)), own) for own in product(*rows)]
    else:
        count = sum(design.is_question[own[0]] for own in rows)
        labels = [np.isin(design.cluster, own) for own in combinations(range(number), int(count))]
    statistics = []
    for label in labels:
        found = set_test(values, Design(label, design.cluster), seed, relabellings=1)
        without_error = np.copysign(np.inf, found.difference) if abs(found.difference) > 1e-9 else 0
        is_known = found.error > 1e-9
        statistics.append(found.difference / found.error if is_known else without_error)
    statistics = np.array(statistics)
    found = set_test(values, design, seed, relabellings=500)
    actual = statistics[[(label == design.is_question).all() for label in labels]][0]
    for p_value, reaching in (
        (found.p_value, statistics >= actual - 1e-9),
        (found.p_value_below, statistics <= actual + 1e-9),
    ):
        share = reaching.mean()
        assert abs(p_value - share) <= 4.5 * np.sqrt(share * (1 - share) / 500) + 1 / 501


@given(st.data(), st.booleans(), SEEDS)
def test_a_set_test_has_no_unit_and_no_order_of_clusters(data, paired, seed):
    design = data.draw(designs(paired))
    values = data.draw(scores(len(design.cluster), len(design.cluster)))
    found = set_test(values, design, seed, relabellings=50)
    rescaled = set_test(4 * values + 2, design, seed, relabellings=50)
    assert (rescaled.p_value, rescaled.p_value_below) == (found.p_value, found.p_value_below)
    assert rescaled.difference == pytest.approx(4 * found.difference)
    assert rescaled.error == pytest.approx(4 * found.error)
    order = data.draw(orders(len(values)))
    moved = Design(design.is_question[order], design.cluster[order])
    same = set_test(values[order], moved, seed, relabellings=5)
    assert (same.difference, same.error) == pytest.approx((found.difference, found.error))
    if not paired:
        other = set_test(values, Design(~design.is_question, design.cluster), seed, relabellings=5)
        assert other.difference == pytest.approx(-found.difference)
        assert other.error == pytest.approx(found.error)


@pytest.mark.parametrize("name", RISING)
@given(st.lists(scores(4, 4), min_size=1, max_size=3), st.data())
def test_combined_scores_depend_on_ranks_alone(name, methods, data):
    by_method = np.array(methods)
    found, order = combined_scores(by_method), data.draw(orders(4))
    np.testing.assert_allclose(combined_scores(RISING[name](by_method)), found)
    np.testing.assert_allclose(combined_scores(by_method[:, order]), found[order])
    np.testing.assert_allclose(combined_scores(by_method[::-1]), found, atol=1e-12)
    np.testing.assert_allclose(combined_scores(-by_method), -found, atol=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=7))
def test_clusters_are_merged_by_chains(pairs):
    groupings = [np.unique(own, return_inverse=True)[1] for own in zip(*pairs, strict=True)]
    together = np.zeros((len(pairs), len(pairs)), bool)
    for grouping in groupings:
        together |= grouping[:, None] == grouping
    for _ in pairs:
        together = together @ together
    merged = merged_clusters(*groupings)
    np.testing.assert_array_equal(merged[:, None] == merged, together)
    assert set(merged) == set(range(merged.max() + 1))


@given(st.data())
def test_a_question_is_compared_with_its_own_versions(data):
    import pandas as pd

    design = data.draw(designs(paired=True))
    values = data.draw(scores(len(design.cluster), len(design.cluster)))
    found = paired_auroc(pd.Series(values), design)
    wins, p_values = [], []
    for cluster in range(design.cluster.max() + 1):
        own, *others = values[design.cluster == cluster]
        wins.append(np.mean([(own > other) + 0.5 * (own == other) for other in others]))
        p_values.append((1 + sum(other >= own for other in others)) / (1 + len(others)))
    assert found.value == pytest.approx(np.mean(wins))
    np.testing.assert_allclose(question_p_values(values, design), p_values)
    shifted = values + 10 * design.cluster  # a cluster's level says nothing
    assert paired_auroc(pd.Series(shifted), design).value == pytest.approx(found.value)
    np.testing.assert_allclose(question_p_values(shifted, design), p_values)
    np.testing.assert_allclose(
        without_cluster_means(shifted, design), without_cluster_means(values, design), atol=1e-9
    )


# ---- tests of published sets -------------------------------------------------------------------


@given(st.lists(scores(2, 3), min_size=1, max_size=4), st.data())
def test_the_rank_test_counts_all_choices_of_one_version_per_item(items, data):
    """Its null distribution is uniform over the choices: exact by enumeration."""
    item = np.repeat(np.arange(len(items)), [len(own) for own in items])
    chosen = [data.draw(st.integers(0, len(own) - 1)) for own in items]
    ranks = [np.array([(own < x).sum() + (own <= x).sum() for x in own]) for own in items]
    published = np.concatenate([np.arange(len(o)) == c for o, c in zip(items, chosen, strict=True)])
    found = rank_tail(ScoredVersions(np.concatenate(items), item, published))
    sums = np.array([sum(own) for own in product(*ranks)])
    actual = sum(own[c] for own, c in zip(ranks, chosen, strict=True))
    assert found.p_value == pytest.approx(np.mean(sums >= actual))
    assert found.above == pytest.approx(np.mean(sums > actual))
    order = data.draw(orders(len(item)))
    rescaled = RISING["exponential"](np.concatenate(items))[order]
    moved = rank_tail(ScoredVersions(rescaled, item[order], published[order]))
    assert moved == pytest.approx(found)


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_backdoors_are_activated_as_often_as_by_all_targets(options):
    every = [sum(own == 0 for own in target) for target in product(*map(range, options))]
    for activated in range(len(options) + 1):
        found = dyepack_tail(activated, options)
        assert found.p_value == pytest.approx(np.mean(np.array(every) >= activated))
        assert found.above == pytest.approx(np.mean(np.array(every) > activated))
        assert dyepack_tail(activated, options[::-1]) == pytest.approx(found)


@pytest.mark.parametrize("texts", range(1, 9))
def test_the_share_of_dropped_texts_is_that_of_coins(texts):
    sums = np.array([sum(own) for own in product([0, 1], repeat=texts)])
    for dropped in range(texts + 1):
        found = context_share_tail(dropped, texts)
        assert found.p_value == pytest.approx(np.mean(sums >= dropped))
        assert found.above == pytest.approx(np.mean(sums > dropped), abs=1e-12)


@given(st.integers(2, 4), st.integers(1, 3), SEEDS, st.data())
def test_the_order_test_has_no_unit_and_no_order_of_shards(shards, drawn, seed, data):
    rng = np.random.default_rng(seed)
    published, random = rng.normal(size=shards), rng.normal(size=(shards, drawn))
    order = data.draw(orders(shards))
    level = rng.normal(size=shards)  # of a shard: common to all of its orders
    moved = 3 * (published + level)[order], 3 * (random + level[:, None])[order]
    assert order_t_p_value(*moved) == pytest.approx(order_t_p_value(published, random))
    assert exact_order_tail(*moved) == pytest.approx(exact_order_tail(published, random))
    assert order_t_p_value(-published, -random) == pytest.approx(
        1 - order_t_p_value(published, random)
    )


@settings(max_examples=15)
@given(st.integers(1, 3), SEEDS)
def test_dataset_inference_depends_on_ranks_alone(methods, seed):
    values = np.random.default_rng(seed).normal(size=(methods, 16))
    suspects = np.arange(16) < 8
    found = dataset_inference_p_value(values, suspects, seed, 4)
    assert 0 <= found <= 1
    assert dataset_inference_p_value(np.exp(values), suspects, seed, 4) == pytest.approx(found)
    assert dataset_inference_p_value(-values, suspects, seed, 4) == pytest.approx(found)
    same = dataset_inference_p_value(np.zeros_like(values), suspects, seed, 4)
    assert same == 1


@given(P_VALUES, st.data())
def test_shares_and_corrections_do_not_depend_on_the_order(p_values, data):
    p_values = np.array(p_values)
    order = data.draw(orders(len(p_values)))
    share = share_not_trained_on(p_values)
    assert share == share_not_trained_on(p_values[order]) <= 1
    for correct in (scaled_adjusted_p_values, q_values):
        adjusted = correct(p_values)
        np.testing.assert_allclose(correct(p_values[order]), adjusted[order])
        assert (np.diff(adjusted[np.argsort(p_values)]) >= -1e-12).all()
    naive = [
        min(min(1.0, len(p_values) * p / (p_values <= p).sum()) for p in p_values[p_values >= own])
        for own in p_values
    ]
    np.testing.assert_allclose(q_values(p_values), naive)


# ---- one training run --------------------------------------------------------------------------


@pytest.mark.parametrize("guesses", [1, 3, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_the_p_value_of_one_run_is_that_of_all_outcomes_of_its_coins(guesses, epsilon):
    """With δ = 0: each guess is right with probability σ(ε), by enumeration."""
    right = expit(epsilon)
    outcomes = np.array([*product([0, 1], repeat=guesses)])
    chance = (right**outcomes * (1 - right) ** (1 - outcomes)).prod(axis=1)
    for correct in range(guesses + 1):
        exact = chance[outcomes.sum(axis=1) >= correct].sum()
        assert one_run_p_value(9, guesses, correct, epsilon, 0.0) == pytest.approx(exact)


@given(st.integers(1, 30), st.data())
def test_a_bound_of_one_run_grows_with_right_guesses_and_with_less_confidence(guesses, data):
    correct = data.draw(st.integers(0, guesses))
    found = one_run_epsilon(40, guesses, correct, 1e-5, 0.95)
    assert found <= one_run_epsilon(40, guesses, correct, 1e-5, 0.8) + 1e-9
    assert found <= one_run_epsilon(40, guesses, correct, 0.0, 0.95) + 1e-9
    if correct < guesses:
        assert found <= one_run_epsilon(40, guesses, correct + 1, 1e-5, 0.95) + 1e-9
    if found > 0:
        assert one_run_p_value(40, guesses, correct, found, 1e-5) == pytest.approx(0.05, abs=1e-6)


# ---- books -------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0.5, 1), st.floats(0, 0.4))
def test_a_share_and_its_complement_add_up(observed, high, low):
    share = rogan_gladen(observed, high, low)
    assert 0 <= share <= 1
    assert rogan_gladen(1 - observed, 1 - low, 1 - high) == pytest.approx(1 - share)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.integers(0, 6), st.data())
def test_a_books_rank_does_not_depend_on_the_order_of_the_others(counts, own, data):
    rates, fold = np.array(counts) / 6, np.zeros(len(counts), np.intp)
    order = data.draw(orders(len(counts)))
    for snippets in (3.0, 6.0):
        suspect = np.full((1, 1), own / 6), np.array([snippets])
        found, moved = (
            rank_p_values(*suspect, Rates(values, np.full(len(counts), 6.0)), fold)
            for values in (rates, rates[order])
        )
        assert found == pytest.approx(moved)
        assert found[0] >= 1 / (1 + len(counts))
    assert found[0] == pytest.approx((1 + (rates >= own / 6).sum()) / (1 + len(counts)))


# ---- attacks with references -------------------------------------------------------------------

ATTACKS = {
    "LiRA online, per example": lambda p, i, o: lira_online(p, i, o, "per_example"),
    "LiRA online, pooled": lambda p, i, o: lira_online(p, i, o, "pooled"),
    "LiRA online, shrunk": lambda p, i, o: lira_online(p, i, o, "shrunk"),
    "LiRA offline": lambda p, i, o: lira_offline(p, o, "pooled"),
    "BaVarIA": bavaria,
    "RMIA": lambda p, i, o: rmia(p, i, o, 1.0),
}


@pytest.mark.parametrize("name", ATTACKS)
@settings(max_examples=10)
@given(SEEDS)
def test_an_attack_depends_neither_on_the_order_of_cells_nor_of_examples(name, seed):
    rng = np.random.default_rng(seed)
    inside = rng.permuted(np.repeat([[True], [False]], [4, 4], axis=0).repeat(5, 1), axis=0)
    phi = rng.normal(size=inside.shape) - 3 + inside
    found = ATTACKS[name](phi, inside, ~inside)
    cells, examples = rng.permutation(8), rng.permutation(5)
    place = np.ix_(cells, examples)
    moved = ATTACKS[name](phi[place], inside[place], ~inside[place])
    np.testing.assert_allclose(moved, found[place], rtol=1e-6, atol=1e-8)
    shifted = ATTACKS[name](phi + 2, inside, ~inside)
    np.testing.assert_allclose(shifted, found, rtol=1e-6, atol=1e-8)
    if name not in ("RMIA", "LiRA offline"):  # labels exchanged: the evidence is reversed
        reverse = ATTACKS[name](phi, ~inside, inside)
        np.testing.assert_allclose(reverse, -found, rtol=1e-6, atol=1e-8)
    if name != "RMIA":
        doubled = ATTACKS[name](2 * phi, inside, ~inside)
        np.testing.assert_allclose(doubled, found, rtol=1e-6, atol=1e-8)


@settings(max_examples=20)
@given(SEEDS)
def test_a_mean_auroc_is_reflected_by_exchanged_labels(seed):
    rng = np.random.default_rng(seed)
    inside = rng.permuted(np.arange(8) < 4, axis=0)[None] ^ np.array([[False], [True], [False]])
    values, benchmarks = rng.integers(0, 4, (3, 8)).astype(float), np.repeat(["x", "y"], 4)
    try:
        found = mean_auroc(values, inside, ~inside, benchmarks)
    except ValueError:
        return
    reverse = mean_auroc(values, ~inside, inside, benchmarks)
    assert (reverse.value, reverse.error) == pytest.approx((1 - found.value, found.error))
    cells, examples = rng.permutation(3), rng.permutation(8)
    place = np.ix_(cells, examples)
    moved = mean_auroc(np.exp(values[place]), inside[place], ~inside[place], benchmarks[examples])
    assert (moved.value, moved.error) == pytest.approx((found.value, found.error))


# ---- corrected scores --------------------------------------------------------------------------


@given(SEEDS)
def test_corrected_scores_count_items_by_how_often_they_are_drawn(seed):
    rng = np.random.default_rng(seed)
    correct, membership, predicted = (rng.random(7) < 0.6) * 1.0, rng.random(7), rng.random(7)
    counts = rng.integers(1, 4, 7).astype(float)
    rows, order, ones = np.repeat(np.arange(7), counts.astype(int)), rng.permutation(7), np.ones
    for score, columns in (
        (naive_score, (correct,)), (ipw_score, (correct, membership)),
        (imputed_score, (predicted,)), (combined_score, (correct, membership, predicted)),
        (epg_ipw_score, (correct, membership)),
    ):  # fmt: skip
        found = score(*columns, counts)
        assert score(*(own[rows] for own in columns), ones(len(rows))) == pytest.approx(found)
        assert score(*(own[order] for own in columns), counts[order]) == pytest.approx(found)
        assert score(*columns, 3 * counts) == pytest.approx(found)
    known = np.zeros(7)
    for own in (
        ipw_score(correct, known, counts), epg_ipw_score(correct, known, counts),
        combined_score(correct, known, predicted, counts),
    ):  # fmt: skip
        assert own == pytest.approx(naive_score(correct, counts))  # nothing was seen
    seen = combined_score(correct, ones(7), predicted, counts)
    assert seen == pytest.approx(imputed_score(predicted, counts))


@settings(max_examples=20)
@given(SEEDS, st.floats(0.1, 5), st.floats(-3, 3))
def test_a_calibrated_probability_does_not_depend_on_the_unit_of_the_score(seed, factor, shift):
    rng = np.random.default_rng(seed)
    member = np.arange(20) < 9
    values, counts = rng.normal(size=20) + member, rng.integers(1, 3, 20).astype(float)

    def probabilities(values, member):
        sides = counts[member].sum(), counts[~member].sum()
        ratios = log_likelihood_ratios(values, *fit_platt(values, member, counts), *sides)
        return membership_probabilities(ratios, estimate_prevalence(ratios, counts))

    found = probabilities(values, member)
    np.testing.assert_allclose(probabilities(factor * values + shift, member), found, atol=1e-6)
    np.testing.assert_allclose(probabilities(values, ~member), 1 - found, atol=1e-6)
    order = rng.permutation(20)
    counts = counts[order]
    np.testing.assert_allclose(probabilities(values[order], member[order]), found[order], atol=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), SEEDS)
def test_an_expected_accuracy_does_not_depend_on_the_order_of_models(references, seed):
    rng = np.random.default_rng(seed)
    models, benchmark = np.array(references), rng.random(len(references))
    order = rng.permutation(len(models))
    found = expected_accuracy(0.5, models, benchmark, 100)
    assert expected_accuracy(0.5, models[order], benchmark[order], 100) == pytest.approx(found)
    assert expected_accuracy(0.5, models, models, 100) == pytest.approx(0.5)
    mirrored = expected_accuracy(0.5, 1 - models, 1 - benchmark, 100)
    assert mirrored == pytest.approx(1 - found)
    draws = rng.normal(size=19)
    assert bootstrap_p_value(0.3, draws) == bootstrap_p_value(0.3, draws[::-1])
    assert bootstrap_p_value(0.6, 2 * draws) == bootstrap_p_value(0.3, draws)


# ---- unlearning --------------------------------------------------------------------------------


def test_a_p_value_of_1_is_above_1_by_no_rounding():
    """SciPy warns of it for two samples of 5, 7, 13, … that differ by one step."""
    values = np.arange(7.0)
    assert forget_quality(values, np.append(values[:-1], 9)) == pytest.approx(1, abs=1e-3)


@given(st.integers(2, 8), SEEDS)
def test_a_distance_of_models_depends_on_ranks_and_not_on_who_is_first(units, seed):
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 5, (2, units)).astype(float)
    text, order = np.array([f"t{i // 2}" for i in range(units)]), rng.permutation(units)
    found = ks_distance(one, other)
    assert ks_distance(other, one) == pytest.approx(found)
    assert ks_distance(np.exp(one[order]), np.exp(other[order])) == pytest.approx(found)
    assert ks_distance(np.repeat(one, 2), np.repeat(other, 2)) == pytest.approx(found)
    p_value = swap_p_value(one, other, text, seed)
    assert swap_p_value(other, one, text, seed) == p_value
    assert swap_p_value(one, one, text, seed) == 1
    assert forget_quality(one, other) == pytest.approx(forget_quality(other[order], one))


@given(SEEDS, st.floats(0.1, 5), st.floats(-5, 5))
def test_a_forget_ratio_has_no_unit(seed, factor, shift):
    rng = np.random.default_rng(seed)
    draws = np.array([3.0, 2.0, 1.0])[:, None] + rng.normal(0, 0.1, (3, 40))
    own = [Estimate(30, 0, row.mean(), row) for row in draws]
    moved = [Estimate(30, 0, factor * e.value + shift, factor * e.draws + shift) for e in own]
    found, rescaled = (forget_ratio(estimates, 30) for estimates in (own, moved))
    np.testing.assert_allclose(
        (rescaled.value, rescaled.low, rescaled.high), (found.value, found.low, found.high),
        rtol=1e-6,
    )  # fmt: skip
    assert found.low <= found.value <= found.high
    original, unlearned, clean = own
    reverse = forget_ratio([clean, unlearned, original], 30)
    if not reverse.reason:  # the way from the other end
        assert reverse.value == pytest.approx(1 - found.value)
    assert forget_ratio([original, original, clean], 30).value == 0
    assert forget_ratio([original, clean, clean], 30).value == 1


@given(st.floats(-3, 3), st.floats(1, 3), st.floats(0.01, 0.2), st.floats(0.01, 0.2),
       st.floats(-0.9, 0.9))  # fmt: skip
def test_fiellers_interval_holds_the_ratio_and_mirrors_with_its_numerator(
    numerator, denominator, first, second, correlation
):
    covariance = np.array([[first, correlation * np.sqrt(first * second)]] * 2)
    covariance[1] = covariance[0, 1], second
    found = fieller_interval(numerator, denominator, covariance, 1.0)
    assume(found is not None)
    low, high = found
    assert low <= numerator / denominator <= high
    mirrored = covariance * [[1, -1], [-1, 1]]
    assert fieller_interval(-numerator, denominator, mirrored, 1.0) == pytest.approx((-high, -low))
    wider = fieller_interval(numerator, denominator, covariance, 1.2)
    assert wider is None or wider[0] <= low <= high <= wider[1]


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_memorization_and_extraction_read_the_same_tokens(tokens):
    greedy = np.array(tokens)
    strength, share = extraction_strength(greedy), exact_memorization(greedy)
    assert 0 <= strength <= share + 1e-12
    assert share <= 1
    shortest = min(k for k in range(len(tokens) + 1) if all(tokens[k:]))
    assert strength == pytest.approx(1 - shortest / len(tokens))
    assert exact_memorization(greedy[::-1]) == share
    assert exact_memorization(~greedy) == pytest.approx(1 - share)
    assert extraction_strength(np.repeat(greedy, 2)) == pytest.approx(strength)


@given(st.floats(-5, 0), st.lists(st.floats(-5, 0), min_size=1, max_size=4), st.floats(-2, 0))
def test_a_truth_ratio_compares_and_so_has_no_level(right, wrong, shift):
    wrong = np.array(wrong)
    found = truth_ratio(right, wrong)
    assert truth_ratio(right + shift, wrong + shift) == pytest.approx(found)
    assert truth_ratio(right, wrong[::-1]) == pytest.approx(found)
    assert truth_ratio(right, np.repeat(wrong, 2)) == pytest.approx(found)
    ratios = np.array([found, 1 / found])
    assert mean_closeness_to_1(ratios) == pytest.approx(min(ratios))
    assert mean_preference_for_truth(ratios) == pytest.approx((1 - min(ratios)) / 2)
    assert truth_ratio(right, np.array([right])) == pytest.approx(1)


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(0, 0.2))
def test_privleak_is_zero_at_the_twin_and_falls_with_what_is_known(unlearned, retrained, width):
    found = privleak(unlearned, retrained)
    assert privleak(retrained, retrained) == 0
    assert privleak(1.0, retrained) == pytest.approx(-100)
    assert privleak(min(1, unlearned + width), retrained) <= found
    low, high = privleak_interval(
        (unlearned, min(1, unlearned + width)), (retrained, min(0.995, retrained + width))
    )
    assert low - 1e-9 <= found <= high + 1e-9
    assert privleak(1 - unlearned) == pytest.approx(-privleak(unlearned))


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=9), st.data())
def test_utility_is_a_harmonic_mean(values, data):
    found = model_utility(values)
    assert min(values) - 1e-12 <= found <= np.mean(values) + 1e-12
    order = data.draw(orders(len(values)))
    assert model_utility([values[i] for i in order]) == pytest.approx(found)
    assert model_utility(values * 2) == pytest.approx(found)
    assert model_utility([v / 2 for v in values]) == pytest.approx(found / 2)
    assert model_utility([*values, 0.0]) == 0
    assert np.isnan(model_utility([*values, np.nan]))
