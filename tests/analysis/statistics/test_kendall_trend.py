"""The test of a trend over occurrences: who is in it, and how often it is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2, combine_pvalues, kendalltau, norm, rankdata, zscore

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics import paired, trends
from contamination.analysis.statistics.kendall_trend import (
    Detector,
    design_effect,
    dose_tests,
    joint_test,
    make_stratum,
)
from contamination.analysis.statistics.tidy_tables import compute_statistics
from perf import false_alarms

SIZES = {"a": 12, "b": 32, "c": 80}
"""Members a benchmark; as many non-members."""
RUNS = 300
FEW, MANY = binom.ppf([0.0005, 0.9995], RUNS, 0.05)
LEAST, MOST = chi2.ppf([0.0005, 0.9995], RUNS)


def drawn(rng, doses=(1, 2, 4, 8)) -> pd.DataFrame:
    """A seed's draw: who of the one pool is a member, and how often each was inserted."""
    parts = []
    for name, size in SIZES.items():
        counts = np.r_[rng.permutation(np.resize(doses, size)), np.zeros(size, int)]
        place = rng.permutation(2 * size)
        parts.append(pd.DataFrame({
            "example_id": [f"{name}-{i}" for i in place], "benchmark": name,
            "text": [f"text {i}" for i in place], "member": np.arange(2 * size) < size,
            "occurrences": counts,
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True).sort_values("example_id", ignore_index=True)


def seeds(cell, rng, tables, effect, methods=RUNS):
    """Cells whose examples are mostly as hard in one seed as in another; a method is a run."""
    columns = pd.MultiIndex.from_tuples([(f"m{i:03d}", "") for i in range(methods)])
    hard = pd.DataFrame(rng.normal(size=(2 * sum(SIZES.values()), methods)), columns=columns)
    cells = []
    for seed, table in enumerate(tables):
        scores = hard + 0.3 * rng.normal(size=hard.shape) + effect(table)[:, None]
        scores.index = table["example_id"]
        cells.append(replace(cell, seed=seed, examples=table, scores={"contaminated": scores}))
    return cells


def shifted(table):
    """Every member that was inserted scores higher, whatever its dose."""
    return 1.5 * (table["occurrences"].to_numpy() > 0)


def rising(table):
    return 0.3 * np.log2(1 + table["occurrences"].to_numpy())


@pytest.mark.parametrize("members", [3, 4, 5])
def test_a_small_stratum_weighs_as_much_in_either_order(members):
    dose, scores = np.arange(1, members + 1), np.arange(members) * 1.0
    up, down = (make_stratum(np.arange(members), dose, sign * scores) for sign in (1, -1))
    pairs = members * (members - 1) / 2
    deviation = np.sqrt(members * (members - 1) * (2 * members + 5) / 18)  # Kendall 1938
    assert (up.z, down.z) == pytest.approx((pairs / deviation, -pairs / deviation))


def test_benchmarks_of_three_members_leave_a_trend_elsewhere_alone():
    rng = np.random.default_rng(0)
    alone, beside = [], []
    for _ in range(100):
        strata = [
            make_stratum(np.arange(n) + 1_000 * k, dose, 0.25 * np.log2(dose) + rng.normal(size=n))
            for k, n in enumerate((100, 3, 3, 3))
            for dose in [np.resize([1, 2, 4, 8], n)]
        ]
        alone.append(joint_test(strata[:1])[1] < 0.05)
        beside.append(joint_test(strata)[1] < 0.05)
    assert np.mean(beside) > np.mean(alone) - 0.1 > 0.6


def test_the_design_effect_is_that_of_the_examples_that_recur():
    rng, parts, shares, by_example = np.random.default_rng(8), [], [], {}
    for ids, doses in ((range(12), (1, 2, 4)), (range(8, 13), (1, 8))):
        dose, scores = np.resize(doses, len(ids)), rng.normal(size=len(ids))
        parts.append(make_stratum(np.array(ids), dose, scores))
        own = zscore(rankdata(dose)) * zscore(rankdata(scores))
        shares.extend(own**2)
        for example, share in zip(ids, own, strict=True):
            by_example[example] = by_example.get(example, 0) + share
    expected = sum(each**2 for each in by_example.values()) / sum(shares)
    assert design_effect(parts) == pytest.approx(expected)
    assert abs(expected - 1) > 0.05
    assert design_effect([make_stratum(np.arange(3), [1, 2, 4], np.zeros(3))]) == 1


def check_no_trend(found):
    """The rate of false alarms at 5%, and (sharper) Σ z² of all runs: each within 99.9%."""
    p_value = np.array([p for detector, (_, p) in found.items() if detector.benchmark == "all"])
    assert len(p_value) == RUNS
    assert FEW <= (p_value < 0.05).sum() <= MANY
    assert LEAST <= (norm.isf(p_value) ** 2).sum() <= MOST


@pytest.mark.parametrize("shared", [False, True], ids=["drawn anew", "the same draw"])
def test_the_same_shift_at_every_dose_is_no_trend(cell, shared):
    """Three seeds of one pool: 5% false alarms, also where they hold the same examples and doses.

    The sum of independent z would be wrong in 17% of the runs where the draw is the same.
    """
    rng = np.random.default_rng(0)
    tables = [drawn(rng, (0, 0, 1, 3))] * 3 if shared else [drawn(rng) for _ in range(3)]
    check_no_trend(dose_tests(seeds(cell, rng, tables, shifted)))


def test_one_seed_of_unequal_strata_has_five_percent(cell):
    rng = np.random.default_rng(1)
    check_no_trend(dose_tests(seeds(cell, rng, [drawn(rng)], shifted)))


def by_hand(cells, method, names=tuple(SIZES)):
    """The mean τ and Stouffer's p over benchmarks and seeds, of inserted members."""
    parts = []
    for cell in cells:
        scores = cell.scores["contaminated"][method, ""].to_numpy()
        for name in names:
            own = (cell.examples["benchmark"] == name) & (cell.examples["occurrences"] > 0)
            dose = cell.examples.loc[own, "occurrences"]
            test = kendalltau(dose, scores[own.to_numpy()], alternative="greater")
            parts.append((test.statistic, test.pvalue, own.sum()))
    tau, p_value, size = map(np.array, zip(*parts, strict=True))
    joint = combine_pvalues(p_value, method="stouffer", weights=np.sqrt(size))
    return np.average(tau, weights=size), joint.pvalue


def test_one_seed_is_the_weighted_sum_of_its_strata(cell):
    rng = np.random.default_rng(2)
    cells = seeds(cell, rng, [drawn(rng, (0, 1, 2, 4))], rising, methods=8)
    found = dose_tests(cells)
    assert len(found) == 8 * 4
    for detector, numbers in found.items():
        names = tuple(SIZES) if detector.benchmark == "all" else (detector.benchmark,)
        expected = by_hand(cells, detector.method, names)
        assert numbers == pytest.approx(expected, rel=1e-6)


def test_a_benchmark_of_two_members_or_of_one_dose_has_no_test(cell):
    doses = {"z": (1, 2, 2), "one": (4, 4, 4, 0), "two": (1, 2, 0), "a": (1, 1, 8)}
    rows = [(f"{name}-{i}", name, True, n) for name, of in doses.items() for i, n in enumerate(of)]
    columns = ["example_id", "benchmark", "member", "occurrences"]
    table = pd.DataFrame(rows, columns=columns)
    scores = pd.DataFrame({("loss", "v"): np.arange(13.0)})
    made = replace(cell, examples=table, scores={"contaminated": scores})
    assert {each.benchmark for each in dose_tests([made])} == {"a", "z", "all"}
    assert {each[1:] for each in dose_tests([made])} == {("loss", "v")}


def test_seeds_that_draw_anew_add_up_nearly_as_independent_ones(cell):
    rng = np.random.default_rng(3)
    cells = seeds(cell, rng, [drawn(rng) for _ in range(3)], shifted, methods=20)
    found = dose_tests(cells)
    for method in cells[0].scores["contaminated"].columns.levels[0]:
        tau, p_value = by_hand(cells, method)
        assert found[Detector("all", method, "")] == pytest.approx((tau, p_value), abs=0.06)


def test_the_same_scores_again_say_nothing_new(cell):
    rng = np.random.default_rng(4)
    (one,) = seeds(cell, rng, [drawn(rng)], rising, methods=3)
    alone = dose_tests([one])
    again = dose_tests([one, replace(one, seed=1), replace(one, seed=2)])
    assert list(again) == list(alone)
    for detector, expected in alone.items():
        assert again[detector] == pytest.approx(expected, rel=1e-6)


def test_scores_that_fall_are_no_rise(cell):
    rng = np.random.default_rng(5)
    found = dose_tests(seeds(cell, rng, [drawn(rng)], lambda table: -2 * rising(table), methods=3))
    joint = [found[detector] for detector in found if detector.benchmark == "all"]
    assert all(tau < 0 and p_value > 0.99 for tau, p_value in joint)


def test_who_was_never_inserted_plays_no_part(cell):
    rng = np.random.default_rng(6)
    (one,) = seeds(cell, rng, [drawn(rng, (0, 1, 2, 4))], rising, methods=3)
    scores = one.scores["contaminated"].copy()
    never = (one.examples["occurrences"] == 0).to_numpy()
    scores[never] = rng.normal(100, 50, (never.sum(), 3))
    assert dose_tests([replace(one, scores={"contaminated": scores})]) == dose_tests([one])


def test_equal_scores_say_nothing(cell):
    rng = np.random.default_rng(7)
    cells = seeds(cell, rng, [drawn(rng)] * 2, shifted, methods=2)
    cells = [replace(c, scores={"contaminated": c.scores["contaminated"] * 0}) for c in cells]
    assert set(dose_tests(cells).values()) == {(0.0, 0.5)}


def test_one_dose_has_no_test_and_says_so(make):
    cell = make(doses=[4])
    scores = {name: table[["loss"]] for name, table in cell.scores.items()}
    made = compute_statistics("trial", 0, [replace(cell, scores=scores)], AnalysisConfig(draws=20))
    assert (len(made.comparisons), tuple(made.comparisons)) == (0, paired.COLUMNS)
    found = made.trends
    assert (set(found["method"]), tuple(found)) == ({"loss"}, trends.COLUMNS)
    assert found[["tau", "p_value", "slope"]].isna().all().all()
    assert set(found["note"]) == {"one number of occurrences per benchmark: no slope and no test"}


@pytest.mark.parametrize(
    ("dose", "strongest", "status"),
    [(20, 20, 0), (38, 0, 0), (2, 38, 0), (40, 20, 1), (0, 20, 1), (20, 40, 1)],
)
def test_the_benchmark_of_false_alarms_fails_where_a_share_is_off(
    monkeypatch, capsys, dose, strongest, status
):
    """Of 400 runs 20 are 5%, and 1.5 points and three standard errors are 19 runs."""
    runs = iter(np.tile(np.arange(400), 16))
    monkeypatch.setattr(false_alarms, "dose_claims", lambda *_: (next(runs) < dose, True, True))
    monkeypatch.setattr(false_alarms, "strongest_claim", lambda *_: next(runs) < strongest)
    assert false_alarms.main(400) == status
    assert ("OFF" in capsys.readouterr().out) == (status == 1)
