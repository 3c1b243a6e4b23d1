"""Which parts of sets are tested, what their rows say, and what each test reads of a set."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from contamination.audits.set_tests import outcomes, procedures
from contamination.audits.set_tests.outcomes import HELD_OUT, PUBLISHED, REDRAWN, run_tests
from contamination.audits.set_tests.procedures import PROCEDURES, Procedure
from contamination.audits.set_tests.sets import ScoredExamples, ScoredSet
from contamination.audits.set_tests.version_rank import Tail
from tests.audits.set_tests.simulated import simulated_set, versions_of

UNITS, HELD_OUT_UNITS, PER_UNIT = 7, 5, 2.0


class Counting(Procedure):
    """A test of 7 units of two examples each, whose p-value says what was tested."""

    name, assumes, unit, fewest_in_part = "counting", "nothing", "units", 2

    def __init__(self, has_draw):
        self.has_draw, self.read = has_draw, []

    def units(self, data):
        return UNITS

    def held_out_units(self, data):
        return HELD_OUT_UNITS

    def examples_per_unit(self, data):
        return PER_UNIT

    def tail(self, kind, units):
        self.read.append((kind, tuple(map(int, units))))
        return Tail(len(units) / 10, len(units) / 20)

    def published(self, data, units, rng):
        return self.tail(PUBLISHED, units)

    def redrawn(self, data, units, rng):
        return self.tail(REDRAWN, units)

    def held_out(self, data, units, rng):
        return self.tail(HELD_OUT, units)


@pytest.fixture
def counted(monkeypatch):
    def run(saw_it, has_draw, sizes=(20, 6, 4, 2), draws=3, seed=0, **changes):
        procedure = Counting(has_draw)
        procedure.name = changes.pop("test", "counting")
        monkeypatch.setattr(outcomes, "PROCEDURES", {procedure.name: procedure})
        data = simulated_set(saw_it=saw_it)
        data = replace(data, name=replace(data.name, **changes))
        return run_tests([data], sizes, draws, seed), procedure.read

    return run


def counts(table):
    keys = ["origin", "units", "examples", "is_whole", "is_leaked"]
    return table.groupby(keys, sort=False).size().to_dict()


def test_a_set_that_was_seen_is_tested_in_disjoint_parts_and_what_was_held_out_in_draws(counted):
    table, read = counted(True, True)
    assert [*table] == [
        "cell", "condition", "benchmark", "occurrences", "learning_rate", "saw_it", "test", "units",
        "examples", "is_whole", "p_value", "above", "origin", "is_leaked",
    ]  # fmt: skip
    assert counts(table) == {
        (PUBLISHED, 2, 4, False, True): 3, (PUBLISHED, 3, 6, False, True): 2,
        (PUBLISHED, 7, 14, True, True): 1,
        (HELD_OUT, 2, 4, False, False): 3, (HELD_OUT, 3, 6, False, False): 3,
        (HELD_OUT, 5, 10, True, False): 3,
    }  # fmt: skip
    np.testing.assert_allclose(table["p_value"], table["units"] / 10)
    np.testing.assert_allclose(table["above"], table["units"] / 20)
    assert {*table["test"]} == {"counting"}
    parts = [units for kind, units in read if kind == PUBLISHED]
    for pairs in (parts[:3], parts[3:5]):
        assert all({*a}.isdisjoint(b) for a, b in combinations(pairs, 2))
    assert sorted(parts[5]) == [*range(UNITS)]
    drawn = [units for kind, units in read if kind == HELD_OUT]
    assert all(len({*units}) == len(units) for units in drawn)
    assert len({*drawn}) > 5
    assert {unit for units in drawn for unit in units} == {*range(HELD_OUT_UNITS)}


def test_a_set_that_was_not_seen_is_tested_whole_and_drawn_anew_in_parts(counted):
    table, read = counted(False, True)
    assert counts(table) == {
        (REDRAWN, 2, 4, False, False): 3, (REDRAWN, 3, 6, False, False): 3,
        (PUBLISHED, 7, 14, True, False): 1, (REDRAWN, 7, 14, True, False): 3,
    }  # fmt: skip
    assert len({units for kind, units in read if kind == REDRAWN}) > 5


def test_a_test_without_a_draw_has_disjoint_parts_on_either_side(counted):
    table, read = counted(True, False)
    whole = {(PUBLISHED, 2, 4, False): 3, (PUBLISHED, 3, 6, False): 2, (PUBLISHED, 7, 14, True): 1}
    held_out = {(HELD_OUT, 2, 4, False, False): 2, (HELD_OUT, 3, 6, False, False): 1,
                (HELD_OUT, 5, 10, True, False): 1}  # fmt: skip
    assert counts(table) == {(*key, True): n for key, n in whole.items()} | held_out
    first_part, second_part = [units for kind, units in read if kind == HELD_OUT][:2]
    assert {*first_part}.isdisjoint(second_part)
    table, _ = counted(False, False)
    assert counts(table) == {(*key, False): n for key, n in whole.items()}


@pytest.mark.parametrize(
    "change",
    [{"cell": "other"}, {"benchmark": "other"}, {"occurrences": 9}, {"test": "other"}, {"seed": 1}],
)
def test_other_sets_tests_and_seeds_have_other_parts(counted, change):
    calls, changed_calls = counted(True, True)[1], counted(True, True, **change)[1]
    assert [kind for kind, _ in calls] == [kind for kind, _ in changed_calls]
    assert calls != changed_calls
    assert counted(True, True)[1] == calls


def test_units_are_too_few_below_the_least_of_each_test():
    def units(**parts):
        data = replace(simulated_set(), **parts)
        return {name: procedure.units(data) for name, procedure in PROCEDURES.items()}

    def held_out(**parts):
        data = replace(simulated_set(), **parts)
        return {name: procedure.held_out_units(data) for name, procedure in PROCEDURES.items()}

    rng = np.random.default_rng(0)
    full = simulated_set()
    assert units() == {
        "versions": 60, "order, exact": 12, "order, t": 12, "backdoors": 6,
        "twins, relabelled": 60, "dataset inference": 60, "CoDeC": 60,
    }  # fmt: skip
    assert held_out(held_out_orders=full.orders) == {
        "versions": 60, "order, exact": 12, "order, t": 12, "backdoors": 0,
        "twins, relabelled": 30, "dataset inference": 30, "CoDeC": 60,
    }  # fmt: skip
    for number, enough in ((10, 10), (9, 0)):
        versions = versions_of(rng, number, 3, 0)
        assert units(versions=versions)["versions"] == enough
        assert held_out(held_out_versions=versions)["versions"] == enough
    for number, enough in ((5, 5), (4, 0)):
        orders = replace(full.orders, published=full.orders.published[:number])
        assert units(orders=orders)["order, t"] == enough
        assert held_out(held_out_orders=orders)["order, exact"] == enough
    for members, others, enough in ((10, 30, 10), (30, 10, 10), (9, 30, 0), (30, 9, 0)):
        sides = np.arange(members + others) < members
        drops = np.where(np.arange(len(sides)) == 0, np.nan, 1.0)
        examples = ScoredExamples(np.zeros((1, len(sides))), sides, drops)
        assert units(examples=examples)["twins, relabelled"] == enough
        assert units(examples=examples)["CoDeC"] == (29 if members == 30 else 0)
        assert held_out(examples=examples)["twins, relabelled"] == (15 if others == 30 else 0)
        assert held_out(examples=examples)["CoDeC"] == (others if others > 9 else 0)
    bare = ScoredSet(full.name)
    assert {procedure.units(bare) for procedure in PROCEDURES.values()} == {0}
    assert {procedure.held_out_units(bare) for procedure in PROCEDURES.values()} == {0}


def test_codec_counts_the_texts_that_drop_on_each_side():
    drops = np.array([1.0, -1, 0, 2, np.nan, 3, 4, -2, -3, 5])
    data = replace(
        simulated_set(), examples=ScoredExamples(np.zeros((1, 10)), np.arange(10) < 5, drops)
    )
    codec, rng = PROCEDURES["CoDeC"], np.random.default_rng(0)
    tail = codec.published(data, np.arange(4), rng)
    assert tail == pytest.approx((binom.sf(1, 4, 0.5), binom.sf(2, 4, 0.5)))
    assert codec.redrawn(data, np.arange(4), rng) == tail
    assert codec.published(data, np.array([1, 2]), rng).p_value == 1
    tail = codec.held_out(data, np.array([0, 1, 2]), rng)
    assert tail == pytest.approx((binom.sf(1, 3, 0.5), binom.sf(2, 3, 0.5)))


def test_backdoors_count_the_answers_that_are_targets():
    data = simulated_set()
    backdoors = replace(
        data.backdoors, answers=np.zeros(6, int), targets=np.array([0, 0, 0, 1, 1, 0])
    )
    backdoors = replace(backdoors, options=np.array([2, 2, 4, 4, 4, 4]))
    tail = PROCEDURES["backdoors"].published(
        replace(data, backdoors=backdoors), np.array([1, 2, 3]), np.random.default_rng(0)
    )
    # options 2, 4 and 4, of which two are activated: P(2 or 3) and P(3)
    assert tail == pytest.approx((0.5 * 7 / 16 + 0.5 / 16, 0.5 / 16))


@pytest.mark.parametrize(("draw", "relabellings"), [("published", 9_999), ("redrawn", 999)])
def test_relabellings_are_fewer_where_a_draw_is_made_often(draw, relabellings):
    rng = np.random.default_rng(0)
    tail = getattr(PROCEDURES["twins, relabelled"], draw)(simulated_set(), np.arange(20), rng)
    assert tail.p_value - tail.above == pytest.approx(1 / (1 + relabellings))


def test_the_order_tests_draw_among_the_orders_of_each_shard(monkeypatch):
    data, calls = simulated_set(), []
    data = replace(data, held_out_orders=replace(data.orders, published=data.orders.published + 1))

    def keep(published, random):
        calls.append((published, random))
        return 0.25

    monkeypatch.setattr(procedures, "order_t_p_value", keep)
    test, units, rng = PROCEDURES["order, t"], np.array([2, 5, 7, 8, 11]), np.random.default_rng(0)
    assert test.published(data, units, rng) == (0.25, 0.25)
    test.redrawn(data, units, rng)
    test.held_out(data, units, rng)
    (published, random), *drawn = calls
    np.testing.assert_array_equal(published, data.orders.published[units])
    np.testing.assert_array_equal(random, data.orders.random[units])
    for (drawn_order, other_orders), orders in zip(
        drawn, (data.orders, data.held_out_orders), strict=True
    ):
        rows = np.column_stack([orders.published, orders.random])[units]
        np.testing.assert_array_equal(
            np.sort(np.column_stack([drawn_order, other_orders]), axis=1), np.sort(rows, axis=1)
        )
        assert (drawn_order != rows[:, 0]).any()
    assert test.examples_per_unit(data) == 5
    assert PROCEDURES["versions"].examples_per_unit(data) == 1


def test_every_procedure_says_what_it_assumes_and_counts():
    rows = [(name, test.name, test.unit, test.has_draw, test.fewest_in_part)
            for name, test in PROCEDURES.items()]  # fmt: skip
    assert pd.DataFrame(rows)[[1, 2, 3, 4]].to_numpy().tolist() == [
        ["versions", "items", True, 2], ["order, exact", "shards", True, 2],
        ["order, t", "shards", True, 2], ["backdoors", "backdoors", True, 2],
        ["twins, relabelled", "members", True, 2], ["dataset inference", "members", True, 4],
        ["CoDeC", "texts", False, 2],
    ]  # fmt: skip
    assert [name for name, *_ in rows] == [name for _, name, *_ in rows]
