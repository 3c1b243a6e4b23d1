"""Pooling over seeds: which cells, and what the hierarchical draws are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import name_apart
from contamination.analysis.conditions import chosen_fields, distinguishing_suffixes, recipe_digest
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics import seed_pooling as module
from contamination.analysis.statistics.flagged import flags_table
from contamination.analysis.statistics.kendall_trend import Detector
from contamination.analysis.statistics.results_table import Measure, cell_estimates
from contamination.analysis.statistics.seed_pooling import (
    COLUMNS,
    Replicates,
    cells_by_condition,
    condition_rows,
    hierarchical_draws,
    overlap_of_sides,
    pool_estimates,
    pooled_estimate,
)
from contamination.analysis.statistics.tidy_tables import compute_statistics, replicates_table
from contamination.analysis.statistics.trends import dose_responses, pool_dose_responses
from contamination.core.statistics.estimates import Estimate, confidence_interval
from tests.analysis.conftest import results_table

QUICK = AnalysisConfig(draws=60, blind_folds=3)
KEY = ["checkpoint", "benchmark", "method", "variant", "occurrences", "metric"]


def test_one_seed_equals_its_results(cell):
    found = compute_statistics("trial", 0, [cell], QUICK)
    assert tuple(found.pooled.columns) == COLUMNS
    shared = [*KEY, "value", "ci_low", "ci_high", "n_members", "n_nonmembers"]
    pd.testing.assert_frame_equal(found.pooled[shared], found.results[shared])
    assert set(found.pooled["n_seeds"]) == {1}
    assert set(found.pooled["condition"]) == {"tiny_llama-lr0.001-tokens400000"}
    assert found.pooled["parameters"].isna().all()
    whole = found.pooled[["example_max_tokens", "last_tokens", "parameters"]]
    assert (whole.dtypes == "Int64").all()
    assert set(found.pooled["experiment"]) == {"trial"}
    pd.testing.assert_frame_equal(found.flags, flags_table([cell]))
    pd.testing.assert_frame_equal(found.replicates, replicates_table([cell]))


def test_each_condition_has_rows_in_every_table(make, monkeypatch):
    cells = [make(seed=0), make(seed=1), make(learning_rate=1e-2)]
    given = []
    monkeypatch.setattr(
        module, "pool_estimates", lambda *how: given.append(how[1:]) or pool_estimates(*how)
    )
    found = compute_statistics("trial", 3, cells, QUICK)
    names = {cell.condition for cell in cells}
    for table in (found.pooled, found.comparisons, found.trends, found.flags):
        assert set(table["condition"]) == names
    assert [(replicates.seeds, seed) for replicates, seed in given] == [((0, 1), 3), ((0,), 3)]
    assert (given[0][0].overlap == 1).all()
    pd.testing.assert_frame_equal(found.results, results_table("trial", 3, cells, QUICK))


def test_the_value_is_the_mean_over_seeds(make):
    cells = [make(seed=seed, a_dose=members) for seed, members in enumerate((5, 4, 6))]
    shifted = cells[1].scores["contaminated"] * -1
    cells[1] = replace(cells[1], scores={**cells[1].scores, "contaminated": shifted})
    found = compute_statistics("trial", 0, cells, QUICK)
    mean = found.results.groupby(KEY)["value"].mean().sort_index()
    pooled = found.pooled.set_index(KEY)["value"].sort_index()
    pd.testing.assert_series_equal(pooled, mean)
    for side in ("n_members", "n_nonmembers"):  # several seeds are of one pool
        least = found.results.groupby(KEY)[side].min().sort_index()
        pd.testing.assert_series_equal(found.pooled.set_index(KEY)[side].sort_index(), least)
    assert set(found.pooled["n_seeds"]) == {3}


def test_the_same_examples_and_scores_again_are_as_uncertain_as_once(make):
    twice = compute_statistics("trial", 0, [make(seed=0), make(seed=1)], QUICK)
    columns = [*KEY, "value", "ci_low", "ci_high"]
    once = twice.results[twice.results["seed"] == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(twice.pooled[columns], once[columns])


def test_seeds_that_differ_show_in_the_hierarchical_draws():
    rng = np.random.default_rng(0)
    apart = np.stack([rng.normal(centre, 0.01, 4000) for centre in (0.6, 0.7, 0.8)])
    drawn = hierarchical_draws(apart, range(3), 0)
    between = np.var([0.6, 0.7, 0.8]) / 3
    assert drawn.mean() == pytest.approx(0.7, abs=0.005)
    assert drawn.var() == pytest.approx(between + 0.01**2 / 3, rel=0.05)


def test_within_variance_of_equal_seeds_adds_up():
    """The draws of one seed do not come in place of another's."""
    drawn = hierarchical_draws(np.random.default_rng(0).normal(0.7, 0.03, (4, 4000)), range(4), 0)
    assert drawn.std() == pytest.approx(0.03 / 2, rel=0.05)


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95, 1.0])
def test_seeds_are_as_uncertain_as_the_examples_that_they_share_make_them(shared):
    """Their draws use the same resamples, so they move together as far as they share texts."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(4, 4000)) * (1 - shared) ** 0.5 + rng.normal(size=4000) * shared**0.5
    drawn = hierarchical_draws(0.7 + 0.03 * own, range(4), 0)
    assert drawn.std() == pytest.approx(0.03 * (shared + (1 - shared) / 4) ** 0.5, rel=0.05)


def test_a_seed_that_one_condition_lacks_leaves_the_others_paired():
    """Seeds are drawn by what they are, not by their place or their number."""
    centres = np.array([0.6, 0.7, 0.8])[:, None]
    all_seeds, two = (
        hierarchical_draws(np.broadcast_to(centres[places], (len(places), 4000)), seeds, 0)
        for places, seeds in (([0, 1, 2], [5, 6, 7]), ([0, 2], [5, 7]))
    )
    assert np.corrcoef(all_seeds, two)[0, 1] > 0.8
    other = hierarchical_draws(np.broadcast_to(centres, (3, 4000)), [8, 9, 10], 0)
    assert abs(np.corrcoef(all_seeds, other)[0, 1]) < 0.1


def sides(members, nonmembers):
    return [f"e{i}" for i in members], [f"e{i}" for i in nonmembers]


def test_cells_overlap_by_the_examples_that_are_on_the_same_side():
    one = sides(range(10), range(10, 20))
    lacking = sides(range(1, 10), range(10, 20))
    swapped = sides(range(10, 20), range(10))
    halves = sides([*range(5), *range(10, 15)], [*range(5, 10), *range(15, 20)])
    other = sides(range(20, 30), range(30, 40))
    overlap = overlap_of_sides([one, one, lacking, swapped, halves, other])
    assert overlap[0] == pytest.approx([1, 1, 19 / 380**0.5, 0, 0, 0])
    assert (overlap == overlap.T).all()


@pytest.mark.parametrize("own_doses", [False, True])
def test_seeds_that_lack_one_example_each_are_almost_the_same_seed(cell, own_doses):
    """Three cells of 100 + 100 texts, each without one text of its own on either side."""
    rng, size, cells = np.random.default_rng(0), 100, []
    scores = rng.normal(size=2 * size) + np.repeat([1.0, 0.0], size)
    doses = rng.permutation(np.resize([1, 2, 4, 8], 2 * size))
    for seed in range(3):
        kept = np.setdiff1d(np.arange(2 * size), [seed, size + seed])
        doses = rng.permutation(doses) if own_doses else doses
        ids = [f"e{i}" for i in kept]
        examples = pd.DataFrame({"example_id": ids, "benchmark": "a", "text": ids})
        examples = examples.assign(member=kept < size)
        examples["occurrences"] = np.where(examples["member"], doses[kept], 0)
        names = pd.MultiIndex.from_tuples([("loss", "")])
        table = pd.DataFrame(scores[kept], index=ids, columns=names)
        cells.append(replace(cell, seed=seed, examples=examples, scores={"contaminated": table}))
    config, replicates = replace(QUICK, draws=400, fpr=[], tpr=[]), Replicates.of(cells)
    found = [cell_estimates(each, None, config, 0) for each in cells]
    auroc = Measure("contaminated", "loss", "", "any", "auroc")
    one, three = found[0][auroc]["a"], pool_estimates(found, replicates, 0)[auroc]["a"]
    assert three.draws.std() == pytest.approx(one.draws.std(), rel=0.1)
    assert three.trials == pytest.approx(one.trials, rel=0.02)
    slopes = [dose_responses(each, config, 0) for each in cells]
    detector = Detector("a", "loss", "")
    one, three = (
        responses[detector].slope
        for responses in (slopes[0], pool_dose_responses(slopes, replicates, 0))
    )
    if not own_doses:
        assert three.draws.std() == pytest.approx(one.draws.std(), rel=0.1)


def test_the_same_examples_count_once_towards_certainty():
    perfect = [Estimate(25, 25, 1.0, np.ones(100), 100.0) for _ in range(2)]
    one = confidence_interval(perfect[0], 0.95)
    same = Replicates((0, 1), np.ones((2, 2)))
    assert confidence_interval(pooled_estimate(perfect, same, 0), 0.95) == pytest.approx(one)
    apart = Replicates.independent(2)
    assert confidence_interval(pooled_estimate(perfect, apart, 0), 0.95)[0] > one[0]


def test_examples_that_more_seeds_hold_have_more_weight_in_the_certainty():
    """The mean has 2/3 of the value on one set of examples and 1/3 of that on another."""
    cells = [Estimate(25, 25, 0.8, np.full(100, 0.8), 100.0) for _ in range(3)]
    overlap = np.array([[1.0, 0, 1], [0, 1, 0], [1, 0, 1]])
    trials = pooled_estimate(cells, Replicates((0, 1, 2), overlap), 0).trials
    assert 1 / trials == pytest.approx((2 / 3) ** 2 / 100 + (1 / 3) ** 2 / 100)


def test_a_measure_is_pooled_over_the_cells_that_have_it(cell):
    draws = np.random.default_rng(0).random(size=(6, 50))
    one = Measure("contaminated", "loss", "", "any", "auroc")
    other, replicates = one._replace(occurrences="1"), Replicates((3, 4, 5), np.eye(3))
    e = [Estimate(9, 9 + k, k / 10, own) for k, own in enumerate(draws)]
    found = [{one: {"x": e[0]}}, {one: {"x": e[1], "y": e[2]}}]
    found.append({one: {"x": e[3], "y": e[4]}, other: {"x": e[5]}})
    joint = pool_estimates(found, replicates, 7)
    parts = {(one, "x"): [0, 1, 3], (one, "y"): [2, 4], (other, "x"): [5]}
    seeds = {(one, "x"): [3, 4, 5], (one, "y"): [4, 5], (other, "x"): [5]}
    assert {(m, name) for m, by_name in joint.items() for name in by_name} == set(parts)
    for (measure, name), ks in parts.items():
        made = joint[measure][name]
        expected = hierarchical_draws(draws[ks], seeds[measure, name], 7)
        assert made.value == pytest.approx(np.mean(ks) / 10)
        np.testing.assert_array_equal(made.draws, expected)
    assert pool_estimates(found[1:2], replicates.select([1]), 7) is found[1]
    rows = condition_rows([cell] * 3, found, joint, 0.9)
    counted = {(row["benchmark"], row["occurrences"]): row["n_seeds"] for row in rows}
    assert counted == {("x", "any"): 3, ("y", "any"): 2, ("x", "1"): 1}


def test_the_same_plan_keeps_differences_paired():
    draws = np.random.default_rng(0).normal(size=(3, 500))
    np.testing.assert_allclose(
        hierarchical_draws(draws + 0.1, range(3), 7) - hierarchical_draws(draws, range(3), 7), 0.1
    )


def test_draws_follow_the_seed_and_those_of_one_cell_stay():
    draws = np.random.default_rng(0).normal(size=(3, 500))
    np.testing.assert_array_equal(hierarchical_draws(draws[:1], [4], 0), draws[0])
    halves = hierarchical_draws(np.repeat([[0.0], [1.0]], 500, axis=1), range(2), 0)
    assert set(halves) == {0, 0.5, 1}
    cells = [Estimate(9, 9, 0.5, own) for own in draws]
    found = [pooled_estimate(cells, Replicates.independent(3), seed).draws for seed in (7, 8)]
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(found[0], hierarchical_draws(draws, range(3), 7))


def test_a_level_that_is_infinite_in_one_seed_is_so_in_every_draw():
    draws = np.array([[0.1, 0.2], [np.inf, np.inf]])
    assert hierarchical_draws(draws, range(2), 0).tolist() == [np.inf, np.inf]


def test_a_perfect_detector_has_an_interval():
    perfect = [Estimate(25, 25, 1.0, np.ones(100), 100.0) for _ in range(2)]
    low, high = confidence_interval(pooled_estimate(perfect, Replicates.independent(2), 0), 0.95)
    assert (low, high) == (pytest.approx(0.981, abs=0.001), 1.0)


def test_conditions_are_told_apart_by_recipe_not_by_name(make):
    one, two = make(seed=0), make(seed=1)
    other = replace(two, recipe="another")
    assert len(cells_by_condition(name_apart([one, two]))) == 1
    apart = cells_by_condition(name_apart([one, other]))
    assert [len(cells) for cells in apart.values()] == [1, 1]
    assert f"{one.condition}-{'another'[:6]}" in apart


def test_conditions_are_named_by_the_fields_that_all_have_and_not_all_alike():
    def flat(learning_rate=0.1, schedule="cosine", subsets=("arxiv", "book"), **occurrences):
        own = {"learning_rate": learning_rate, "schedule": schedule}
        corpus = {"corpus": {"subsets": [*subsets]}, "occurrences": occurrences}
        return chosen_fields(corpus, {"training": own})

    fixed = {"_target_": "contamination.injection.occurrences.Fixed"}
    two = {"a" * 64: flat(count=2, **fixed), "b" * 64: flat(schedule="constant", count=8, **fixed)}
    assert [*distinguishing_suffixes(two).values()] == [
        "-count2-schedule_cosine",
        "-count8-schedule_constant",
    ]
    poisson = flat(1e-4, _target_="contamination.injection.occurrences.Poisson", rate=4.0)
    designs = {"a" * 64: flat(1e-5, count=2, **fixed), "b" * 64: poisson}
    said = ["-Fixed-learning_rate1e-05", "-Poisson-learning_rate0.0001"]
    assert [*distinguishing_suffixes(designs).values()] == said
    lists = {"a": flat(), "b": flat(subsets=["c4"])}
    assert [*distinguishing_suffixes(lists).values()] == ["-subsets_arxiv_book", "-subsets_c4"]
    starts = {"a": flat(1.0) | {"model.start": "0" * 64}, "b": flat() | {"model.start": "1" * 64}}
    assert [*distinguishing_suffixes(starts).values()] == ["-learning_rate1", "-learning_rate0.1"]


def test_where_fields_make_no_name_a_piece_of_the_hash_does():
    alone = {"0123456789": {"a.x": 1}, "abcdefghij": {"a.y": 1}}
    long = {"0123456789": {"a.x": "w" * 80}, "abcdefghij": {"a.x": "v"}}
    alike = {"0123456789": {"a.x": "a/b"}, "abcdefghij": {"a.x": "a b"}}
    starts = {"0123456789": {"a.start": "0" * 64}, "abcdefghij": {"a.start": "1" * 64}}
    for recipes in (alone, long, alike, starts):
        assert [*distinguishing_suffixes(recipes).values()] == ["-012345", "-abcdef"]


def test_a_recipe_leaves_out_seeds_paths_and_how_it_ran():
    corpus = {"injection": {"members": 5, "membership_seed": 1, "num_proc": 1}, "seed": 0}
    model = {"model": {"name": "a", "path": "x"}, "training": {"learning_rate": 0.1}}
    same = {"injection": {**corpus["injection"], "membership_seed": 2, "num_proc": 4}, "seed": 1}
    moved = {**model, "model": {"name": "a", "path": "y"}}
    assert recipe_digest(corpus, model) == recipe_digest(same, moved)
    hotter = {**model, "training": {"learning_rate": 0.2}}
    assert recipe_digest(corpus, model) != recipe_digest(corpus, hotter)
    along = "learning_rate"
    assert recipe_digest(corpus, model, without_factor=along) == recipe_digest(
        corpus, hotter, without_factor=along
    )
    assert recipe_digest(corpus, model) != recipe_digest({"injection": {"members": 6}}, model)
