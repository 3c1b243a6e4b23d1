"""Coverage of the slope over occurrences, and of its sentences, on simulated scores.

    python -m perf.slope_coverage [reports] [members …] [part of a design's name …]
    python -m perf.slope_coverage unequal [reports]
    python -m perf.slope_coverage sweeps [reports]

Non-members score N(0, 1). A member with n copies scores N(d, 1), with d such that the AUROC's
log-odds are a + b·log2(n). The AUROC in the table is that of a member with the design's mean
log2(n); with b = 0 it is that of all. As many members as non-members are drawn, per benchmark.
Each report is fitted by `dose_response`, tested by `kendall_trend` and put into words by
`direction`, as in the analysis.

Columns: the share of the reports whose data are too few for a slope; the mean and median of the
others' estimates, and how many of their 95% intervals lie above the truth, below it, and include
it; and in how many of all reports the AUROC is reported to rise, to fall, or to turn (rise and then
fall, fall and then rise, zigzag). A row is OFF where the coverage leaves 93 to 97%, or where false
words exceed 5%, by more than three standard errors of that many reports; coverage is not judged in
rows where most data are too few. The exit status is 1 where one is off.

`unequal`: two benchmarks, of 100 and of 20 members, with the same AUROC for all numbers of copies:
how many of the intervals of the mean AUROC at one number of copies miss the truth, and in how many
reports the AUROC is reported to rise, to fall, or to turn.

`sweeps`: conditions that insert the same texts 1, 2, 4 and 8 times, or that draw Poisson numbers
with means 1, 2 and 4 for them; of one seed or of several, which draw their members from one pool of
texts or share them, and with one cell missing. The AUROC is the same in all of them, or rises, or
zigzags: how often the slope along the sweep is told apart from 0, and what is stated. With several
seeds, a row is not OFF for few differences.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from contamination.analysis.statistics.dose_response import (
    BenchmarkScores,
    dose_response,
    logistic,
    slope_interval,
)
from contamination.analysis.statistics.kendall_trend import joint_test, make_stratum
from contamination.analysis.statistics.seed_pooling import (
    Replicates,
    overlap_of_sides,
    pooled_estimate,
)
from contamination.analysis.statistics.trends import _series_test_columns, trend_columns
from contamination.analysis.statistics.turning_points import format_levels, turning_levels
from contamination.analysis.summary import Direction, classify_direction
from contamination.core.statistics import bootstrap
from contamination.core.statistics.bootstrap import (
    Resample,
    Scores,
    draw_named_counts,
    join_sides,
    rank_side,
)
from contamination.core.statistics.estimates import Estimate, estimate_ranked, mean_estimate
from contamination.core.statistics.estimates import confidence_interval as interval_of
from contamination.core.statistics.metrics import AUROC
from contamination.injection.occurrences import Fixed, Ladder, Occurrences, Poisson, Share

LENGTH, BUDGET = 50, 1_000_000
"""Tokens of a copy and of the corpus."""
LEVELS = (0.6, 0.75, 0.92, 0.96)
SLOPES = (0.0, 0.7)
SIZES = (30, 100, 400)
BENCHMARKS = (1, 4)
UNEQUAL = (100, 20)
"""Members of the benchmarks of `unequal`."""
DRAWS = 20
"""Of a slope: they are scaled to its interval, so that few are enough here."""
LEVEL_DRAWS = 200
"""Of the AUROC at one number of copies."""
COLUMNS = (
    *("occurrences", "members", "benchmarks", "AUROC", "slope", "too few", "mean", "median"),
    *("above", "below", "coverage", "rises", "falls", "turns"),
)
SWEEP_DRAWS = 400
NOISE = 0.5
"""Of a text's scores by different models, in standard deviations of the texts' own."""
SHIFTS: dict[str, Sequence[float]] = {
    "flat": (1.2, 1.2, 1.2, 1.2),
    "rise": (0.3, 0.6, 1.0, 1.4),
    "zigzag": (0.3, 1.0, 0.5, 1.3),
}
"""How much higher members score at each level of a sweep."""
TURNS = [Direction.PEAKS, Direction.DIPS, Direction.ZIGZAGS]
CONFIDENCE = 0.95
Rng = np.random.Generator


class Report(NamedTuple):
    """The outcome of one simulated report."""

    slope: float
    low: float
    high: float
    stated: Direction
    missed: float
    """The share of the intervals at one number of copies that miss the truth."""


class Drawn(NamedTuple):
    """Which texts a cell inserts, which ones are non-members, and the resamples of both."""

    inserted: NDArray[np.intp]
    nonmembers: NDArray[np.intp]
    drawn: Resample


class Sweep(NamedTuple):
    """The design of a sweep of occurrences."""

    members: int
    nonmembers: int
    benchmarks: int = 1
    seeds: int = 1
    poisson: bool = False
    same_members: bool = False
    """Whether all seeds have the same members; otherwise each draws its own from one pool."""
    lacks_a_cell: bool = False
    """Whether the second level lacks the last seed."""

    @property
    def levels(self) -> tuple[float, ...]:
        """The numbers of copies, or their means."""
        return (1.0, 2.0, 4.0) if self.poisson else (1.0, 2.0, 4.0, 8.0)

    @property
    def name(self) -> str:
        """In the table."""
        more = ", same members" * self.same_members + ", one cell missing" * self.lacks_a_cell
        return ("Poisson" if self.poisson else "fixed") + more


SWEEPS = (
    *(Sweep(size, size, number) for size in (30, 100) for number in BENCHMARKS),
    *(Sweep(size, size, number, poisson=True) for size in (30, 100) for number in BENCHMARKS),
    Sweep(200, 10),
    Sweep(10, 200),
    Sweep(100, 100, seeds=2),
    Sweep(100, 100, seeds=3),
    Sweep(100, 100, seeds=3, lacks_a_cell=True),
    Sweep(100, 100, seeds=3, same_members=True),
    Sweep(100, 100, seeds=3, same_members=True, lacks_a_cell=True),
    Sweep(100, 100, seeds=3, poisson=True, same_members=True),
)


class Rare(NamedTuple):
    """A share of the members has 8 copies, the others one: lopsided."""

    share: float

    def draw(self, tokens: NDArray[np.int_], budget: int, rng: Rng) -> NDArray[np.int_]:
        """Returns the copies per member; the first members are the rare ones."""
        return np.where(np.arange(len(tokens)) < round(self.share * len(tokens)), 8, 1)


def design_by_name(members: int) -> dict[str, Occurrences | Rare]:
    """Returns the designs for this many members; `share` fills one and a half rounds over them."""
    share = 1.5 * members * LENGTH / BUDGET
    return {
        "fixed (2)": Fixed(2),
        "ladder (1, 2, 4, 8)": Ladder(),
        "Poisson(1)": Poisson(1.0),
        "Poisson(2)": Poisson(2.0),
        "Poisson(4)": Poisson(4.0),
        "share (1 or 2)": Share(share),
        "2% (8), others 1": Rare(0.02),
        "8% (8), others 1": Rare(0.08),
    }


def draw_occurrences(design: Occurrences | Rare, members: int, rng: Rng) -> Scores:
    """Numbers of copies of the members that have any."""
    drawn = design.draw(np.full(members, LENGTH), BUDGET, rng)
    return drawn[drawn > 0].astype(float)


def simulate_report(
    counts: Sequence[Scores], nonmembers: Sequence[int], level: float, slope: float, rng: Rng
) -> Report:
    """One report, of benchmarks whose members have these numbers of copies.

    `level` is the AUROC's log-odds at one copy.
    """
    samples, strata, first = [], [], 0
    for numbers, n_nonmembers in zip(counts, nonmembers, strict=True):
        x, n = np.log2(numbers), len(numbers)
        scores = rng.normal(2**0.5 * norm.ppf(logistic(level + slope * x)))
        drawn = bootstrap.draw_resample(n, n_nonmembers, DRAWS, int(rng.integers(1 << 40)))
        samples.append(BenchmarkScores(x, scores, rng.normal(size=n_nonmembers), drawn))
        if n > 2 and np.ptp(numbers) > 0:
            strata.append(make_stratum(np.arange(first, first + n), numbers, scores))
        first += n
    slopes = dose_response(samples, CONFIDENCE).curves.slope
    low, high = slope_interval(slopes, CONFIDENCE)
    tau, p_value = joint_test(strata) if strata else (np.nan, np.nan)
    row: dict[str, Any] = {"slope": slopes[0], "slope_low": low, "slope_high": high}
    row |= {"tau": tau, "p_value": p_value}
    aurocs = aurocs_of(samples, rng)
    values = values_of(aurocs)
    row["turns"] = format_levels(turning_levels({2**x: auroc for x, auroc in aurocs.items()}))
    truth = logistic(level + slope * values["log_occurrences"].to_numpy())
    missed = float(np.mean((values["ci_low"] > truth) | (values["ci_high"] < truth)))
    return Report(slopes[0], low, high, classify_direction(row, values, 1 - CONFIDENCE), missed)


def aurocs_of(samples: Sequence[BenchmarkScores], rng: Rng) -> dict[float, Estimate]:
    """The mean AUROC of each log2 number of copies that all benchmarks have, as in a report."""
    by_benchmark = [_aurocs(sample, int(rng.integers(1 << 40))) for sample in samples]
    shared = set.intersection(*(set(aurocs) for aurocs in by_benchmark))
    return {x: mean_estimate([aurocs[x] for aurocs in by_benchmark]) for x in sorted(shared)}


def _aurocs(sample: BenchmarkScores, seed: int) -> dict[float, Estimate]:
    """One benchmark's; all numbers of copies are compared with the same non-members."""
    rng, size = np.random.default_rng(seed), len(sample.nonmembers)
    nonmembers = rank_side(sample.nonmembers, bootstrap.draw_counts(size, LEVEL_DRAWS, seed))
    aurocs = {}
    for x in np.unique(sample.log_occurrences):
        scores = sample.members[sample.log_occurrences == x]
        drawn = bootstrap.draw_counts(len(scores), LEVEL_DRAWS, int(rng.integers(1 << 40)))
        ranked = join_sides(rank_side(scores, drawn), nonmembers)
        aurocs[float(x)] = estimate_ranked(ranked, [AUROC])[AUROC.name]
    return aurocs


def values_of(aurocs: Mapping[float, Estimate]) -> pd.DataFrame:
    """The AUROCs as in a report's table."""
    rows = [(2**x, x, auroc.value, *interval_of(auroc, CONFIDENCE)) for x, auroc in aurocs.items()]
    return pd.DataFrame(rows, columns=["level", "log_occurrences", "value", "ci_low", "ci_high"])


def table_row_of(reports: Sequence[Report], slope: float) -> tuple[str, bool]:
    """The table's cells for one design, and whether it is off."""
    measured = np.array([r[:3] for r in reports if np.isfinite(r.slope)]).reshape(-1, 3)
    few = 1 - len(measured) / len(reports)
    rises, falls, turns = _shares_of_verdicts(reports)
    wrong = falls + rises * (slope == 0) + turns
    word_shares = f"{rises:.1%} | {falls:.1%} | {turns:.1%}"
    too_many = wrong > 0.05 + 3 * (0.05 * 0.95 / len(reports)) ** 0.5
    if few > 0.5:
        return f"{few:.0%} | – | – | – | – | – | {word_shares}", bool(too_many)
    value, low, high = measured.T
    share_above, share_below = np.mean(low > slope), np.mean(high < slope)
    held = 1 - share_above - share_below
    slack = [3 * (p * (1 - p) / len(measured)) ** 0.5 for p in (0.93, 0.97)]
    is_off = not 0.93 - slack[0] <= held <= 0.97 + slack[1] or too_many
    estimates = f"{few:.0%} | {value.mean():.2f} | {np.median(value):.2f}"
    text = f"{estimates} | {share_above:.1%} | {share_below:.1%}"
    return f"{text} | {held:.1%} | {word_shares}", bool(is_off)


def check_slopes(reports: int, sizes: Sequence[int], names: Sequence[str]) -> int:
    """Prints the table of slopes over occurrences; how many rows are off."""
    print(f"{reports} reports per row\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    bad = 0
    for members in sizes:
        for name, design in design_by_name(members).items():
            if names and not any(part_of_name in name for part_of_name in names):
                continue
            for setting in _iter_settings():
                benchmarks, auroc, slope = setting
                rng = np.random.default_rng([members, benchmarks, round(100 * auroc)])
                centre = _mean_log(design, members, rng)
                level = float(np.log(auroc / (1 - auroc))) - slope * centre
                simulated_reports = []
                for _ in range(reports):
                    counts = [draw_occurrences(design, members, rng) for _ in range(benchmarks)]
                    simulated_reports.append(
                        simulate_report(counts, [members] * benchmarks, level, slope, rng)
                    )
                text, is_off = table_row_of(simulated_reports, slope)
                setting_text = f"{name} | {members} | {benchmarks} | {auroc} | {slope}"
                print(f"| {setting_text} | {text} |{' OFF' * is_off}", flush=True)
                bad += is_off
    return bad


def check_unequal_cells(reports: int) -> int:
    """Prints the outcomes for benchmarks of unequal size; returns how many rows are off."""
    names = "| occurrences | AUROC | intervals that miss | rises | falls | turns |"
    print(f"{reports} reports per row\n\n{names}\n|{'---|' * 6}")
    bad = 0
    for name in ("ladder (1, 2, 4, 8)", "Poisson(1)", "Poisson(2)", "Poisson(4)"):
        for auroc in LEVELS:
            rng = np.random.default_rng([*UNEQUAL, round(100 * auroc)])
            level = float(np.log(auroc / (1 - auroc)))
            simulated_reports = []
            for _ in range(reports):
                counts = [
                    draw_occurrences(design_by_name(size)[name], size, rng) for size in UNEQUAL
                ]
                simulated_reports.append(simulate_report(counts, UNEQUAL, level, 0.0, rng))
            missed, word_shares = (
                float(np.mean([r.missed for r in simulated_reports])),
                _shares_of_verdicts(simulated_reports),
            )
            is_off = sum(word_shares) > 0.05 + 3 * (0.05 * 0.95 / reports) ** 0.5
            shares = " | ".join(f"{share:.1%}" for share in (missed, *word_shares))
            print(f"| {name} | {auroc} | {shares} |{' OFF' * is_off}", flush=True)
            bad += is_off
    return bad


def _shares_of_verdicts(reports: Sequence[Report]) -> tuple[float, float, float]:
    """Returns the shares of reports in which the AUROC rises, falls and turns."""
    groups = ([Direction.RISES], [Direction.FALLS], TURNS)
    rises, falls, turns = (float(np.mean([r.stated in g for r in reports])) for g in groups)
    return rises, falls, turns


def _mean_log(design: Occurrences | Rare, members: int, rng: Rng) -> float:
    """The mean log2(copies) of the members that have any."""
    drawn = [draw_occurrences(design, members, rng) for _ in range(10_000 // members)]
    return float(np.log2(np.concatenate(drawn)).mean())


def _iter_settings() -> Iterator[tuple[int, float, float]]:
    for benchmarks in BENCHMARKS:
        for auroc in LEVELS:
            for slope in SLOPES:
                yield benchmarks, auroc, slope


def share_of_findings(
    benchmarks: Sequence[Sequence[Sequence[Drawn]]],
    sweep: Sweep,
    shifts: Sequence[float],
    rng: Rng,
) -> tuple[float, ...]:
    """One sweep: whether p < 5%, the interval excludes 0, and which direction is stated.

    Args:
        benchmarks: `draw_seeds` of each.
        sweep: its design.
        shifts: how much higher members score at each level.
        rng: draws the scores.
    """
    parts: dict[tuple[int, int], list[Estimate]] = defaultdict(list)
    for seeds in benchmarks:
        hard = rng.normal(size=sweep.members + sweep.nonmembers)
        for seed, cells in enumerate(seeds):
            for place, (shift, cell) in enumerate(zip(shifts, cells, strict=True)):
                scores = hard + NOISE * rng.normal(size=len(hard))
                sides = scores[cell.inserted] + shift, scores[cell.nonmembers]
                ranked = bootstrap.rank_scores(*sides, cell.drawn)
                parts[place, seed].append(estimate_ranked(ranked, [AUROC])[AUROC.name])
    line = {}
    for place, level in enumerate(sweep.levels):
        lacking = sweep.lacks_a_cell and place == 1
        seeds_of_level = tuple(range(sweep.seeds - lacking))
        ids = [_ids_of_cell(benchmarks, seed, place) for seed in seeds_of_level]
        replicates = Replicates(seeds_of_level, overlap_of_sides(ids))
        values = [mean_estimate(parts[place, seed]) for seed in seeds_of_level]
        line[level] = pooled_estimate(values, replicates, 0)
    row = {**_series_test_columns(line, CONFIDENCE), **trend_columns(line, CONFIDENCE)}
    excludes = row["slope_low"] > 0 or row["slope_high"] < 0
    values_by_level = values_of({float(np.log2(level)): auroc for level, auroc in line.items()})
    stated = classify_direction(row, values_by_level)
    words = ([Direction.RISES], [Direction.FALLS], TURNS)
    return row["p_value"] < 0.05, bool(excludes), *(stated in group for group in words)


def _ids_of_cell(
    benchmarks: Sequence[Sequence[Sequence[Drawn]]], seed: int, place: int
) -> tuple[list[str], list[str]]:
    """The ids of the members and of the non-members of one cell, over all benchmarks."""
    cells = [(number, seeds[seed][place]) for number, seeds in enumerate(benchmarks)]
    members = [f"{number}-{text}" for number, cell in cells for text in cell.inserted]
    return members, [f"{number}-{text}" for number, cell in cells for text in cell.nonmembers]


def draw_seeds(sweep: Sweep, rng: Rng) -> list[list[Drawn]]:
    """What one benchmark inserts, and its resamples: a list per seed, with one cell per level."""
    draw_seed, size = int(rng.integers(1 << 40)), sweep.members + sweep.nonmembers
    named_counts = cache(
        lambda texts: draw_named_counts([*map(str, texts)], SWEEP_DRAWS, draw_seed)
    )
    order, seeds = rng.permutation(size), []
    for _ in range(sweep.seeds):
        order = order if sweep.same_members else rng.permutation(size)
        members, nonmembers = order[: sweep.members], order[sweep.members :]
        cells = []
        for level in sweep.levels:
            copies = rng.poisson(level, len(members)) if sweep.poisson else np.ones(len(members))
            sides = members[copies > 0], nonmembers
            drawn = Resample(*(named_counts(tuple(side.tolist())) for side in sides))
            cells.append(Drawn(*sides, drawn))
        seeds.append(cells)
    return seeds


def check_sweeps(reports: int) -> int:
    """Prints what is stated of sweeps without a trend, and with one; how many rows are off."""
    columns = ("sweep", "members", "non-members", "benchmarks", "seeds", "AUROC", "p < 0.05")
    header = " | ".join([*columns, "interval excludes 0", "rises", "falls", "turns"])
    print(f"{reports} sweeps per row\n\n| {header} |\n|{'---|' * 11}")
    bad = 0
    for sweep in SWEEPS:
        rng = np.random.default_rng([sweep.members, sweep.benchmarks])
        sets = [draw_seeds(sweep, rng) for _ in range(40)]
        for name, all_shifts in SHIFTS.items():
            shifts = all_shifts[: len(sweep.levels)]
            picked = (
                rng.choice(len(sets), sweep.benchmarks, replace=False) for _ in range(reports)
            )
            stated = [
                share_of_findings([sets[i] for i in chosen_sets], sweep, shifts, rng)
                for chosen_sets in picked
            ]
            shares = np.mean(stated, axis=0)
            slack = 3 * (0.05 * 0.95 / reports) ** 0.5
            too_many = bool((shares[:2] > 0.07 + slack).any())
            too_few = sweep.seeds == 1 and bool((shares[:2] < 0.03 - slack).any())
            is_off = name == "flat" and (too_many or too_few)
            wrong_words = shares[4] + shares[3] + shares[2] * (name == "flat")
            is_off |= name != "zigzag" and bool(wrong_words > 0.05 + slack)
            text = " | ".join(f"{share:.1%}" for share in shares)
            sizes = f"{sweep.members} | {sweep.nonmembers} | {sweep.benchmarks} | {sweep.seeds}"
            print(f"| {sweep.name} | {sizes} | {name} | {text} |{' OFF' * is_off}", flush=True)
            bad += is_off
    return bad


def main() -> int:
    """Prints what is asked for; the exit status is 1 where a row is off."""
    numbers = [int(text) for text in sys.argv[1:] if text.isdigit()]
    names = [text for text in sys.argv[1:] if not text.isdigit()]
    reports = numbers[0] if numbers else 1000
    if "unequal" in names:
        return int(check_unequal_cells(reports) > 0)
    if "sweeps" in names:
        return int(check_sweeps(reports) > 0)
    return int(check_slopes(reports, numbers[1:] or SIZES, names) > 0)


if __name__ == "__main__":
    sys.exit(main())
