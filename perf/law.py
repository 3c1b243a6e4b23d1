"""How often the law's intervals are right, and whether planned designs have the promised power.

python -m perf.law coverage 40            # simulated cells: coefficients and predictions
python -m perf.law power 200              # three targets, simulated scores
python -m perf.law cells runs/report/DIR  # the same in real cells: subsamples of their members
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.law.comparison import predict_held_out, summarise
from contamination.analysis.law.detectability import shift_of_auroc
from contamination.analysis.law.fit import fit_law
from contamination.analysis.law.measurements import open_measured_cells, wide_scores
from contamination.analysis.law.power import (
    Design,
    critical_auroc,
    fewest_members,
    power_of_design,
)
from contamination.analysis.report_folder import cell_paths
from contamination.core.statistics.metrics import auroc_value
from contamination.launch.power_tables import FEW_MEMBERS
from perf.law_simulation import SimulatedLaw, simulate_rows

Floats = NDArray[np.float64]
LEVEL, TARGETS, TIMES = 0.05, (0.5, 0.8, 0.9), 200
MOST_MEMBERS = 400


def coverage(times: int) -> pd.DataFrame:
    """Returns how often 90% intervals include the truth, of coefficients and of held-out AUROCs."""
    from scipy.stats import t

    truth, hits = SimulatedLaw(), defaultdict(list)
    for seed in range(times):
        rows = simulate_rows(
            truth, np.random.default_rng(seed), parameters=(226_000, 1_060_000),
            methods=("loss", "zlib", "min_k"), benchmarks=("boolq", "imdb", "truthfulqa"),
        )  # fmt: skip
        held = (rows["learning_rate"] == 2e-3) | (rows["occurrences"] == 8)
        law = fit_law(rows[~held], {}, 1e4)
        quantile = float(t.ppf(0.95, law.freedom))
        for name, (value, error) in law.coefficients().items():
            if name != "intercept":
                miss = abs(value - truth.exponents.get(name, 0.0))
                hits[name].append(miss <= quantile * error)
        summary = summarise(predict_held_out(law, rows[~held], rows[held], 0.9, seed), 0.9)
        for row in summary[summary["predictor"] == "law"].itertuples():
            hits[f"AUROC, {row.held_out}"].append(row.coverage)
    rows = [(name, float(np.mean(of)), len(of)) for name, of in hits.items()]
    return pd.DataFrame(rows, columns=["what", "coverage", "simulations"])


def power(times: int) -> pd.DataFrame:
    """Returns the achieved power of planned designs on simulated normal scores."""
    rng, rows = np.random.default_rng(0), []
    for shift, target in zip((0.25, 0.5, 1.0), TARGETS, strict=True):
        members = fewest_members(shift, 0.2, Design(2, 2), LEVEL, target, 1.0)
        assert members is not None
        design, spread = Design(members, members), float(np.exp(0.1 * shift))
        hits = [
            auroc_value(rng.normal(shift, spread, members), rng.normal(0, 1, members))
            > critical_auroc(design, LEVEL)
            for _ in range(times)
        ]
        promised = float(power_of_design(shift, 0.2, design, LEVEL))
        rows.append((shift, target, members, promised, float(np.mean(hits)), times))
    columns = ["shift", "target", "members", "promised", "achieved", "simulations"]
    return pd.DataFrame(rows, columns=columns)


def power_in_cells(report: str) -> pd.DataFrame:
    """Returns the achieved power of planned designs on subsamples of real cells.

    Each cell, method and number of copies is a population: members of all benchmarks, standardised
    by their benchmark's non-members, and the non-members. The planner gets its δ alone (from its
    AUROC, by Φ), and plans the members for one of three targets in turn; the design is then drawn
    from the population, with replacement, `TIMES` times.
    """
    rng = np.random.default_rng(0)
    rows: list[tuple[object, ...]] = []
    for measured in open_measured_cells(cell_paths("report", report)):
        tables = wide_scores(measured.cell)
        for method in sorted({method for _, method in tables}):
            of_method = pd.concat([t for (_, m), t in tables.items() if m == method])
            nonmembers = of_method[~of_method["member"]]["standard"].to_numpy(float)
            for n in sorted({*of_method["occurrences"]} - {0}):
                chosen = of_method["member"] & (of_method["occurrences"] == n)
                members = of_method[chosen]["standard"].to_numpy(float)
                target = TARGETS[len(rows) % len(TARGETS)]
                found = _achieved(members, nonmembers, target, rng)
                if found is not None:
                    rows.append((measured.cell.name, method, n, target, *found))
    columns = ["cell", "method", "copies", "target", "shift", "members", "promised", "achieved"]
    return pd.DataFrame(rows, columns=columns)


def _achieved(
    members: Floats, nonmembers: Floats, target: float, rng: np.random.Generator
) -> tuple[float, int, float, float] | None:
    """Returns δ, the planned members, the promised and the achieved power; None: too many."""
    shift = float(shift_of_auroc(auroc_value(members, nonmembers)))
    if shift <= 0:
        return None
    number = fewest_members(shift, 0.0, Design(2, 2), LEVEL, target, 1.0)
    if number is None or number > MOST_MEMBERS:
        return None
    design = replace(Design(2, 2), members=number, nonmembers=number)
    limit = critical_auroc(design, LEVEL)
    hits = [
        auroc_value(rng.choice(members, number), rng.choice(nonmembers, number)) > limit
        for _ in range(TIMES)
    ]
    promised = float(power_of_design(shift, 0.0, design, LEVEL))
    return shift, number, promised, float(np.mean(hits))


def main() -> None:
    """Prints the table that the first word names."""
    name, value = sys.argv[1:3]
    if name == "cells":
        table = power_in_cells(value)
        error = table["achieved"] - table["promised"]
        print(table.to_string(index=False, float_format="%.3f"))
        print(
            f"{len(table)} rows of {table['cell'].nunique()} cells: achieved − promised "
            f"{error.mean():+.3f} on average, {error.abs().mean():.3f} in absolute value, "
            f"within .05 in {(error.abs() <= 0.05).mean():.0%}"
        )
        sized = table.assign(
            error=error,
            within=error.abs() <= 0.05,
            planned=np.where(
                table["members"] < FEW_MEMBERS, f"< {FEW_MEMBERS}", f"≥ {FEW_MEMBERS}"
            ),
        )
        columns = {
            "designs": ("error", "size"),
            "mean": ("error", "mean"),
            "within": ("within", "mean"),
        }
        for keys in (["target"], ["planned"], ["planned", "target"]):
            print(sized.groupby(keys).agg(**columns).to_string(float_format="%.3f"))
        return
    tables = {"coverage": coverage, "power": power}
    print(tables[name](int(value)).to_string(index=False, float_format="%.3f"))


if __name__ == "__main__":
    main()
