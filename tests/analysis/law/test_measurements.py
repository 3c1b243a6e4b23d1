import numpy as np
import pytest

from contamination.analysis.law.measurements import (
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
    found = row.loc["imdb", "loss", 4]
    assert found["shift"] == pytest.approx(np.mean(means))
    assert found["auroc"] == pytest.approx(np.mean(aurocs))


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


def test_one_pair_alone_gives_an_upper_bound(cells):
    table = within_variances(cells_of(cells[:2]))
    assert table["upper_bound"].all()
    assert table["within"].mean() == pytest.approx(0.3, abs=0.06)
    assert not len(within_variances(cells_of(cells[:1])))
