"""Bias, RMSE and the numbers of spiked examples that suffice, computed by hand from few errors."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from contamination.audits.score.estimation import IPW, NAIVE
from contamination.audits.score.testbed.cases import (
    AS_LEAKED,
    CLEAN_MODEL,
    Case,
    read_cases,
)
from contamination.audits.score.testbed.findings import (
    Spiking,
    _error_rows,
    _sufficiency,
    measure_errors,
)
from contamination.audits.score.testbed.spiking import (
    OTHER_TWIN,
    _summary,
    benchmark_sizes,
    case_errors,
    plan_spiking,
)
from contamination.core.errors import DataError
from tests.audits.inflation.simulated import simulated_groups


def make_case(members, nonmembers, shared=True, benchmark="b", references=None, seed=0):
    """A model that is always right, whose twin is right half of the time."""
    items = members + nonmembers
    is_member = np.arange(items) < members
    spiked = is_member if shared else np.append(is_member[members // 2 :], [False] * (members // 2))
    asked = is_member if shared else is_member & ~spiked
    return Case(
        "condition", AS_LEAKED, seed, f"cell{seed}", benchmark, np.ones(items),
        np.arange(items) % 2.0, np.where(is_member, 3.0, 0.0) + np.arange(items) % 3, spiked, asked,
        ~is_member, references,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("members", "nonmembers", "spiked", "share", "expected"),
    [
        (30, 30, 5, 0.5, (25, 25)),
        (30, 80, 5, 0.25, (25, 75)),
        (30, 30, 5, 0.25, (8, 24)),
        (15, 15, 10, 0.5, (5, 5)),
        (11, 30, 10, 0.5, (1, 1)),
        (10, 30, 10, 0.5, (0, 0)),
        (30, 10, 10, 0.5, (0, 0)),
    ],
)
def test_the_largest_benchmark_of_a_share(members, nonmembers, spiked, share, expected):
    sizes = benchmark_sizes(make_case(members, nonmembers), spiked, share)
    assert (sizes.members, sizes.nonmembers) == expected
    assert sizes.are_enough == (sum(expected) >= 10)


def test_members_that_are_spiked_alone_leave_all_others_in_the_benchmark():
    case = make_case(40, 40, shared=False)
    assert not case.members_are_shared
    sizes = benchmark_sizes(case, 20, 0.5)
    assert (sizes.members, sizes.nonmembers) == (20, 20)
    sizes = benchmark_sizes(case, 21, 0.5)
    assert (sizes.members, sizes.nonmembers) == (0, 0)


def test_numbers_are_those_that_each_benchmark_with_enough_items_allows():
    cases = [make_case(30, 30), make_case(20, 20, benchmark="few"), make_case(3, 3, benchmark="c"),
             make_case(25, 25, seed=1)]  # fmt: skip
    plan = plan_spiking(cases, [20, 2, 15, 5, 16], 0.5)
    assert (plan.levels, plan.left_out, plan.wanted) == ([2, 5, 15], ["c"], [16, 20])
    assert [(case.benchmark, case.seed) for case in plan.cases] == [("b", 0), ("few", 0), ("b", 1)]
    empty = plan_spiking(cases, [40], 0.5)
    assert (empty.levels, empty.cases, empty.left_out, empty.wanted) == (
        [], [], ["b", "c", "few"], [40],
    )  # fmt: skip
    plan_of_20 = plan_spiking([make_case(30, 30), make_case(10, 30, benchmark="few")], [20], 0.5)
    assert [case.benchmark for case in plan_of_20.cases] == ["b"]


def test_errors_of_a_case_are_summed_up_over_repetitions():
    summary = _summary(np.array([1.0, np.nan, 3.0, -1.0]))
    assert summary == pytest.approx({"bias": 1, "square": 11 / 3, "failed": 0.25})
    all_failed = _summary(np.array([np.nan, np.nan]))
    assert all_failed == pytest.approx({"bias": np.nan, "square": np.nan, "failed": 1}, nan_ok=True)


def test_the_errors_of_a_case_have_a_row_of_each_number_and_score():
    references = np.column_stack([np.ones(60), np.ones(60)])
    table = case_errors(make_case(30, 30, references=references), [2, 5], 0.5, 10, 0, 0.5)
    assert [*table] == ["condition", "scenario", "seed", "cell", "benchmark", "spiked", "estimator",
                        "bias", "square", "failed", "items"]  # fmt: skip
    assert {*table[["condition", "scenario", "seed", "cell", "benchmark", "items"]].itertuples(
        index=False, name=None)} == {("condition", AS_LEAKED, 0, "cell0", "b", 50)}  # fmt: skip
    assert table["failed"].eq(0).all()
    by_name = table.set_index(["spiked", "estimator"])
    # the model, and another twin that is always right, are off by the twin's wrong half
    for spiked in (2, 5):
        for name in (NAIVE, OTHER_TWIN):
            row = by_name.loc[spiked, name]
            assert row["bias"] == pytest.approx(0.5, abs=0.05)
            assert row["square"] == pytest.approx(row["bias"] ** 2, abs=0.01)
    of_another_seed = case_errors(make_case(30, 30), [2, 5], 0.5, 10, 1, 0.5)
    assert OTHER_TWIN not in {*of_another_seed["estimator"]}
    assert of_another_seed["bias"].iloc[0] != table["bias"].iloc[0]  # of another seed


def by_cell():
    """Squares and biases of two seeds, two cells, two benchmarks and two numbers."""
    columns = ["condition", "scenario", "seed", "cell", "benchmark", "spiked", "estimator", "bias",
               "square", "failed", "items"]  # fmt: skip
    rows = []
    for spiked, seed, cell, place, name in product((10, 2), (0, 1), "xy", (0, 1), (NAIVE, IPW)):
        bias = 0.1 + 0.04 * seed + 0.02 * place + 0.01 * (cell == "y")
        bias *= 0.5 if name == IPW else 1
        keys = "c", AS_LEAKED, seed, f"{cell}{seed}", "ab"[place], spiked, name
        rows.append((*keys, bias, bias**2 * (1 + (spiked == 2)), 0.0, 50 + place))
    return pd.DataFrame(rows, columns=columns)


def test_errors_are_means_over_benchmarks_cells_and_seeds_in_points():
    cells = by_cell()
    table = pd.DataFrame(_error_rows(cells, 0.95))
    ends = [f"{name}{end}" for name in ("bias", "rmse", "gain") for end in ("", "_low", "_high")]
    assert [*table] == ["condition", "scenario", "benchmark", "spiked", "estimator", *ends, "seeds",
                        "cells", "items"]  # fmt: skip
    assert [*table[["benchmark", "spiked", "estimator"]].itertuples(index=False, name=None)] == [
        (benchmark, spiked, name)
        for benchmark in ("a", "b", "all")
        for spiked in (2, 10)
        for name in (NAIVE, IPW)
    ]
    assert {*table["condition"]} == {"c"}
    assert {*table["scenario"]} == {AS_LEAKED}
    row = table.iloc[11]  # all benchmarks, 10 spiked examples, IPW
    assert (row["seeds"], row["cells"], row["items"]) == (2, 4, 50.5)
    # over benchmarks and cells, half of 0.115 and of 0.155
    quantile = t.ppf(0.975, 1)
    assert row["bias"] == pytest.approx(100 * 0.0675)
    assert row["bias_high"] - row["bias"] == pytest.approx(100 * quantile * 0.01)
    chosen = cells[(cells["spiked"] == 10) & (cells["estimator"] == IPW)]
    squares = [chosen[chosen["seed"] == seed]["square"].mean() for seed in (0, 1)]
    root = np.sqrt(np.mean(squares))
    half = quantile * abs(squares[1] - squares[0]) / 2 / (2 * root)
    assert row["rmse"] == pytest.approx(100 * root)
    assert row["rmse_high"] == pytest.approx(100 * (root + half))
    assert row["rmse_low"] == 0  # the interval of two seeds is wide
    assert row["gain"] == pytest.approx(-100 * root)  # naive's is twice as high
    assert row["gain_low"] == pytest.approx(-100 * (root + half))
    assert table.loc[10, ["gain", "gain_low", "gain_high"]].tolist() == [0, 0, 0]
    assert table.iloc[0]["bias"] == pytest.approx(100 * 0.125)
    cells = cells[(cells["seed"] == 0) & (cells["benchmark"] == "a")]
    one_seed = pd.DataFrame(_error_rows(cells, 0.9))
    assert {*one_seed["benchmark"]} == {"a"}
    assert one_seed[["bias_low", "rmse_high", "gain_high"]].isna().all(axis=None)


def test_numbers_suffice_from_which_on_all_larger_ones_hold():
    def sufficiency(*rows, tolerance=1.0):
        columns = ["condition", "scenario", "estimator", "spiked", "rmse", "gain_high"]
        table = pd.DataFrame([("c", AS_LEAKED, *row) for row in rows], columns=columns)
        return [
            (item.estimator, item.settles, item.helps, item.fewest, item.most, item.is_judged)
            for item in _sufficiency(table, tolerance)
        ]

    assert sufficiency(
        (NAIVE, 2, 9.0, 0.0), (OTHER_TWIN, 2, 9.0, -1.0),
        ("x", 40, 3.0, -1.0), ("x", 2, 5.0, -0.5), ("x", 5, 4.0, -0.1), ("x", 10, 3.5, -2.0),
        ("y", 2, 1.0, -1.0), ("y", 5, 9.0, -1.0), ("y", 10, 2.0, 0.0), ("y", 40, 1.0, -0.1),
        ("z", 2, 1.0, -1.0), ("z", 5, 9.0, 0.0),
        ("w", 2, 1.0, np.nan), ("w", 5, 1.5, -1.0),
    ) == [
        ("x", 5, 2, 2, 40, True), ("y", 10, 40, 2, 40, True), ("z", 2, None, 2, 5, True),
        ("w", 2, 5, 2, 5, False),
    ]  # fmt: skip
    assert sufficiency(("x", 2, 4.0, -1.0), ("x", 5, 3.0, -1.0), tolerance=0.5)[0][1] == 5


def test_conditions_and_scenarios_without_items_are_left_out_by_name():
    few = make_case(3, 3, benchmark="few")
    clean = Case(**{**vars(few), "scenario": CLEAN_MODEL, "condition": "clean"})
    findings = measure_errors(
        [make_case(30, 30), few, clean], Spiking([20, 2, 100], 0.5, 10, 0.5, 0), 2.0, 0.9
    )
    assert findings.omissions == [
        "condition, as the benchmark: few: too few items.",
        "condition, as the benchmark: 100 spiked examples on each side: too few items.",
        "clean, no contamination: too few items for any number of spiked examples.",
    ]
    assert (findings.tolerance, findings.confidence) == (2.0, 0.9)
    assert {*findings.by_cell["spiked"]} == {2, 20}
    assert {*findings.errors["benchmark"]} == {"b"}
    assert [*findings.by_cell.index] == [*range(len(findings.by_cell))]
    with pytest.raises(DataError) as error:
        measure_errors([few], Spiking((20, 2), 0.5, 10, 0.5, 0), 2.0, 0.9)
    assert str(error.value) == (
        "audit.spiked is [20, 2]: no benchmark of these cells has members and non-members for any "
        "of these numbers and a benchmark of 10 items besides. Give smaller numbers, or cells with "
        "more items (injection.members)."
    )


def test_every_cell_and_twin_has_a_case_of_each_benchmark_with_its_own_scores():
    (group,) = simulated_groups(2, direct=1.0)
    family = group.family
    cases = read_cases("audit.method", [group], "min_k")
    keys = [(case.condition, case.scenario, case.cell, case.seed, case.benchmark) for case in cases]
    assert keys == [
        (name, scenario, cell.name, cell.cell.seed, benchmark)
        for name, scenario, cells in (
            (group.name, AS_LEAKED, group.cells),
            (family.name, CLEAN_MODEL, family.cells),
        )
        for cell in cells
        for benchmark in ("imdb", "boolq")
    ]
    cells = [*group.cells, *family.cells]
    answers = [*group.answers["accuracy"], *family.results["accuracy"]]
    inserted = [*(group.doses > 0), *family.members]
    for number, case in enumerate(cases):
        rows, place = family.benchmarks == case.benchmark, number // 2
        np.testing.assert_array_equal(case.score, cells[place].scores("", "min_k")[rows])
        np.testing.assert_array_equal(case.correct, answers[place][rows])
        for flags in (case.may_be_spiked, case.may_be_asked, ~case.nonmember):
            np.testing.assert_array_equal(flags, inserted[place][rows])
        twins = family.results["accuracy"][:, rows]
        np.testing.assert_array_equal(case.clean, twins[case.seed])
        np.testing.assert_array_equal(case.references, twins[[1 - case.seed]].T)


def test_items_without_a_finite_score_are_counted_and_named():
    (group,) = simulated_groups(1)
    table = group.cells[0].cell.scores["contaminated"]
    table.loc[table.index[[4, 7]], [("min_k", "")]] = np.nan
    with pytest.raises(DataError) as error:
        read_cases("audit.method", [group], "min_k")
    assert str(error.value) == (
        f"audit.method is 'min_k': {group.cells[0].name} has no finite score of 2 items, such as "
        "p-004. Choose another method."
    )
    assert {case.references is None for case in read_cases("audit.method", [group], "loss")} == {
        True
    }
