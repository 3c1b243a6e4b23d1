"""Swapped replicates: each example in against out."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.statistics.tidy_tables import REPLICATES_COLUMNS, replicates_table


def swap(cell, effect: float, seed: int):
    """The cell with members and non-members changed, and members' scores `effect` higher."""
    examples = cell.examples.copy()
    counts = examples["occurrences"].to_numpy()
    examples["member"] = ~examples["member"]
    examples["occurrences"] = np.where(counts == 0, 4, 0)
    return replace(score(cell, examples, effect, seed), swapped=True, name=f"{cell.name}-swapped")


def score(cell, examples, effect: float, seed: int, level: float = 0.0, scale: float = 1.0):
    """A benchmark's texts have a level and a spread of their own, by every model."""
    rng = np.random.default_rng(seed)
    table = cell.scores["contaminated"]
    member = examples["member"].to_numpy()[:, None]
    own = examples["benchmark"].map({"boolq": 1.0, "imdb": 6.0}).to_numpy()[:, None]
    values = level + 20 * own + scale * own * (rng.normal(size=table.shape) + effect * member)
    scores = pd.DataFrame(values, index=table.index, columns=table.columns)
    return replace(cell, examples=examples, scores={**cell.scores, "contaminated": scores})


def test_the_simulated_effect_is_found_whatever_a_models_level_and_scale(make):
    plain = make(a_dose=60)
    found = replicates_table([score(plain, plain.examples, 2.0, 1, 30, 5), swap(plain, 2.0, 2)])
    assert tuple(found.columns) == REPLICATES_COLUMNS
    assert len(found) == len(plain.examples) * 3
    assert not found.isna().any().any()
    first = set(plain.examples["example_id"][plain.examples["member"]])
    side = found["example_id"].isin(first).rename("in the first cell")
    mean = found.groupby(["method", "benchmark", side])["difference"].mean()
    np.testing.assert_allclose(mean, [2.0] * 12, atol=0.4)
    assert set(found["occurrences"]) == {1, 2, 4, 8}


def test_a_difference_is_in_each_models_nonmembers_deviations(make):
    plain = make(a_dose=2)
    cells = [score(plain, plain.examples, 1.0, 1, 30, 5), swap(plain, 1.0, 2)]
    tables = [
        cell.examples.assign(score=cell.scores["contaminated"]["loss", ""].to_numpy())
        for cell in cells
    ]

    def standard(table, row):
        own = table[table["benchmark"] == row.benchmark]
        outside = own.loc[~own["member"], "score"]
        score = own.loc[own["example_id"] == row.example_id, "score"].item()
        return (score - statistics.mean(outside)) / statistics.stdev(outside)

    found = replicates_table(cells).query("method == 'loss'")
    ids = set(cells[0].examples.query("member")["example_id"])
    for row in found.itertuples():
        one, two = (standard(table, row) for table in tables)
        expected = one - two if row.example_id in ids else two - one
        assert row.difference == pytest.approx(expected)


def test_no_effect_is_none(make):
    plain = make(a_dose=60)
    found = replicates_table([score(plain, plain.examples, 0.0, 1), swap(plain, 0.0, 2)])
    assert found["difference"].mean() == pytest.approx(0, abs=0.1)


def test_only_the_same_recipe_and_seed_are_a_pair(make):
    plain = make()
    for other in (replace(swap(plain, 1, 1), seed=9), replace(swap(plain, 1, 1), recipe="x")):
        found = replicates_table([plain, other])
        assert found.empty
        assert tuple(found.columns) == REPLICATES_COLUMNS


def test_every_pair_of_the_same_examples_is_found_whatever_stands_between(make, caplog):
    lone, plain, again = make(seed=1), make(), make(seed=2)
    other = replace(swap(make(seed=3, a_dose=4), 1, 1), name="other")
    cells = [swap(plain, 1, 1), lone, make(seed=3), other, plain, again, swap(again, 1, 1)]
    found = replicates_table(cells)
    assert set(found["seed"]) == {0, 2}
    assert found.index.is_unique
    named = f"{cells[2].name} and other"
    assert caplog.messages == [f"{named}: not the same examples, so no pair."]


def test_a_member_that_was_never_inserted_is_out(make):
    plain, other = make(), swap(make(), 1.0, 1)
    counts = other.examples["occurrences"].where(other.examples.index != 40, 0)
    other = replace(other, examples=other.examples.assign(occurrences=counts))
    left_out = plain.examples["example_id"][40]
    assert left_out not in set(replicates_table([plain, other])["example_id"])
