"""Can inflation be seen? The inflation of each condition beside the d′ of every method.

d′ = √2 Φ⁻¹(AUROC) of members against non-members (`reference_attack.strength`), of members with one
number of copies at a time. A condition is *inflated* if the interval of its total effect is above 0
(`Effect.is_above_zero`), and *undetected* if no method's interval of d′ is. Candidates for blind
spots, inflated and undetected, are chosen on the cells of one seed; they count only if they are
both on the cells of the other seeds, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from contamination.analysis.cells import CONTAMINATED
from contamination.audits.cells import AuditedCell
from contamination.audits.inflation.effects import (
    TOTAL,
    Effect,
    Flags,
    Results,
    mean_effect,
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
    """Yields a row per part (the seed of choice, the others), copies, benchmark and measure.

    Columns: those of `about`; occurrences; part; seeds; benchmark; measure; the total effect with
    its interval (value, low, high); method, the one with the largest d′ without a reference, and
    its d_prime with interval; twins_d_prime, that of the loss against the clean twins; inflated;
    detected, by any method without a reference.
    """
    chosen = min(group.seeds) if choose_seed is None else choose_seed
    parts = {
        CHOSEN: [s for s in group.seeds if s == chosen],
        CONFIRMED: [s for s in group.seeds if s != chosen],
    }
    scores = method_scores(group)
    benchmarks = group.family.benchmarks
    names = [str(name) for name in dict.fromkeys(benchmarks)]
    for part, seeds in parts.items():
        if not seeds or not scores:
            continue
        for dose in group.dose_levels:
            for benchmark in [*names, *[ALL_BENCHMARKS] * (len(names) > 1)]:
                mask = np.isin(benchmarks, names if benchmark == ALL_BENCHMARKS else [benchmark])
                d_primes = _d_primes(group, scores, seeds, dose, mask, confidence)
                plain = {name: row for name, row in d_primes.items() if name != AGAINST_TWINS}
                if not plain:
                    continue
                best = max(plain, key=lambda name: plain[name]["d_prime"])
                twins = d_primes.get(AGAINST_TWINS, {})
                shared = {
                    **about,
                    "occurrences": dose,
                    "part": part,
                    "seeds": ", ".join(map(str, seeds)),
                    "benchmark": benchmark,
                    "method": best,
                    **plain[best],
                    **{f"twins_{name}": value for name, value in twins.items()},
                    "detected": any(row["d_prime_low"] > 0 for row in plain.values()),
                }
                for measure in MEASURES:
                    effect = _total_effect(group, measure, seeds, dose, mask, confidence)
                    ends = {name: getattr(effect, name) for name in ("value", "low", "high")}
                    inflated = effect.is_above_zero(confidence)
                    yield {**shared, "measure": measure, **ends, "inflated": inflated}


def _total_effect(
    group: Group, measure: str, seeds: Sequence[int], dose: int, mask: Flags, confidence: float
) -> Effect:
    rows = [group.seeds.index(seed) for seed in seeds]
    values = group.results(measure).effect(TOTAL)
    of_dose = np.where(group.inserted_doses == dose, values, np.nan)
    return mean_effect(of_dose[rows][:, mask], group.family.benchmarks[mask], confidence)


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
    """Returns the clean twins' mean score, shape (N,).

    The twin of the same seed shares the order of training, which an attacker would not know, so it
    is left out where there are others.
    """
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
    group: Group,
    scores: Mapping[str, Results],
    seeds: Sequence[int],
    dose: int,
    mask: Flags,
    confidence: float,
) -> dict[str, dict[str, float]]:
    """Returns the d′ of each method with its interval, over the cells of the seeds."""
    rows = [k for seed in seeds for k in group.rows_of(seed)]
    doses = group.doses[rows][:, mask]
    d_primes = {}
    for name, values in scores.items():
        try:
            auroc = mean_auroc(
                values[rows][:, mask], doses == dose, doses == 0, group.family.benchmarks[mask]
            )
        except ValueError:  # no cell has members and non-members of a benchmark
            continue
        strength = d_prime(auroc)
        low, high = strength.student_interval(confidence)
        d_primes[name] = {"d_prime": strength.value, "d_prime_low": low, "d_prime_high": high}
    return d_primes
