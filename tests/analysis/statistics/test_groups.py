"""Which members are compared with which non-members."""

from __future__ import annotations

import pandas as pd

from contamination.analysis.statistics.groups import (
    describe_unmeasurable_groups,
    groups_of_lacking_benchmarks,
    measurable_groups,
    occurrences_sort_key,
)


def examples(rows: list[tuple[str, bool, int]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["benchmark", "member", "occurrences"])


def test_a_dose_is_compared_with_all_nonmembers_of_its_benchmark():
    rows = [("b", True, 1), ("b", True, 8), ("a", True, 1), ("b", False, 0), ("a", False, 0)]
    found = {(g.benchmark, g.occurrences): g for g in measurable_groups(examples(rows))}
    assert set(found) == {("a", "1"), ("a", "any"), ("b", "1"), ("b", "8"), ("b", "any")}
    assert found["b", "8"].members.tolist() == [1]
    assert found["b", "any"].members.tolist() == [0, 1]
    assert found["b", "1"].nonmembers.tolist() == [3]


def test_a_member_that_was_never_inserted_is_on_neither_side():
    (one, both) = measurable_groups(examples([("a", True, 0), ("a", True, 3), ("a", False, 0)]))
    assert one.members.tolist() == both.members.tolist() == [1]
    assert one.nonmembers.tolist() == [2]


def test_what_is_missing_is_named_benchmark_by_benchmark():
    rows = [("a", True, 1), ("a", True, 8), ("b", True, 8), ("b", False, 0), ("c", False, 0)]
    none = [("d", True, 2)]
    assert describe_unmeasurable_groups(examples([*rows, *none])) == (
        "a (occurrences 1, 2, 8, any), b (occurrences 1, 2), c (occurrences 1, 2, 8, any), "
        "d (occurrences 1, 2, 8, any)"
    )
    assert describe_unmeasurable_groups(examples([("b", True, 8), ("b", False, 0)])) == ""


def test_what_a_benchmark_lacks_altogether_is_lacking_at_every_dose():
    rows = [("a", True, 1), ("a", False, 0), ("b", True, 8), ("c", False, 0), ("d", True, 0)]
    found = [
        (group.benchmark, group.occurrences)
        for group in groups_of_lacking_benchmarks(examples(rows))
    ]
    assert found == [(name, dose) for name in "bcd" for dose in ("1", "8", "any")]


def test_doses_are_in_order_of_number():
    assert sorted(["any", "10", "2"], key=occurrences_sort_key) == ["2", "10", "any"]
