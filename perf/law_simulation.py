"""Cells that follow the law exactly, to check its fit, its intervals and the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from contamination.analysis.law.detectability import auroc_of_shift, member_variance
from contamination.analysis.law.measurements import COLUMNS


@dataclass(frozen=True)
class SimulatedLaw:
    """The truth of a simulation; effects are standard deviations on log δ."""

    shift: float = 0.25
    """δ of one copy, at the centre of the other factors."""
    exponents: Mapping[str, float] = field(
        default_factory=lambda: {"occurrences": 0.9, "learning_rate": 0.4, "recency": -0.3}
    )
    method: float = 0.15
    slope: float = 0.05
    benchmark: float = 0.2
    both: float = 0.05
    cell: float = 0.1
    cell_benchmark: float = 0.1
    error: float = 0.08
    """The standard error of a measured shift of one copy."""
    error_share: float = 0.7
    """The part of the errors that the methods share."""
    growth: float = 0.2
    """κ."""


CENTRES = {"occurrences": 1.0, "learning_rate": 2e-3, "parameters": 5e5, "recency": 10.0}


def simulate_rows(
    law: SimulatedLaw,
    rng: np.random.Generator,
    *,
    learning_rates: Sequence[float] = (1e-3, 2e-3, 4e-3),
    parameters: Sequence[float] = (226_000,),
    copies: Sequence[int] = (1, 2, 4, 8),
    seeds: int = 2,
    methods: Sequence[str] = ("loss", "zlib", "min_k", "min_k_plus_plus"),
    benchmarks: Sequence[str] = ("boolq", "imdb", "truthfulqa", "commonsenseqa"),
    members: int = 25,
) -> pd.DataFrame:
    """Returns rows as `measurements.measure_cells` makes them, and their true `true_shift`."""
    by_method = dict(zip(methods, rng.normal(0, law.method, len(methods)), strict=True))
    slopes = dict(zip(methods, rng.normal(0, law.slope, len(methods)), strict=True))
    by_benchmark = dict(zip(benchmarks, rng.normal(0, law.benchmark, len(benchmarks)), strict=True))
    both = {key: rng.normal(0, law.both) for key in product(benchmarks, methods)}
    rows = []
    for size, rate, seed in product(parameters, learning_rates, range(seeds)):
        cell = f"{size}-lr{rate:g}-seed{seed}"
        of_cell = rng.normal(0, law.cell)
        for benchmark in benchmarks:
            of_benchmark = of_cell + by_benchmark[benchmark] + rng.normal(0, law.cell_benchmark)
            for n, half in product(copies, (0, 1)):
                recency = float(np.exp(np.log(6.0 + 20 * half) + rng.normal(0, 0.2)))
                values = {
                    "occurrences": n, "learning_rate": rate, "parameters": size, "recency": recency,
                }  # fmt: skip
                eta = np.log(law.shift) + of_benchmark
                eta += sum(
                    exponent * np.log(values[name] / CENTRES[name])
                    for name, exponent in law.exponents.items()
                )
                shared = rng.normal()
                for method in methods:
                    log_shift = eta + by_method[method] + both[benchmark, method]
                    log_shift += slopes[method] * np.log(n)
                    true = float(np.exp(log_shift))
                    error = law.error * np.sqrt(member_variance(true, law.growth)).item()
                    noise = np.sqrt(law.error_share) * shared
                    noise += np.sqrt(1 - law.error_share) * rng.normal()
                    variance = member_variance(true, law.growth).item()
                    measured_variance = variance * rng.chisquare(members - 2) / (members - 2)
                    rows.append({
                        "cell": cell, "model": f"model{size}", "budget_tokens": 300_000,
                        "seed": seed, "benchmark": benchmark, "method": method, **values,
                        "n_members": members, "n_nonmembers": 200,
                        "shift": true + error * noise, "shift_error": error,
                        "auroc": auroc_of_shift(true, 1.0, variance).item() + 0.03 * noise,
                        "auroc_error": 0.03, "member_variance": measured_variance, "paired": True,
                        "true_shift": true,
                    })  # fmt: skip
    return pd.DataFrame(rows)[[*COLUMNS, "true_shift"]]
