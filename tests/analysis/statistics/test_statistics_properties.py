"""What holds of the statistics of reports when examples are permuted, doubled, moved or relabelled.

`tests/core/test_statistics_properties.py` has the same for the metrics and intervals below them.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from contamination.analysis.conditions import chosen_fields, distinguishing_suffixes, recipe_digest
from contamination.analysis.factors import FACTORS
from contamination.analysis.statistics.controls import ControlKey, distances_from_chance
from contamination.analysis.statistics.dose_response import (
    BenchmarkScores,
    dose_response,
    dose_response_of_groups,
    log_dose_at_level,
    slope_interval,
)
from contamination.analysis.statistics.kendall_trend import design_effect, joint_test, make_stratum
from contamination.analysis.statistics.paired import Differences, max_t_p_values, pairwise_p_values
from contamination.analysis.statistics.shared_permutations import induced_permutations
from contamination.analysis.statistics.turning_points import (
    format_levels,
    parse_level_indices,
    turning_points,
)
from contamination.core.statistics.bootstrap import Resample, draw_resample
from tests.properties import RISING, SEEDS, orders, scores

DOSES = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=4, max_size=10).filter(
    lambda doses: len(set(doses)) > 1
)


def stratum_of(doses, values, names=None):
    names = np.arange(len(doses)) if names is None else names
    return make_stratum(names, np.array(doses), np.asarray(values, float))


@pytest.mark.parametrize("name", RISING)
@given(DOSES, st.data())
def test_a_trend_depends_on_the_order_of_doses_and_scores_alone(name, doses, data):
    values = data.draw(scores(len(doses), len(doses)))
    found = stratum_of(doses, values)
    order = data.draw(orders(len(doses)))
    moved = stratum_of(np.array(doses)[order], RISING[name](values[order]), order)
    logarithmic = stratum_of(np.log2(doses), values)
    for other in (moved, logarithmic):
        assert (other.tau, other.z) == pytest.approx((found.tau, found.z))
    assert joint_test([moved]) == pytest.approx(joint_test([found]))
    assert design_effect([found]) == pytest.approx(1)
    assert found.tau == pytest.approx(np.nan_to_num(kendalltau(doses, values).statistic))


@given(DOSES, st.data())
def test_a_reversed_trend_is_as_strong_the_other_way(doses, data):
    values = data.draw(scores(len(doses), len(doses)))
    found, reverse = stratum_of(doses, values), stratum_of(doses, -values)
    assert (reverse.tau, reverse.z) == pytest.approx((-found.tau, -found.z))
    (tau, p_value), (reverse_tau, reverse_p) = joint_test([found]), joint_test([reverse])
    assert (reverse_tau, reverse_p) == pytest.approx((-tau, 1 - p_value))
    together = joint_test([found, stratum_of(doses, -values, np.arange(len(doses)) + 100)])
    assert together == pytest.approx((0, 0.5))


@given(DOSES, st.data())
def test_the_same_examples_twice_are_no_more_evidence(doses, data):
    """Two seeds with the same examples at the same doses and the same scores."""
    values = data.draw(scores(len(doses), len(doses)))
    assume(np.ptp(values) > 0)
    found = stratum_of(doses, values)
    assert design_effect([found, found]) == pytest.approx(2)
    assert joint_test([found, found]) == pytest.approx(joint_test([found]))
    others = stratum_of(doses, values, np.arange(len(doses)) + 100)
    assert design_effect([found, others]) == pytest.approx(1)
    order = [found, others, found]
    assert joint_test(order) == pytest.approx(joint_test(order[::-1]))


def simulated(seed, effect, draws=12):
    """Scores of 16 members at four doses and of 14 others, and their draws."""
    rng = np.random.default_rng(seed)
    x = np.repeat([0.0, 1.0, 2.0, 3.0], 4)
    members, others = rng.normal(effect * x), rng.normal(size=14) + 0.8 * effect
    return BenchmarkScores(x, members, others, draw_resample(16, 14, draws, seed))


def assert_same_slope(one, other, sign=1.0):
    assert other.slope.needs == one.slope.needs
    assert other.slope.value == pytest.approx(sign * one.slope.value, abs=1e-6, nan_ok=True)
    np.testing.assert_allclose(other.slope.draws, sign * one.slope.draws, atol=1e-5)


@settings(max_examples=12)
@given(SEEDS, st.sampled_from([0.0, 0.4, 0.9]), st.data())
def test_a_slope_depends_on_ranks_and_on_doses_per_doubling_alone(seed, effect, data):
    sample = simulated(seed, effect)
    found = dose_response([sample], 0.95)
    x, members, others, drawn = sample
    assert_same_slope(found, dose_response([sample._replace(
        members=3 * members + 5, nonmembers=3 * others + 5)], 0.95))  # fmt: skip
    own, its = data.draw(orders(16)), data.draw(orders(14))
    moved = BenchmarkScores(
        x[own], members[own], others[its],
        Resample(drawn.members[:, own], drawn.nonmembers[:, its]),
    )  # fmt: skip
    assert_same_slope(found, dose_response([moved], 0.95))
    eightfold = dose_response([sample._replace(log_occurrences=x + 3)], 0.95)
    assert_same_slope(found, eightfold)  # each dose eight times as high
    mirrored = dose_response([sample._replace(members=-members, nonmembers=-others)], 0.95)
    assert_same_slope(found, mirrored, sign=-1)
    second = simulated(seed + 1, effect)
    assert_same_slope(dose_response([sample, second], 0.95), dose_response([second, sample], 0.95))
    if not found.slope.needs:
        low, high = slope_interval(found.curves.slope, 0.95)
        assert low <= found.slope.value <= high
        for level in (0.6, 0.75):
            (at, *_), (higher, *_) = (
                log_dose_at_level(dose.curves, *ends, level)
                for dose, ends in ((found, (0.0, 3.0)), (eightfold, (3.0, 6.0)))
            )
            assert higher == pytest.approx(at + 3, abs=1e-5)
            if np.isfinite(at):
                assert found.curves.auroc_at(at)[0] == pytest.approx(level, abs=1e-6)


@given(st.lists(st.sampled_from([0.5, 0.6, 0.7, 0.9]), min_size=3, max_size=5), SEEDS)
def test_a_slope_over_groups_does_not_depend_on_their_order(aurocs, seed):
    rng, x = np.random.default_rng(seed), np.arange(len(aurocs), dtype=float)
    values = np.vstack([aurocs, np.clip(aurocs + rng.normal(0, 0.03, (9, len(x))), 0.01, 0.99)])
    members = rng.integers(5, 20, len(x)).astype(float)
    found = dose_response_of_groups(x, values, members, 1.1)
    order = rng.permutation(len(x))
    moved = dose_response_of_groups(x[order], values[:, order], members[order], 1.1)
    mirrored = dose_response_of_groups(x, 1 - values, members, 1.1)
    np.testing.assert_allclose(moved.slope, found.slope, atol=1e-6)
    np.testing.assert_allclose(mirrored.slope, -found.slope, atol=1e-6)
    np.testing.assert_allclose(mirrored.auroc_at(1.0), 1 - found.auroc_at(1.0), atol=1e-6)


@st.composite
def differences(draw):
    """Differences of a few pairs with their draws."""
    rng = np.random.default_rng(draw(SEEDS))
    values = draw(scores(1, 4, highest=2))
    return Differences(values, values[:, None] + rng.normal(0, 0.7, (len(values), 60)).round(1))


@given(differences(), st.data())
def test_p_values_of_pairs_depend_neither_on_their_order_nor_on_who_comes_first(pairs, data):
    order = data.draw(orders(len(pairs.value)))
    signs = np.array([data.draw(st.sampled_from([-1.0, 1.0])) for _ in order])
    moved = Differences(
        signs * pairs.value[order] * 2, signs[:, None] * pairs.draws[order] * 2
    )  # and in another unit
    single, joint = pairwise_p_values(pairs), max_t_p_values(pairs)
    np.testing.assert_allclose(pairwise_p_values(moved), single[order])
    np.testing.assert_allclose(max_t_p_values(moved), joint[order])
    assert (joint >= single - 1e-12).all() or len(single) > 1
    further = [
        np.mean(np.abs(d - v) >= abs(v) - 1e-12)
        for v, d in zip(pairs.value, pairs.draws, strict=True)
    ]
    np.testing.assert_allclose(single, (1 + 60 * np.array(further)) / 61)
    if len(single) == 1:
        np.testing.assert_allclose(joint, single)
    assert joint.min() >= single.min() - 1e-12


@given(st.integers(1, 7), st.integers(1, 7), SEEDS)
def test_a_cell_is_permuted_as_all_examples_are(some, more, seed):
    rng, number = np.random.default_rng(seed), some + more
    permutations = rng.permuted(np.tile(np.arange(number, dtype=np.int32), (5, 1)), axis=1)
    indices = np.sort(rng.permutation(number)[:some])
    found = induced_permutations(permutations, indices)
    assert (np.sort(found, axis=1) == np.arange(some)).all()
    for permutation, own in zip(permutations, found, strict=True):
        for place, index in enumerate(indices):
            image = permutation[index]
            while image not in indices:
                image = permutation[image]
            assert indices[own[place]] == image
    everyone = induced_permutations(permutations, np.arange(number))
    np.testing.assert_array_equal(everyone, permutations)


@given(st.lists(st.sampled_from(["loss", "min_k", "blind"]), min_size=1, unique=True), SEEDS)
def test_a_control_is_as_far_off_on_either_side(methods, seed):
    rng = np.random.default_rng(seed)
    aurocs = {
        ControlKey(method, "", benchmark): rng.normal(0.5, 0.05, 20).clip(0, 1)
        for method in methods for benchmark in ("x", "all")
    }  # fmt: skip
    found = distances_from_chance(aurocs)
    mirrored = distances_from_chance({key: 1 - values for key, values in aurocs.items()})
    moved = distances_from_chance(dict(reversed(aurocs.items())))
    assert found.keys() == mirrored.keys() == moved.keys()
    for control, distances in found.items():
        for other in (mirrored[control], moved[control]):
            assert other.by_key == pytest.approx(distances.by_key)
            np.testing.assert_allclose(other.largest, distances.largest)
        assert max(distances.by_key.values()) == pytest.approx(distances.largest[0])


@given(st.integers(2, 5), SEEDS)
def test_turning_points_of_mirrored_evidence_are_the_same(levels, seed):
    """Also where intervals of unequal width make a level clearly above one and below another."""
    upper = np.triu(np.random.default_rng(seed).normal(0, 2, (levels, levels)), 1)
    evidence = upper - upper.T
    points = turning_points(evidence)
    assert turning_points(-evidence) == points
    assert points == sorted(set(points))
    assert bool(points) == bool((np.abs(evidence) > 1).any())


@given(st.lists(st.integers(0, 5), min_size=2, max_size=7), st.sampled_from([0.7, 1.5, 2.5]))
def test_moves_between_turning_points_are_clear_and_alternate(values, margin):
    evidence = np.subtract.outer(values, values).T / margin
    points = turning_points(evidence)
    moves = [evidence[i, j] for i, j in pairwise(points)]
    assert all(abs(move) > 1 for move in moves)
    assert all(one * other < 0 for one, other in pairwise(moves))
    assert bool(points) == (np.ptp(values) > margin)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6, unique=True), st.data())
def test_levels_are_read_as_they_were_written(levels, data):
    chosen = data.draw(st.lists(st.sampled_from(levels), unique=True))
    assert [levels[i] for i in parse_level_indices(format_levels(chosen), levels)] == chosen


LEAVES = st.sampled_from([1, 0.5, "cosine", "a b", "a_b", True, None, [1, 2]])
RECIPES = st.fixed_dictionaries({
    "training": st.fixed_dictionaries({
        "schedule": LEAVES, "learning_rate": st.sampled_from([1e-3, 1e-4]), "order_seed": LEAVES,
        "compile": st.booleans(), "micro_batch_sequences": st.integers(1, 3),
    }),
    "model": st.fixed_dictionaries({"name": LEAVES, "path": LEAVES}),
})  # fmt: skip


@given(RECIPES, RECIPES)
def test_cells_are_of_one_condition_where_only_seeds_paths_and_the_way_of_running_differ(
    one, other
):
    def chosen(nodes):
        training = nodes["training"]
        name = nodes["model"]["name"]
        return str((training["schedule"], training["learning_rate"], name))

    same = chosen(one) == chosen(other)
    assert (recipe_digest({}, one) == recipe_digest({}, other)) == same
    rate = next(f.column for f in FACTORS if "training.learning_rate" in f.fields)
    without = [recipe_digest({}, nodes, without_factor=rate) for nodes in (one, other)]
    series = [str((n["training"]["schedule"], n["model"]["name"])) for n in (one, other)]
    assert (without[0] == without[1]) == (series[0] == series[1])


@given(st.lists(RECIPES, min_size=2, max_size=4), st.data())
def test_names_tell_all_conditions_apart(recipes, data):
    by_digest = {recipe_digest({}, nodes): chosen_fields({}, nodes) for nodes in recipes}
    assume(len(by_digest) > 1)
    names = distinguishing_suffixes(by_digest)
    assert names.keys() == by_digest.keys()
    assert len(set(names.values())) == len(names)
    assert all(name.startswith("-") and "/" not in name and " " not in name
               for name in names.values())  # fmt: skip
    order = data.draw(st.permutations(list(by_digest)))
    assert distinguishing_suffixes({key: by_digest[key] for key in order}) == names
