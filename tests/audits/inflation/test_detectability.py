"""Inflation beside the d′ of each method, by part, copies, benchmark and measure."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.audits.inflation.detectability import (
    AGAINST_TWINS,
    detectability_rows,
    method_scores,
)
from contamination.audits.inflation.effects import TOTAL
from contamination.audits.inflation.findings import InflationFindings
from tests.audits.inflation.simulated import ITEMS, simulated_groups


@pytest.fixture(scope="module")
def group():
    """Three seeds, whose members have 1 or 8 copies."""
    (group,) = simulated_groups(3, direct=1.0, detected=False)
    return replace(group, doses=np.where(group.doses > 0, 1 + 7 * (np.arange(ITEMS) % 4 < 2), 0))


@pytest.fixture(scope="module")
def table(group):
    return pd.DataFrame(detectability_rows(group, {"condition": "c"}, 0.95, 1))


def test_there_is_a_row_of_each_part_copies_benchmark_and_measure(table):
    assert [*table] == [
        "condition", "occurrences", "part", "seeds", "benchmark", "method", "d_prime",
        "d_prime_low", "d_prime_high", "twins_d_prime", "twins_d_prime_low", "twins_d_prime_high",
        "detected", "measure", "value", "low", "high", "inflated",
    ]  # fmt: skip
    keys = ["part", "seeds", "occurrences", "benchmark", "measure"]
    assert [*table[keys].itertuples(index=False, name=None)] == [
        (part, seeds, copies, benchmark, measure)
        for part, seeds in (("chosen on", "1"), ("confirmed on", "0, 2"))
        for copies in (1, 8)
        for benchmark in ("imdb", "boolq", "all")
        for measure in ("accuracy", "margin")
    ]
    assert {*table["condition"]} == {"c"}


def d_prime(group, scores, seeds, copies, benchmarks):
    aurocs = []
    for row, cell in enumerate(group.cells):
        if cell.cell.seed in seeds:
            of_benchmarks = []
            for name in benchmarks:
                chosen = group.family.benchmarks == name
                members = scores[row, chosen & (group.doses[row] == copies)][:, None]
                nonmembers = scores[row, chosen & (group.doses[row] == 0)]
                of_benchmarks.append(
                    ((members > nonmembers) + 0.5 * (members == nonmembers)).mean()
                )
            aurocs.append(np.mean(of_benchmarks))
    return np.sqrt(2) * norm.ppf(np.mean(aurocs))


@pytest.mark.parametrize(("part", "seeds"), [("chosen on", [1]), ("confirmed on", [0, 2])])
@pytest.mark.parametrize("benchmarks", [["imdb"], ["imdb", "boolq"]])
def test_the_method_is_that_with_the_largest_d_prime_and_the_effect_is_total(
    group, table, part, seeds, benchmarks
):
    scores = method_scores(group)
    name = benchmarks[0] if len(benchmarks) == 1 else "all"
    keys = part, 8, name, "margin"
    by_key = table.set_index(["part", "occurrences", "benchmark", "measure"])
    row = by_key.loc[keys]
    strengths = {method: d_prime(group, scores[method], seeds, 8, benchmarks) for method in scores}
    assert row.twins_d_prime == pytest.approx(strengths.pop(AGAINST_TWINS))
    assert {*strengths} == {"loss", "min_k"}
    assert row.method == max(strengths, key=strengths.get)
    assert row.d_prime == pytest.approx(strengths[row.method])
    assert row.d_prime_low < row.d_prime < row.d_prime_high
    effects = group.results("margin").effect(TOTAL)
    has_8_copies = group.doses[0] + group.doses[1] == 8
    means = [
        effects[seed, has_8_copies & (group.family.benchmarks == benchmark)].mean()
        for seed in seeds
        for benchmark in benchmarks
    ]
    assert row.value == pytest.approx(np.mean(means))
    assert row.low < row.value < row.high
    assert row.inflated


def test_a_condition_is_detected_if_any_method_is_above_zero():
    (group,) = simulated_groups(2, direct=1.0)
    with_unknown_method = replace(group, cells=[
        replace(cell, cell=replace(cell.cell, scores={**cell.cell.scores, "contaminated":
            cell.cell.scores["contaminated"].assign(**{"x": 0.0})})) for cell in group.cells
    ])  # fmt: skip
    rows = [*detectability_rows(group, {}, 0.95, None)]
    assert any(row["d_prime_low"] > 0 for row in rows)
    assert all(row["detected"] for row in rows if row["d_prime_low"] > 0)
    assert {row["seeds"] for row in rows} == {"0", "1"}
    assert {*method_scores(with_unknown_method)} == {*method_scores(group)}  # of defaults alone
    (of_one_seed,) = simulated_groups(1, direct=1.0)
    assert {row["part"] for row in detectability_rows(of_one_seed, {}, 0.95, None)} == {"chosen on"}
    all_inserted = replace(of_one_seed, doses=np.ones_like(of_one_seed.doses))
    assert [*detectability_rows(all_inserted, {}, 0.95, None)] == []  # nobody is left out


def test_a_twin_of_the_same_seed_is_compared_with_if_it_is_the_only_one():
    (group,) = simulated_groups(1)
    scores = method_scores(group)
    np.testing.assert_allclose(
        scores[AGAINST_TWINS], scores["loss"] - group.family.losses[0], atol=1e-12
    )


def test_effects_have_a_row_of_each_copies_measure_effect_and_benchmark(group):
    findings = InflationFindings([group, replace(group, name="second")], 0.95)
    assert findings.families == [group.family]
    table = findings.effects
    assert [*table] == [
        "condition", "learning_rate", "form", "stage", "occurrences", "measure", "benchmark",
        "effect", "value", "low", "high", "seeds", "items",
    ]  # fmt: skip
    keys = ["condition", "measure", "effect", "occurrences", "benchmark"]
    assert [*table[keys].itertuples(index=False, name=None)] == [
        (condition, measure, effect, copies, benchmark)
        for condition in ("contaminated", "second")
        for measure in ("accuracy", "margin")
        for effect in ("direct", "spillover", "total")
        for copies in (1, 8)
        for benchmark in ("imdb", "boolq", "all")
    ]
    assert {*zip(table["learning_rate"], table["form"], table["stage"], strict=True)} == {
        (1e-3, "verbatim", "pretraining"),
    }  # fmt: skip
    by_key = table[table["condition"] == "second"].set_index(keys[1:])
    results = group.results("margin")
    total = results.effect(TOTAL)
    has_one_copy = (group.doses[0] + group.doses[1] == 1) & (group.family.benchmarks == "imdb")
    assert by_key.loc[("margin", "total", 1, "imdb"), "value"] == pytest.approx(
        total[:, has_one_copy].mean()
    )
    assert by_key.loc[("margin", "total", 1, "imdb"), "items"] == has_one_copy.sum()
    spillover = results.effect("spillover")[:, group.family.benchmarks == "boolq"].mean()
    for copies in (1, 8):  # of all items that were left out
        row = by_key.loc[("margin", "spillover", copies, "boolq")]
        assert row["value"] == pytest.approx(spillover)
        assert (row["seeds"], row["items"]) == (3, ITEMS // 2)


def test_clean_twins_have_their_accuracy_and_the_chance_of_each_benchmark():
    findings = InflationFindings(simulated_groups(3, direct=1.0), 0.95)
    family, table = findings.groups[0].family, findings.clean
    assert [*table] == [
        "condition", "benchmark", "value", "low", "high", "seeds", "items", "chance", "free",
        "at_chance",
    ]  # fmt: skip
    assert table["benchmark"].tolist() == ["imdb", "boolq", "all"]
    assert {*table["condition"]} == {"clean"}
    assert table["seeds"].tolist() == [3, 3, 3]
    assert table["items"].tolist() == [80, 80, 160]
    accuracy = family.results["accuracy"]
    means = [accuracy[:, family.benchmarks == name].mean() for name in ("imdb", "boolq")]
    assert table["value"].tolist() == pytest.approx([*means, np.mean(means)])
    assert table["chance"].tolist() == pytest.approx([0.25, 0, 0.125])
    assert table["free"].tolist() == [False, True, False]
    null = findings.null
    assert [*null] == ["condition", "benchmark", "measure", "effect", "value", "low", "high",
                       "seeds", "items"]  # fmt: skip
    assert [*null[["measure", "effect", "benchmark"]].itertuples(index=False, name=None)] == [
        (measure, effect, benchmark)
        for measure in ("accuracy", "margin")
        for effect in ("direct", "spillover", "total")
        for benchmark in ("imdb", "boolq", "all")
    ]
    assert {*zip(null["condition"], null["seeds"], strict=True)} == {("clean", 1)}
    assert InflationFindings(simulated_groups(1), 0.95).null.empty
