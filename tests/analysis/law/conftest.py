"""Cells whose scores follow the law: a level per example, a shift per copy, noise per training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.cells import Cell, make_cell
from contamination.analysis.law.measurements import MeasuredCell
from tests.analysis.conftest import simulate_parts

METHODS = {"loss": 1.0, "min_k": 1.3}


def simulate_cells(
    *,
    learning_rates: tuple[float, ...] = (1e-3, 4e-3),
    seeds: tuple[int, ...] = (0, 1),
    within: float = 0.3,
    shift: float = 0.4,
    alpha: float = 0.9,
    beta: float = 0.3,
    a_dose: int = 40,
    number: int = 0,
) -> list[MeasuredCell]:
    """Swapped pairs of cells: σ²_between + σ²_within = 1, δ = shift · n^α · (lr / 2e-3)^β."""
    rng = np.random.default_rng(number)
    levels: dict[tuple[str, str], float] = {}
    cells = []
    for rate in learning_rates:
        for seed in seeds:
            for swapped in (False, True):
                parts = simulate_parts(
                    learning_rate=rate, seed=seed, swapped=swapped, a_dose=a_dose
                )
                examples = parts["corpus"].examples
                examples["text"] = examples["example_id"]
                copies = examples["occurrences"].to_numpy(float)
                delta = np.where(
                    copies > 0,
                    shift * np.maximum(copies, 1) ** alpha * (rate / 2e-3) ** beta,
                    0.0,
                )
                tables = []
                for method, strength in METHODS.items():
                    level = [
                        levels.setdefault((method, name), rng.normal(0, np.sqrt(1 - within)))
                        for name in examples["example_id"]
                    ]
                    noise = rng.normal(0, np.sqrt(within), len(examples))
                    tables.append(pd.DataFrame({
                        "example_id": examples["example_id"], "method": method, "variant": "",
                        "checkpoint_step": 10, "default": True, "flag": "", "ranked": True,
                        "score": np.array(level) + noise + strength * delta,
                    }))  # fmt: skip
                scores = replace(parts["contaminated"], table=pd.concat(tables, ignore_index=True))
                name = f"{rate}-{seed}-{swapped}"
                scores = replace(scores, artifact=replace(scores.artifact, digest=name))
                cell = make_cell(**{**parts, "contaminated": scores})
                since = rng.uniform(0, 300_000, len(examples))
                members = examples["example_id"][copies > 0]
                tokens = dict(zip(members, since[copies > 0].tolist(), strict=True))
                cells.append(MeasuredCell(cell, tokens))
    return cells


@pytest.fixture
def law_cells() -> Callable[..., list[MeasuredCell]]:
    return simulate_cells


def cells_of(measured: list[MeasuredCell]) -> list[Cell]:
    return [m.cell for m in measured]


Make = Callable[..., Any]
