"""Error rates, verdicts, shares and lists of items of few sets, computed by hand."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from contamination.audits.benchmark.blind import cached_blind_tests
from contamination.audits.set_tests.findings import (
    DIFFERENT,
    SetFindings,
    blind_p_values,
    labelled_texts,
)
from contamination.audits.set_tests.outcomes import HELD_OUT, PUBLISHED, REDRAWN
from contamination.audits.set_tests.sets import ScoredExamples, ScoredSet, SetName
from contamination.core.statistics.clopper_pearson import clopper_pearson
from tests.audits.set_tests.simulated import simulated_set

SEEN = SetName("cell", "condition", "boolq", 4, 1e-3, True)
UNSEEN = replace(SEEN, saw_it=False)


def rows(*outcomes):
    columns = ["test", "units", "examples", "is_whole", "p_value", "above", "origin", "is_leaked"]
    return pd.DataFrame(
        {**asdict(name), **dict(zip(columns, row, strict=True))} for name, *row in outcomes
    )


def findings_of(outcomes, *names, blind_p=None, alpha=0.05, item_level=0.1, seed=0):
    sets = [ScoredSet(name) for name in names or (SEEN, UNSEEN)]
    return SetFindings(sets, outcomes, blind_p or {}, alpha, item_level, seed)


def test_error_rates_are_of_sets_that_the_model_did_not_see():
    findings = findings_of(rows(
        (UNSEEN, "versions", 60, 60, True, 0.05, 0.04, PUBLISHED, False),
        (UNSEEN, "versions", 60, 60, True, 0.051, 0.05, REDRAWN, False),
        (UNSEEN, "versions", 60, 60, True, 0.01, 0.0, REDRAWN, False),
        (SEEN, "versions", 60, 60, True, 0.01, 0.0, PUBLISHED, True),
        (SEEN, "CoDeC", 60, 60, True, 0.5, 0.4, HELD_OUT, False),
    ))  # fmt: skip
    expected = [
        ("versions", PUBLISHED, 1, 1),
        ("versions", REDRAWN, 2, 1),
        ("CoDeC", HELD_OUT, 1, 0),
    ]
    errors = findings.errors
    assert [*errors] == ["test", "origin", "sets", "rejected", "share", "low", "high", "uniform_p"]
    assert [*errors[["test", "origin", "sets", "rejected"]].itertuples(index=False, name=None)] == (
        expected
    )
    assert errors["share"].tolist() == [1, 0.5, 0]
    ends = [clopper_pearson(rejected, sets) for *_, sets, rejected in expected]
    assert [*zip(errors["low"], errors["high"], strict=True)] == ends
    assert errors["uniform_p"].isna().all()


def uniform_p(p_values, above, seed=0):
    outcomes = rows(*(
        (UNSEEN, "versions", 60, 60, True, p, a, REDRAWN, False)
        for p, a in zip(p_values, above, strict=True)
    ))  # fmt: skip
    return findings_of(outcomes, seed=seed).errors["uniform_p"].item()


def test_uniformity_is_tested_from_twenty_p_values_on_of_values_drawn_within_their_steps():
    p_values = np.random.default_rng(0).beta(1.5, 1, 20)
    assert np.isnan(uniform_p(p_values[:19], p_values[:19]))
    assert uniform_p(p_values, p_values) == pytest.approx(kstest(p_values, "uniform").pvalue)
    steps = np.tile([0.5, 1.0], 150)
    assert uniform_p(steps, steps - 0.5) > 0.01
    assert uniform_p(steps, steps) < 1e-6
    assert uniform_p(steps, steps - 0.5) == uniform_p(steps, steps - 0.5)
    assert uniform_p(steps, steps - 0.5) != uniform_p(steps, steps - 0.5, seed=1)


def test_power_is_by_test_learning_rate_size_and_copies():
    fast = replace(SEEN, learning_rate=1e-2)
    one_copy = replace(SEEN, occurrences=1)
    table = findings_of(rows(
        (SEEN, "versions", 60, 60, True, 0.05, 0.04, PUBLISHED, True),
        (SEEN, "versions", 60, 60, True, 0.2, 0.04, PUBLISHED, True),
        (fast, "versions", 60, 60, True, 0.2, 0.04, PUBLISHED, True),
        (one_copy, "order, t", 4, 20, False, 0.01, 0.01, PUBLISHED, True),
        (SEEN, "versions", 20, 20, False, 0.01, 0.01, HELD_OUT, False),
    ), SEEN, fast, one_copy).powers  # fmt: skip
    assert [*table] == ["test", "learning_rate", "examples", "occurrences", "sets", "rejected",
                        "share", "low", "high"]  # fmt: skip
    columns = ["test", "learning_rate", "examples", "occurrences", "sets", "rejected", "share"]
    assert table[columns].to_numpy().tolist() == [
        ["order, t", 1e-3, 20, 1, 1, 1, 1], ["versions", 1e-3, 60, 4, 2, 1, 0.5],
        ["versions", 1e-2, 60, 4, 1, 0, 0],
    ]  # fmt: skip


def test_verdicts_are_on_whole_sets_as_published():
    whole = (60, 60, True)
    outcomes = rows(
        (SEEN, "twins, relabelled", *whole, 0.05, 0.0, PUBLISHED, True),
        (SEEN, "dataset inference", *whole, 0.06, 0.0, PUBLISHED, True),
        (UNSEEN, "twins, relabelled", *whole, 0.05, 0.0, PUBLISHED, False),
        (UNSEEN, "versions", *whole, 0.06, 0.0, PUBLISHED, False),
        (UNSEEN, "versions", *whole, 0.06, 0.0, REDRAWN, False),
        (SEEN, "versions", 20, 20, False, 0.06, 0.0, PUBLISHED, True),
    )
    table = findings_of(outcomes, blind_p={UNSEEN: 0.051}).verdicts
    assert [*table] == [*outcomes, "blind_p", "verdict"]
    assert [*table.index] == [0, 1, 2, 3]
    assert table["verdict"].tolist() == [
        "right: it was seen", "missed", "false alarm", "right: no evidence",
    ]  # fmt: skip
    np.testing.assert_array_equal(table["blind_p"], [np.nan, np.nan, 0.051, np.nan])
    table = findings_of(outcomes, blind_p={UNSEEN: 0.05, SEEN: 0.01}).verdicts
    assert table["verdict"].tolist() == [DIFFERENT] * 3 + ["right: no evidence"]


def test_context_shares_count_the_texts_that_drop():
    drops = np.array([1.0, 0, -1, np.nan, 2, 3, 4, -5])
    examples = ScoredExamples(np.zeros((1, 8)), np.arange(8) < 4, drops)
    rising, before_training = replace(examples, drops=-drops), replace(examples, drops=2 * drops)
    base = replace(UNSEEN, benchmark="base")
    sets = [
        ScoredSet(SEEN, examples), ScoredSet(replace(SEEN, cell="second"), rising),
        ScoredSet(base, before_training), ScoredSet(replace(base, cell="second"), before_training),
        ScoredSet(replace(base, learning_rate=1e-4), before_training),
        ScoredSet(SEEN), ScoredSet(SEEN, replace(examples, drops=np.empty(0))),
    ]  # fmt: skip
    table = SetFindings(sets, pd.DataFrame(), {}, 0.05, 0.1, 0).context_shares
    columns = ["learning_rate", "occurrences", "side", "texts", "dropped"]
    assert table[columns].to_numpy().tolist() == [
        [1e-4, 0, "held out", 4, 3], [1e-4, 0, "members", 3, 1],
        # the model before the training is shared by two cells and counts once
        [1e-3, 0, "held out", 4, 3], [1e-3, 0, "members", 3, 1],
        [1e-3, 4, "held out", 8, 4], [1e-3, 4, "members", 6, 2],
    ]  # fmt: skip
    assert [*table] == [*columns, "share", "low", "high"]
    np.testing.assert_allclose(table["share"], table["dropped"] / table["texts"])
    ends = [clopper_pearson(*pair) for pair in zip(table["dropped"], table["texts"], strict=True)]
    assert [*zip(table["low"], table["high"], strict=True)] == ends
    no_drops = SetFindings(sets[-2:], pd.DataFrame(), {}, 0.05, 0.1, 0).context_shares
    assert no_drops.empty


def listed(members, others, name=SEEN, level=2 / 21):
    """The items of sets whose members are above all others, which are alike."""
    is_member = np.arange(members + others) < members
    examples = ScoredExamples(np.where(is_member, 100.0 + np.arange(len(is_member)), 0.0)[None],
                              is_member)  # fmt: skip
    return SetFindings([ScoredSet(name, examples)], pd.DataFrame(), {}, 0.05, level, 0)


def test_lists_of_items_that_stand_out_have_all_members_where_these_are_many():
    table = listed(24, 41).items
    of_lists = [
        f"{kind}_{name}" for kind in ("bh", "scaled") for name in ("listed", "wrong", "found")
    ]
    columns = ["tested", "share", "estimated_share", *of_lists]
    assert [*table] == [*asdict(SEEN), *columns]
    # compared with 20 others, each member has p = 1/21 and each other p = 1
    nothing, all_members = [0, 0, 0], [0, 1]
    expected = [
        [21, 0, 0, 0, 0, np.nan, 0, 0, np.nan],
        [25, 0.2, 0, *nothing, *nothing],  # 25/21/5 is above the level
        [42, 0.5, 0, 21, *all_members, 21, *all_members],  # 42/21/21 is the level
        [30, 0.8, 1 - 7 / 15, 24, *all_members, 24, *all_members],
    ]
    np.testing.assert_allclose(table[columns].to_numpy(float), expected, atol=1e-12)
    assert {*table["cell"]} == {"cell"}
    strict = listed(24, 41, level=0.09).items
    assert strict["bh_found"].tolist()[1:] == [0, 0, 1]
    lenient = listed(24, 41, level=1.0).items
    assert lenient["bh_listed"].tolist() == lenient["tested"].tolist()
    np.testing.assert_allclose(lenient["bh_wrong"], [1, 0.8, 0.5, 0.2])
    assert lenient["scaled_listed"].tolist() == lenient["tested"].tolist()
    unseen = listed(24, 41, UNSEEN).items
    assert unseen["share"].tolist() == [0]


def test_items_are_listed_from_twenty_held_out_ones_on():
    assert listed(5, 20).items["tested"].tolist() == [10, 10, 10, 6]
    assert listed(5, 19).items.empty
    assert listed(0, 40).items.empty
    bare = SetFindings([ScoredSet(SEEN)], pd.DataFrame(), {}, 0.05, 0.1, 0)
    assert bare.items.empty


def test_means_of_lists_are_by_learning_rate_copies_and_share():
    sets = [*listed(24, 41).sets, *listed(24, 41, UNSEEN).sets]
    sets += listed(24, 41, replace(SEEN, learning_rate=1e-2)).sets
    table = SetFindings(sets, pd.DataFrame(), {}, 0.05, 2 / 21, 0).item_means
    assert [*table] == [
        "learning_rate", "occurrences", "nominal", "share", "estimated_share", "bh_listed",
        "bh_wrong", "bh_found", "scaled_listed", "scaled_wrong", "scaled_found", "sets",
    ]  # fmt: skip
    columns = ["learning_rate", "occurrences", "nominal", "bh_listed", "sets"]
    assert table[columns].to_numpy().tolist() == [
        [1e-3, 0, 0, 0, 2], [1e-3, 4, 0.2, 0, 1], [1e-3, 4, 0.5, 21, 1], [1e-3, 4, 0.8, 24, 1],
        [1e-2, 0, 0, 0, 1], [1e-2, 4, 0.2, 0, 1], [1e-2, 4, 0.5, 21, 1], [1e-2, 4, 0.8, 24, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"cell": "other"}, {"benchmark": "other"}, {"seed": 1}, {}])
def test_held_out_items_are_divided_anew_for_other_cells_benchmarks_and_seeds(change):
    renamed = {name: value for name, value in change.items() if name != "seed"}
    sets = [simulated_set(number, shift=0.0) for number in range(4)]
    sets = [
        replace(scored, name=replace(scored.name, cell=f"cell{n}")) for n, scored in enumerate(sets)
    ]
    changed_sets = [replace(scored, name=replace(scored.name, **renamed)) for scored in sets]
    estimates, changed_estimates = (
        SetFindings(of, pd.DataFrame(), {}, 0.05, 0.1, seed).items["estimated_share"].tolist()
        for of, seed in ((sets, 0), (changed_sets, change.get("seed", 0)))
    )
    assert len(estimates) == len(changed_estimates) == 16
    assert (estimates != changed_estimates) == bool(change)


def test_texts_are_compared_without_a_model_where_there_are_enough():
    enough, few = simulated_set(members=20), simulated_set(1, members=9)
    p_values = blind_p_values([enough, few, ScoredSet(UNSEEN)], 5)
    texts = labelled_texts(enough.examples)
    assert p_values == {enough.name: cached_blind_tests(5)(texts).p_value}
    assert texts.column("text").to_pylist() == [*enough.examples.texts]
    assert texts.column("label").to_pylist() == enough.examples.is_member.tolist()
    first, *_, last = texts.column("example_id").to_pylist()
    assert first.startswith("0/True/")
    assert last.startswith("39/False/")
