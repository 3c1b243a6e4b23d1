"""How often a report claims what isn't there: a trend over the dose, and a strongest method.

    python -m perf.false_alarms [runs]

A run simulates a condition of one to five seeds, benchmarks of some members each and as many
non-members. An example is mostly as hard in one seed as in another. Each seed draws members and
doses anew, or all hold the same ones. Claimed are

- *dose test*: τ's p < 0.05, where every inserted member scores higher by the same, whatever its
  dose. Wanted: 5% (one-sided). `independent` sums z as if no example recurred.
- *rises*: the slope's 95% interval is above 0 in the same runs. Wanted: 2.5%
  (`perf.slope_coverage` has more).
- *strongest*: one of four equal methods is above each other one. Wanted: at most 5%.

The exit status is 1 where a dose test is off 5%, or a strongest method above it, by more than 1.5
points and three standard errors of so many runs. The slope's share is shown, not judged.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from contamination.analysis.statistics.dose_response import (
    BenchmarkScores,
    dose_response,
    slope_interval,
)
from contamination.analysis.statistics.kendall_trend import Stratum, joint_test, make_stratum
from contamination.analysis.statistics.paired import Differences, max_t_p_values
from contamination.analysis.statistics.seed_pooling import Replicates
from contamination.analysis.statistics.trends import mean_response
from contamination.core.seeds import derive_seed
from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import Resample, draw_counts
from contamination.core.statistics.estimates import estimate_metrics
from contamination.core.statistics.metrics import AUROC

SETTINGS = (
    ((100, 100, 100, 100), (1, 2, 4, 8)),
    ((12, 32, 80), (1, 2, 4, 8)),
    ((12, 32, 80), (0, 0, 1, 3)),
)
"""Members a benchmark, and their doses in equal shares."""
CONDITIONS = ((1, False), (2, False), (3, False), (3, True), (5, True))
"""Seeds, and whether they hold the same examples at the same doses."""
DRAWS = 200
SHIFT = 1.0
LEVEL, TOLERANCE = 0.05, 0.015
Rng = np.random.Generator
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Seed:
    """One benchmark's draw in one seed: who is a member, how often, and the scores."""

    def __init__(self, rng: Rng, hard: Floats, doses: Sequence[int], drawn: Seed | None) -> None:
        size = len(hard) // 2
        self.order: Ints = rng.permutation(len(hard)) if drawn is None else drawn.order
        occurrences = rng.permutation(np.resize(doses, size)) if drawn is None else drawn.dose
        self.dose: Ints = occurrences
        self.draws: int = int(rng.integers(1 << 40)) if drawn is None else drawn.draws
        scores = hard[self.order] + 0.3 * rng.normal(size=len(hard))
        self.members, self.nonmembers = scores[:size] + SHIFT * (self.dose > 0), scores[size:]

    def stratum(self) -> Stratum:
        """Its part of the dose test."""
        inserted = self.dose > 0
        ids = self.order[: len(self.dose)][inserted]
        return make_stratum(ids, self.dose[inserted], self.members[inserted])

    def sample(self) -> BenchmarkScores:
        """Its part of the slope."""
        inserted = self.dose > 0
        drawn = Resample(
            draw_counts(int(inserted.sum()), DRAWS, derive_seed(self.draws, "members")),
            draw_counts(len(self.nonmembers), DRAWS, self.draws),
        )
        return BenchmarkScores(
            np.log2(self.dose[inserted]), self.members[inserted], self.nonmembers, drawn
        )


def dose_claims(
    rng: Rng, seeds: int, same: bool, sizes: Sequence[int], doses: Sequence[int]
) -> tuple[bool, bool, bool]:
    """Whether the dose test, the same of independent strata, and the slope claim a trend."""
    cells: list[list[Seed]] = [[] for _ in range(seeds)]
    for size in sizes:
        hard = rng.normal(size=2 * size)
        for cell in cells:
            first = cells[0][len(cell)] if same and cell is not cells[0] else None
            cell.append(Seed(rng, hard, doses, first))
    strata = [one.stratum() for cell in cells for one in cell]
    named = [
        each._replace(examples=each.examples + 1000 * (place % len(sizes)))
        for place, each in enumerate(strata)
    ]
    apart = [
        each._replace(examples=each.examples + 1000 * place) for place, each in enumerate(strata)
    ]
    responses = [dose_response([one.sample() for one in cell], 0.95) for cell in cells]
    slopes = mean_response(responses, Replicates.independent(seeds), 0).curves.slope
    rises = slope_interval(slopes, 0.95)[0] > 0
    return joint_test(named)[1] < 0.05, joint_test(apart)[1] < 0.05, rises


def strongest_claim(rng: Rng, methods: int = 4, size: int = 100) -> bool:
    """Whether the highest of some equal methods is said to be above each other one."""
    hard = rng.normal(size=(2, size))
    drawn = bootstrap.draw_resample(size, size, DRAWS, int(rng.integers(1 << 40)))
    found = []
    for _ in range(methods):
        members, nonmembers = hard + 0.6 * rng.normal(size=(2, size))
        found.append(estimate_metrics(members + SHIFT, nonmembers, drawn, [AUROC])["auroc"])
    pairs = list(combinations(range(methods), 2))
    p_value = max_t_p_values(
        Differences(
            np.array([found[a].value - found[b].value for a, b in pairs]),
            np.array([found[a].draws - found[b].draws for a, b in pairs]),
        )
    )
    best = int(np.argmax([each.value for each in found]))
    return all(p < 0.05 for pair, p in zip(pairs, p_value, strict=True) if best in pair)


def tolerated_deviation(runs: int) -> float:
    """How far from LEVEL a share of so many runs may be: its own error is three standard errors."""
    return TOLERANCE + 3 * float(np.sqrt(LEVEL * (1 - LEVEL) / runs))


def main(runs: int) -> int:
    """Prints the shares of runs with a claim; 1 where one of them is off, else 0."""
    bad = 0
    print(f"{runs} runs\n{'members':22}{'doses':14}seeds  draw   dose test independent       rises")
    for sizes, doses in SETTINGS:
        for seeds, same in CONDITIONS:
            rng = np.random.default_rng(seeds)
            claims = [dose_claims(rng, seeds, same, sizes, doses) for _ in range(runs)]
            found = np.mean(claims, axis=0)
            off = bool(abs(found[0] - LEVEL) > tolerated_deviation(runs))
            bad += off
            shares = "".join(f"{share:>12.1%}" for share in found) + "   OFF" * off
            words = f"{sizes!s:22}{doses!s:14}{seeds:>5}  {'same' if same else 'anew'}"
            print(words + shares, flush=True)
    rng = np.random.default_rng(0)
    claimed = np.mean([strongest_claim(rng) for _ in range(runs)])
    off = bool(claimed - LEVEL > tolerated_deviation(runs))
    print(f"\na strongest of four equal methods: {claimed:.1%}" + "   OFF" * off)
    return int(bad + off > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
