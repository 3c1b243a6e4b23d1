"""Can inflation be seen? The inflation of each condition beside the d′ of every method.

d′ = √2 Φ⁻¹(AUROC) of members against non-members (`reference_attack.strength`). A condition is
*inflated* if the interval of its total effect is above 0, and *undetected* if no method's interval
of d′ is. Candidates for blind spots, inflated and undetected, are chosen on the cells of one seed;
they count only if they are both on the cells of the other seeds, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from contamination.analysis.cells import CONTAMINATED
from contamination.audits.cells import AuditedCell
from contamination.audits.inflation.effects import (
    TOTAL,
    Results,
    mean_effect,
    student_interval,
)
from contamination.audits.inflation.inputs import MEASURES, Group
from contamination.audits.reference_attack.strength import d_prime, mean_auroc
from contamination.core.statistics.estimates import ALL_BENCHMARKS

AGAINST_TWINS = "loss, against the clean twins"
"""The mean log-probability less its mean under the clean twins of the other seeds: offline LiRA
with a pooled variance (Carlini et al. 2022, section VI-A), in the order of its scores."""
CHOSEN, CONFIRMED = "chosen on", "confirmed on"


def detectability_rows(
    group: Group, about: Mapping[str, Any], confidence: float, choose_seed: int | None
) -> Iterator[dict[str, Any]]:
    """Yields one row per part (the seed of choice, the others), benchmark and measure.

    Columns: those of `about`; occurrences (the mean of inserted items); part; seeds; benchmark;
    measure; the total effect with its interval (value, low, high); method, the one with the largest
    d′ without a reference, and its d_prime with interval; twins_d_prime, that of the loss against
    the clean twins; inflated; detected, by any method without a reference.
    """
    chosen = min(group.seeds) if choose_seed is None else choose_seed
    parts = {
        CHOSEN: [s for s in group.seeds if s == chosen],
        CONFIRMED: [s for s in group.seeds if s != chosen],
    }
    scores = method_scores(group)
    benchmarks = group.family.benchmarks
    doses = group.doses[group.doses > 0]
    for part, seeds in parts.items():
        if not seeds or not scores:
            continue
        rows = [k for k, cell in enumerate(group.cells) if cell.cell.seed in seeds]
        of_seeds = [group.seeds.index(seed) for seed in seeds]
        for benchmark in [*dict.fromkeys(benchmarks), *[ALL_BENCHMARKS][: len({*benchmarks}) - 1]]:
            mask = np.ones(len(benchmarks), bool) if benchmark == ALL_BENCHMARKS else (
                benchmarks == benchmark
            )  # fmt: skip
            found = _d_primes(group, scores, rows, mask, confidence)
            plain = {name: row for name, row in found.items() if name != AGAINST_TWINS}
            best = max(plain, key=lambda name: plain[name]["d_prime"], default=None)
            if best is None:
                continue
            twins = found.get(AGAINST_TWINS, {})
            for measure in MEASURES:
                values = group.results(measure).effect(TOTAL)[of_seeds][:, mask]
                effect = mean_effect(values, benchmarks[mask], confidence)
                yield {
                    **about,
                    "occurrences": float(doses.mean()),
                    "part": part,
                    "seeds": ", ".join(map(str, seeds)),
                    "benchmark": str(benchmark),
                    "measure": measure,
                    **{name: getattr(effect, name) for name in ("value", "low", "high")},
                    "method": best,
                    **plain[best],
                    **{f"twins_{name}": value for name, value in twins.items()},
                    "inflated": effect.low > 0,
                    "detected": any(row["d_prime_low"] > 0 for row in plain.values()),
                }


def method_scores(group: Group) -> dict[str, Results]:
    """Returns the stored scores of each method that all cells have, shape (K, N) each."""
    ids = group.family.items["example_id"]
    tables = [_default_scores(cell) for cell in group.cells]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    scores = {
        name: np.array([table[name].reindex(ids).to_numpy(np.float64) for table in tables])
        for name in common
    }
    losses = [_expected_loss(group, cell.cell.seed) for cell in group.cells]
    if "loss" in scores and np.isfinite(losses).all():
        scores[AGAINST_TWINS] = scores["loss"] - np.array(losses)
    return scores


def _expected_loss(group: Group, seed: int) -> Results:
    """Returns the clean twins' mean score; the twin of the same seed shares the order of training,
    which an attacker would not know, so it is left out where there are others."""
    others = [k for k, twin_seed in enumerate(group.family.seeds) if twin_seed != seed]
    twins: Results = group.family.losses[others or slice(None)]
    mean: Results = twins.mean(axis=0)
    return mean


def _default_scores(cell: AuditedCell) -> dict[str, Any]:
    table = cell.cell.scores[CONTAMINATED]
    defaults = [key for key in table if key in cell.cell.defaults]
    indexed = table.set_axis(cell.cell.examples["example_id"], axis=0)
    return {method: indexed[method, variant] for method, variant in defaults}


def _d_primes(
    group: Group, scores: Mapping[str, Results], rows: Sequence[int], mask: Any, confidence: float
) -> dict[str, dict[str, float]]:
    """Returns the d′ of each method with its interval, over the cells in the rows."""
    inside, outside = group.doses[rows][:, mask] > 0, group.doses[rows][:, mask] == 0
    found = {}
    for name, values in scores.items():
        try:
            auroc = mean_auroc(
                values[rows][:, mask], inside, outside, group.family.benchmarks[mask]
            )
        except ValueError:  # no cell has members and non-members of a benchmark
            continue
        strength = d_prime(auroc)
        low, high = student_interval(strength, confidence)
        found[name] = {"d_prime": strength.value, "d_prime_low": low, "d_prime_high": high}
    return found
