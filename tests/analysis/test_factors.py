"""A new factor is one entry: its column, its value in a cell, and the series along it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from contamination.analysis import factors
from contamination.analysis.conditions import recipe_digest
from contamination.analysis.factors import FACTORS, Factor, factor_values
from contamination.analysis.statistics.seed_pooling import COLUMNS

DECAY = Factor(
    "decay", ("training.weight_decay",), "Detection by weight decay", "weight decay",
    "a weight decay of {}",
)  # fmt: skip


def test_every_factor_is_a_column_and_a_value_of_a_cell(cell):
    columns = [factor.column for factor in FACTORS]
    assert set(columns) <= set(COLUMNS)
    assert columns == list(factor_values(cell)) == list(cell.series)
    assert factor_values(cell)["learning_rate"] == cell.learning_rate


@pytest.mark.parametrize(("decay", "expected"), [(1, 1), (0.1, 0.1), (None, None)])
def test_a_factor_that_is_no_attribute_of_a_cell_is_read_from_its_config(make, decay, expected):
    cell = make()
    chosen = {**cell.chosen, "training.weight_decay": decay}
    object.__setattr__(cell, "chosen", chosen)
    assert DECAY.value(cell) == expected


def test_whole_numbers_stay_whole_and_others_become_floats():
    cell = SimpleNamespace(
        learning_rate=np.float32(0.5), parameters=7, chosen={"a": "0.25", "b": 1}
    )
    by_name = {factor.column: factor for factor in FACTORS}
    rate, parameters = by_name["learning_rate"].value(cell), by_name["parameters"].value(cell)
    assert (rate, type(rate), parameters, type(parameters)) == (0.5, float, 7, int)
    decay = replace(DECAY, fields=("a", "b")).value(cell)
    assert (decay, type(decay)) == (0.25, float)
    assert replace(DECAY, fields=("c",)).value(cell) is None


def test_a_series_along_a_factor_ignores_its_fields(monkeypatch):
    monkeypatch.setitem(factors.BY_COLUMN, "decay", DECAY)
    models = [{"training": {"weight_decay": decay, "steps": 3}} for decay in (0.0, 0.1)]
    assert recipe_digest({}, models[0]) != recipe_digest({}, models[1])
    assert recipe_digest({}, models[0], without_factor="decay") == recipe_digest(
        {}, models[1], without_factor="decay"
    )
