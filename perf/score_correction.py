"""Bias and RMSE of corrected scores on simulated answers, by the number of spiked examples.

python -m perf.score_correction
"""

from __future__ import annotations

import numpy as np

from contamination.audits.score.estimation import estimate_scores
from contamination.audits.score.findings import summarize
from tests.audits.score.simulated import simulate

REPEATS, COVERAGE_REPEATS, DRAWS = 200, 40, 100
CASES = {
    "no contamination": {"share": 0.0},
    **{f"30% members, {n} spiked": {"spiked": n} for n in (5, 10, 30, 100)},
    "30% members, 30 spiked, separation 5": {"separation": 5.0},
    "30% members, 30 spiked, harder items": {"by_difficulty": -1.0},
}
"""Spiked examples are counted on each side; 300 items; ĉ is the true probability."""

if __name__ == "__main__":
    for name, options in CASES.items():
        errors: dict[str, list[float]] = {}
        for seed in range(REPEATS):
            items, clean = simulate(seed, models=5, **options)  # type: ignore[arg-type]
            for score, value in estimate_scores(items, 0, seed).values.items():
                errors.setdefault(score, []).append(100 * (value - clean))
        covered: dict[str, list[bool]] = {}
        p_values = []
        for seed in range(COVERAGE_REPEATS):
            items, clean = simulate(seed, models=5, **options)  # type: ignore[arg-type]
            findings = summarize(items, estimate_scores(items, DRAWS, seed), 0.95, None)
            inflation = findings.scores[0].value - clean
            p_values.append(findings.constat_p)
            for s in findings.scores:
                is_inside = s.inflation_low - 1e-3 <= inflation <= s.inflation_high + 1e-3
                covered.setdefault(s.name, []).append(is_inside)
        print(f"{name} (ConStat p ≤ .05: {np.mean(np.array(p_values) <= 0.05):.2f})")
        for score, values in errors.items():
            rmse = np.sqrt(np.mean(np.square(values)))
            print(
                f"  {score:18s} bias {np.mean(values):6.2f} rmse {rmse:5.2f} "
                f"covers {np.mean(covered[score]):.2f}",
                flush=True,
            )
