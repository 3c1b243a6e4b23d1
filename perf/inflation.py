"""Coverage of the intervals of inflation, simulated: python -m perf.inflation [repetitions, 2000].

Answers of models whose effects are known. The log-odds that a model of seed s answers item i right
are difficulty(i) + shock(s, model) + noise(s, model, i), plus the effect of the item's own copies,
which differs between items, where they were inserted, and plus a spillover in contaminated models.
The truth is the expected effect over items and seeds (by 400,000 draws). Scenarios: clean against
clean; only members leak; only the format leaks; both.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from contamination.audits.inflation.effects import (
    EFFECTS,
    Results,
    SeedResults,
    mean_effect,
    null_effects,
)

CONFIDENCE = 0.95
TRUTH_ITEMS, TRUTH_SEEDS = 20_000, 20


class Scenario(NamedTuple):
    """Log-odds: the mean effect of own copies, the spillover, and the models' shocks."""

    direct: float
    spillover: float
    shock: float
    level: float = -1.0


SCENARIOS = {
    "clean against clean": Scenario(0, 0, 0.2),
    "clean against clean, large shocks": Scenario(0, 0, 0.6),
    "only members leak": Scenario(1.0, 0, 0.2),
    "only the format leaks": Scenario(0, 0.5, 0.2),
    "both leak": Scenario(1.0, 0.5, 0.2),
    "both leak, large shocks": Scenario(1.0, 0.5, 0.6),
    "few are right, both leak": Scenario(1.0, 0.5, 0.2, -4.0),
}
Rng = np.random.Generator


def draw(
    rng: Rng, scenario: Scenario, seeds: int, items: int, *, shared_shocks: bool = True
) -> SeedResults:
    """Returns the correctness of each item under each seed's three models, shape (S, N).

    Without `shared_shocks` each item has shocks of its own, so that means have a small variance.
    """
    difficulty = rng.normal(scenario.level, 1.5, items)
    # a clean model gains nothing from copies; otherwise items differ in what they gain
    own = rng.normal(scenario.direct, 0.5, items) if scenario.direct else np.zeros(items)

    def answers(shock: Results, shift: Results | float) -> Results:
        noise = rng.normal(0, 0.7, (seeds, items))
        chance = 1 / (1 + np.exp(-(difficulty + shock + noise + shift)))
        drawn: Results = (rng.random((seeds, items)) < chance).astype(float)
        return drawn

    shape = seeds, 1 if shared_shocks else items
    first, second, twin = (rng.normal(0, scenario.shock, shape) for _ in range(3))
    is_first = rng.random((seeds, items)) < 0.5
    inserted_shock = np.where(is_first, first, second)
    left_out_shock = np.where(is_first, second, first)
    return SeedResults(
        answers(inserted_shock, scenario.spillover + own),
        answers(left_out_shock, scenario.spillover),
        answers(twin, 0.0),
    )


def coverage(scenario: Scenario, seeds: int, items: int, repetitions: int) -> dict[str, float]:
    """Returns the share of intervals that include the true effect, by effect."""
    rng = np.random.default_rng(0)
    truth = draw(rng, scenario, TRUTH_SEEDS, TRUTH_ITEMS, shared_shocks=False)
    expected = {name: float(truth.effect(name).mean()) for name in EFFECTS}
    if scenario.direct == 0:
        expected["direct"] = 0.0
    if scenario.spillover == 0:
        expected["spillover"] = 0.0
    if scenario.direct == scenario.spillover == 0:
        expected["total"] = 0.0
    benchmarks = np.repeat(["a", "b", "c", "d"], -(-items // 4))[:items]
    covered = dict.fromkeys(EFFECTS, 0)
    for _ in range(repetitions):
        results = draw(rng, scenario, seeds, items)
        for name in EFFECTS:
            mean = mean_effect(results.effect(name), benchmarks, CONFIDENCE)
            covered[name] += mean.low <= expected[name] <= mean.high
    return {name: count / repetitions for name, count in covered.items()}


def null_coverage(seeds: int, items: int, repetitions: int) -> dict[str, float]:
    """Returns how often the null row, of disjoint pairs of clean twins, includes 0, by effect."""
    rng, covered = np.random.default_rng(1), dict.fromkeys(EFFECTS, 0)
    benchmarks = np.repeat(["a", "b", "c", "d"], -(-items // 4))[:items]
    for _ in range(repetitions):
        twins = draw(rng, SCENARIOS["clean against clean"], seeds, items).twin
        member = rng.random((seeds, items)) < 0.5
        for name, values in null_effects(twins, member).items():
            mean = mean_effect(values, benchmarks, CONFIDENCE)
            covered[name] += mean.low <= 0 <= mean.high
    return {name: count / repetitions for name, count in covered.items()}


def main() -> None:
    """Prints the coverage of each scenario and design."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    print(f"coverage of {CONFIDENCE:.0%} intervals, {repetitions} repetitions")
    for seeds, items in ((1, 480), (2, 480), (4, 480), (4, 120), (8, 480)):
        for name, scenario in SCENARIOS.items():
            shares = coverage(scenario, seeds, items, repetitions)
            print(f"  {seeds} seeds, {items} items, {name}: " + format_shares(shares), flush=True)
        if seeds > 1:
            shares = null_coverage(seeds, items, repetitions)
            print(f"  {seeds} twins, {items} items, null row: " + format_shares(shares), flush=True)


def format_shares(shares: dict[str, float]) -> str:
    """Returns the shares as one line."""
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


if __name__ == "__main__":
    main()
