"""A report's time, and bootstrap AUROC at once against a loop over scikit-learn.

    python -m perf.analysis [draws]

First, on the same resamples, both are asked for the AUROC of every draw of one method; drawing is
timed apart, because one set of draws serves all methods.

Then a whole report is made over 24 cells (6 learning rates × 4 seeds) × 12 methods × 5 benchmarks
of 100 members (25 at each of 4 doses) and 100 non-members: its tables with all their metrics, the
blind baseline, pooling, comparisons and trends; then all of the folder, charts included. The loop's
time for the report's AUROCs alone is what its time for one method comes to.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from contamination.analysis.cells import CLEAN, CONTAMINATED, Cell
from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.factors import FACTORS
from contamination.analysis.run import write_report
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import Resample, Scores
from contamination.core.statistics.metrics import AUROC

SIZES = [(24, 96), (100, 100), (200, 200), (1000, 1000)]
GOAL = 20
REPORT_SECONDS = 60
METHODS = 12
BENCHMARKS = 5
A_DOSE = 25
DOSES = (1, 2, 4, 8)
WORDS = ("the", "river", "model", "answer", "film", "is", "was", "not", "good", "of", "why")


def looped_auroc_draws(members: Scores, nonmembers: Scores, drawn: Resample) -> Scores:
    """One call of scikit-learn a draw."""
    labels = np.repeat([1, 0], [len(members), len(nonmembers)])
    return np.array(
        [
            roc_auc_score(labels, np.r_[np.repeat(members, w), np.repeat(nonmembers, v)])
            for w, v in zip(drawn.members.astype(int), drawn.nonmembers.astype(int), strict=True)
        ]
    )


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The fastest of some repeats, in seconds."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


def compare_with_loop(n_members: int, n_nonmembers: int, draws: int) -> float:
    """Prints one line of the table and returns the ratio."""
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(1, 1, n_members), rng.normal(0, 1, n_nonmembers)
    drawn = bootstrap.draw_resample(n_members, n_nonmembers, draws, seed=0)

    def ours() -> Scores:
        return AUROC.draws(bootstrap.rank_scores(members, nonmembers, drawn))

    np.testing.assert_allclose(ours(), looped_auroc_draws(members, nonmembers, drawn), atol=1e-12)
    drawing = best_seconds(
        lambda: bootstrap.draw_resample(n_members, n_nonmembers, draws, seed=0), 5
    )
    fast = best_seconds(ours, 5)
    slow = best_seconds(lambda: looped_auroc_draws(members, nonmembers, drawn), 1)
    numbers = f"{1e3 * drawing:>9.1f} {1e3 * fast:>9.1f} {1e3 * slow:>9.0f} {slow / fast:>8.0f}"
    print(f"{f'{n_members} + {n_nonmembers}':>12} {numbers}")
    return slow / fast


def simulate_examples(seed: int) -> pd.DataFrame:
    """Random texts of a typical length, and a draw of who is a member at which dose."""
    rng = np.random.default_rng(seed)
    doses = np.repeat([0, *DOSES], [A_DOSE * len(DOSES), *[A_DOSE] * len(DOSES)])
    parts = []
    for place in range(BENCHMARKS):
        drawn = rng.permutation(doses)
        texts = [" ".join(rng.choice(WORDS, rng.integers(40, 90))) for _ in drawn]
        ids = [f"b{place}-{i:04d}" for i in range(len(drawn))]
        columns = {"example_id": ids, "benchmark": f"b{place}", "text": texts}
        parts.append(pd.DataFrame({**columns, "member": drawn > 0, "occurrences": drawn}))
    return pd.concat(parts, ignore_index=True)


def simulate_scores(table: pd.DataFrame, effect: float, seed: int) -> pd.DataFrame:
    """Normal scores that rise with the dose."""
    rng, dose = np.random.default_rng(seed), np.log2(1 + table["occurrences"].to_numpy())
    columns = pd.MultiIndex.from_tuples([(f"method_{i:02d}", "") for i in range(METHODS)])
    strength = effect * np.linspace(0.2, 1, METHODS)
    values = rng.normal(size=(len(table), METHODS)) + dose[:, None] * strength
    return pd.DataFrame(values, index=table["example_id"], columns=columns)


def simulate_cell(place: int, seed: int) -> Cell:
    """One of the grid: a learning rate and a seed."""
    condition, table = f"model-lr{place}", simulate_examples(seed)
    return Cell(
        name=f"{condition}-seed{seed}", condition=condition, model="model",
        learning_rate=1e-5 * 2**place, budget_tokens=400_000, example_max_tokens=None,
        last_tokens=None, parameters=225_600, swapped=False, mean_occurrences=None,
        stage=None, scope="whole", epochs=1, seed=seed, recipe=condition, chosen={},
        series={
            f.column: "grid" if f.column == "learning_rate" else condition for f in FACTORS
        },
        digests={n: f"{n}{place}-{seed}" for n in ("corpus", "model", CLEAN, CONTAMINATED)},
        examples=table,
        scores={
            CLEAN: simulate_scores(table, 0, 99),
            CONTAMINATED: simulate_scores(table, 0.1 * place, place),
        },
        defaults=(),
        flags={},
    )  # fmt: skip


def time_report(draws: int) -> float:
    """Prints the seconds of a report beside a loop's for its AUROCs; returns the report's."""
    logging.disable()
    cells = [simulate_cell(place, seed) for place in range(6) for seed in range(4)]
    config = AnalysisConfig(draws=draws)
    tables = best_seconds(lambda: compute_statistics("speed", 0, cells, config), 1)
    with tempfile.TemporaryDirectory() as runs:
        where = [CellPaths("corpus", "model", CLEAN, CONTAMINATED)]
        stage = AnalysisStage("speed", 0, runs, where, config)
        whole = best_seconds(lambda: write_report(stage, cells), 1)
    rng, nonmembers = np.random.default_rng(0), A_DOSE * len(DOSES)
    drawn = bootstrap.draw_resample(A_DOSE, nonmembers, draws, seed=0)
    one = best_seconds(
        lambda: looped_auroc_draws(rng.normal(size=A_DOSE), rng.normal(size=nonmembers), drawn), 1
    )
    looped = one * len(cells) * 2 * METHODS * BENCHMARKS * (1 + len(DOSES))
    print(f"\na report over {len(cells)} cells × {METHODS} methods × {BENCHMARKS} benchmarks")
    print(f"  tables          {tables:>7.0f} s")
    print(f"  whole folder    {whole:>7.0f} s (goal: {REPORT_SECONDS})")
    print(f"  loop, AUROC only {looped:>6.0f} s: {looped / tables:.0f} × the tables' time")
    return whole


def main() -> int:
    """Compares at every size; the exit status is 1 where the goal is missed."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{draws} draws, milliseconds a method\n")
    print(f"{'examples':>12} {'drawing':>9} {'at once':>9} {'loop':>9} {'ratio':>8}")
    ratios = [compare_with_loop(*sizes, draws) for sizes in SIZES]
    print(f"\nsmallest ratio {min(ratios):.0f} (goal: {GOAL})")
    return 0 if min(ratios) >= GOAL and time_report(draws) < REPORT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
