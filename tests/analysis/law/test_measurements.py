from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.law.measurements import (
    COLUMNS,
    measure_cells,
    wide_scores,
    within_variances,
)
from tests.analysis.law.conftest import cells_of, simulate_cells


@pytest.fixture(scope="module")
def cells():
    return simulate_cells(learning_rates=(2e-3,), seeds=(0, 1), a_dose=60)


def test_a_pair_has_one_row_and_its_shift_is_the_true_one(cells):
    rows = measure_cells(cells, 1e4, halves=False)
    assert rows["cell"].nunique() == 2
    assert rows["paired"].all()
    assert len(rows) == 2 * 2 * 2 * 4  # pairs, benchmarks, methods, numbers of copies
    loss = rows[rows["method"] == "loss"].groupby("occurrences")[["shift", "shift_error"]].mean()
    truth = 0.4 * np.array([1.0, 2.0, 4.0, 8.0]) ** 0.9
    errors = np.sqrt((loss["shift_error"].to_numpy() ** 2) / 4)
    assert (np.abs(loss["shift"].to_numpy() - truth) < 4 * errors + 0.05).all()


def test_the_shift_and_auroc_equal_loops_over_examples(cells):
    unit = cells[:2]
    row = measure_cells(unit, 1e4, halves=False).set_index(["benchmark", "method", "occurrences"])
    tables = [wide_scores(c.cell)["imdb", "loss"] for c in unit]
    means, aurocs = [], []
    for this, other in (tables, tables[::-1]):
        chosen = [name for name in this.index if this.loc[name, "occurrences"] == 4]
        differences = [this.loc[n, "standard"] - other.loc[n, "standard"] for n in chosen]
        means.append(np.mean(differences))
        out = this[~this["member"]]["standard"]
        aurocs.append(np.mean([[this.loc[n, "standard"] > o for o in out] for n in chosen]))
    row = row.loc["imdb", "loss", 4]
    assert row["shift"] == pytest.approx(np.mean(means))
    assert row["auroc"] == pytest.approx(np.mean(aurocs))
    members = [t[t["occurrences"] == 4] for t in tables]
    since = [c.tokens_since[n] for c, m in zip(unit, members, strict=True) for n in m.index]
    assert row["recency"] == pytest.approx(np.exp(np.mean(np.log(1 + np.array(since) / 1e4))))
    variances = [np.var(m["standard"], ddof=1) for m in members]
    assert row["member_variance"] == pytest.approx(np.mean(variances))
    counts = {"n_members": 2 * 60, "n_nonmembers": 2 * 240, "seed": 0, "budget_tokens": 400_000}
    assert {name: row[name] for name in counts} == counts
    assert (row["cell"], row["model"]) == (unit[0].cell.name, "tiny_llama")
    assert row["learning_rate"] == 2e-3
    assert row["parameters"] is None
    differences = [
        [this.loc[n, "standard"] - other.loc[n, "standard"] for n in m.index]
        for (this, other), m in zip((tables, tables[::-1]), members, strict=True)
    ]
    error = np.sqrt(sum(np.var(d, ddof=1) / 60 for d in differences)) / 2
    assert row["shift_error"] == pytest.approx(error)


def test_a_single_cells_shift_is_its_members_mean_in_units_of_the_non_members(cells):
    rows = measure_cells(cells[:1], 1e4, halves=False)
    assert list(rows.columns) == list(COLUMNS)
    assert rows.index.tolist() == list(range(16))
    row = rows.set_index(["benchmark", "method", "occurrences"]).loc["boolq", "min_k", 2]
    table = wide_scores(cells[0].cell)["boolq", "min_k"]
    members = table[table["occurrences"] == 2]["standard"]
    nonmembers = table[~table["member"]]["standard"]
    assert nonmembers.mean() == pytest.approx(0, abs=1e-9)
    assert row["shift"] == pytest.approx(members.mean())
    assert row["shift_error"] == pytest.approx(np.sqrt(members.var() / 60 + 1 / 240))
    is_above = [[score > nonmember for nonmember in nonmembers] for score in members]
    assert row["auroc"] == pytest.approx(np.mean(is_above))
    assert row["member_variance"] == pytest.approx(members.var())
    assert (row["n_members"], row["n_nonmembers"]) == (60, 240)


@pytest.mark.parametrize(
    ("a_dose", "halves", "rows"), [(5, False, 16), (4, False, 0), (10, True, 32), (9, True, 16)]
)
def test_a_row_has_five_members_or_more(a_dose, halves, rows):
    """Of nine members the earlier half has five, with the median itself."""
    one_cell = simulate_cells(learning_rates=(2e-3,), seeds=(0,), a_dose=a_dose)[:1]
    measurements = measure_cells(one_cell, 1e4, halves=halves)
    assert len(measurements) == rows
    assert set(measurements["n_members"]) <= {5}


def test_the_error_of_the_auroc_is_that_of_leaving_out_examples(cells):
    """An example is left out of both cells of the pair; 60 members make it 1/60 too large."""
    unit = cells[:2]
    rows = measure_cells(unit, 1e4, halves=False).set_index(["benchmark", "method", "occurrences"])
    names, won = [], []
    for table in (wide_scores(c.cell)["imdb", "loss"] for c in unit):
        members, others = table[table["occurrences"] == 4], table[~table["member"]]
        names.append((members.index.to_numpy(), others.index.to_numpy()))
        won.append(members["standard"].to_numpy()[:, None] > others["standard"].to_numpy())

    def auroc_without(left_out):
        parts = zip(won, names, strict=True)
        return np.mean([w[np.ix_(m != left_out, o != left_out)].mean() for w, (m, o) in parts])

    left_out = {name for pair in names for side in pair for name in side}
    away = np.array([auroc_without(name) for name in left_out]) - auroc_without(None)
    error = rows.loc[("imdb", "loss", 4), "auroc_error"]
    assert error == pytest.approx(np.sqrt((away**2).sum()), rel=0.03)


def test_a_single_cell_has_a_less_exact_shift(cells):
    single = measure_cells(cells[:1], 1e4, halves=False)
    pair = measure_cells(cells[:2], 1e4, halves=False)
    assert not single["paired"].any()
    assert single["shift_error"].mean() > 1.5 * pair["shift_error"].mean()


def test_halves_split_by_the_tokens_since_the_last_copy(cells):
    rows = measure_cells(cells, 1e4, halves=True)
    both = rows.groupby(["cell", "benchmark", "method", "occurrences"])["recency"]
    assert (both.size() == 2).all()
    assert (both.max() > 1.5 * both.min()).all()


def test_the_variance_within_is_recovered(cells):
    table = within_variances(cells_of(cells))
    assert not table["upper_bound"].any()
    assert table["within"].mean() == pytest.approx(0.3, abs=0.04)
    columns = ["condition", "benchmark", "method", "within", "examples", "upper_bound"]
    assert list(table.columns) == columns
    keys = [(b, m) for b in ("boolq", "imdb") for m in ("loss", "min_k")]
    assert list(zip(table["benchmark"], table["method"], strict=True)) == keys
    assert set(table["condition"]) == {cells[0].cell.condition}
    assert set(table["examples"]) == {240}
    wide = [wide_scores(c.cell)["imdb", "loss"] for c in cells]
    pairs = [(a[~a["member"]], b[~b["member"]]) for a, b in combinations(wide, 2)]
    variances = [(a["standard"] - b["standard"]).dropna().var() for a, b in pairs]
    row = table.set_index(["benchmark", "method"]).loc["imdb", "loss"]
    assert row["within"] == pytest.approx(np.nanmean(variances) / 2)


def test_one_pair_alone_gives_an_upper_bound(cells):
    table = within_variances(cells_of(cells[:2]))
    assert table["upper_bound"].all()
    assert table["within"].mean() == pytest.approx(0.3, abs=0.06)
    assert set(table["condition"]) == {cells[0].cell.condition}
    assert set(table["examples"]) == {120}
    assert list(table["benchmark"]) == ["boolq", "boolq", "imdb", "imdb"]
    assert list(table["method"]) == ["loss", "min_k", "loss", "min_k"]
    first_cell, second_cell = (wide_scores(c.cell)["imdb", "loss"] for c in cells[:2])
    both_orders = [(first_cell, second_cell), (second_cell, first_cell)]
    once = [(a["standard"] - b["standard"])[a["occurrences"] == 1] for a, b in both_orders]
    assert table["within"].iloc[2] == pytest.approx(pd.concat(once).var() / 2)


def test_a_variance_within_is_at_most_that_of_the_non_members(cells):
    """Two trainings whose scores have nothing in common differ by twice the variance."""
    unrelated = simulate_cells(learning_rates=(2e-3,), seeds=(0, 1), a_dose=12, within=1.0)
    assert within_variances(cells_of(unrelated))["within"].max() == 1.0
    assert within_variances(cells_of(unrelated[:2]))["within"].max() == 1.0
    assert not len(within_variances(cells_of(cells[:1])))
