"""Error rates of corrected statements: controls, the best of several methods, short books.

    python -m perf.corrections [controls] [best] [books] [repetitions, 2000]

- *controls*: how often a report finds its clean model, or its blind baseline, off. In null
  reports nothing tells members from non-members: wanted are 5%, over all benchmarks and methods.
  `apart` is the rate if only the mean over benchmarks is tested, method by method,
  each at 5%. Below, both rates where a clean model is off.
- *best*: how often the interval of the method with the highest AUROC lies above the AUROC that this
  method has in truth (wanted: at most 2.5%), or below it; `alone` is the method's own interval.
- *books*: how often the rank p-value of a suspect is at most 0.05, by its number of snippets and
  the share of it that was trained on (0: the null), against 20 or 50 negatives of 100 snippets.
  `mean` counts negatives by the mean over draws of as few snippets, where the audit takes the
  median.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from contamination.analysis.cells import CLEAN, Cell
from contamination.analysis.statistics.controls import (
    LEVEL,
    ControlAurocs,
    ControlKey,
    control_aurocs,
    distances_from_chance,
    mean_control_aurocs,
    with_control_p_values,
)
from contamination.analysis.statistics.results_table import make_blind_baseline
from contamination.audits.books.contamination_rates import (
    Rates,
    _reach_probabilities,
    rank_p_values,
)
from contamination.core.statistics.bootstrap import Scores, draw_resample
from contamination.core.statistics.estimates import (
    ALL_BENCHMARKS,
    Estimate,
    confidence_intervals,
    estimate_metrics,
    joint_intervals,
)
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND, SHUFFLES, BlindBaseline

METHODS = 6
"""Of a report; three quarters of a score's variance are the text's own, whatever the method."""
BATCH = 50
"""Reports that share their relabelings."""
BLIND_BENCHMARKS = 2000
DRAWS = 1000
PLANS = 40
WORDS = np.array(["the", "river", "model", "answer", "film", "is", "was", "not", "good", "of"])
Rng = np.random.Generator


class Design(NamedTuple):
    """Of some reports; `cluster` texts have nine tenths of their own variance in common."""

    benchmarks: int
    size: int
    cluster: int = 1
    shifts: Sequence[float] = (0.0,)
    """By how much members score higher, benchmark by benchmark in turn."""
    seeds: int = 1
    """Several insert a Poisson(1) number of copies each; their mean is tested."""
    shared: bool = False
    """Whether the seeds share their members, or draw them apart from the same texts."""
    nonmembers: int | None = None
    """Per benchmark; None: as many as members."""

    @property
    def texts(self) -> int:
        """Members and non-members per benchmark."""
        return self.size + (self.size if self.nonmembers is None else self.nonmembers)


NULL = [
    *(Design(number, size) for number in (1, 4, 8) for size in (30, 100, 400)),
    *(Design(number, size, 5) for number in (1, 4, 8) for size in (30, 100)),
    *(Design(number, 100, seeds=3, shared=shared) for number in (1, 4) for shared in (True, False)),
    Design(4, 100, seeds=3, shared=True, nonmembers=5),
]
OFF = {
    "two cancel: 0.40 and 0.60": Design(2, 100, shifts=(-0.358, 0.358)),
    "two cancel: 0.06 and 0.93": Design(2, 100, shifts=(-2.2, 2.1)),
    "one of four: 0.65": Design(4, 100, shifts=(0.545, 0, 0, 0)),
    "all four: 0.55": Design(4, 100, shifts=(0.178,)),
    "all eight: 0.55": Design(8, 100, shifts=(0.178,)),
}


def simulate_cells(rng: Rng, design: Design, reports: int) -> list[Cell]:
    """Cleans models' scores by METHODS, a cell per seed: column m-r is method m of report r.

    Membership is drawn text by text, so a cluster has both kinds.
    """
    texts = design.texts
    benchmark = np.repeat(np.arange(design.benchmarks), texts)
    number = len(benchmark)
    hardness = rng.normal(size=(number, reports, 1))
    if design.cluster > 1:
        of = [k * number + np.arange(texts) // design.cluster for k in range(design.benchmarks)]
        _, of_text = np.unique(np.concatenate(of), return_inverse=True)
        shared = rng.normal(size=(of_text.max() + 1, reports, 1))[of_text]
        hardness = 0.9**0.5 * shared + 0.1**0.5 * hardness
    drawn = _draw_members(rng, design)
    columns = [(f"{m}-{r}", "") for r in range(reports) for m in range(METHODS)]
    simulated_cells = []
    for _ in range(design.seeds):
        drawn = drawn if design.shared else _draw_members(rng, design)
        copies = rng.poisson(1, number) if design.seeds > 1 else 1
        scores = 0.75**0.5 * hardness + 0.25**0.5 * rng.normal(size=(number, reports, METHODS))
        shift = np.resize(design.shifts, design.benchmarks)[benchmark] * drawn
        scores += shift[:, None, None]
        rows = pd.DataFrame({"example_id": np.arange(number).astype(str), "member": drawn})
        rows["benchmark"] = [f"b{k}" for k in benchmark]
        rows["occurrences"] = drawn * copies
        table = pd.DataFrame(scores.reshape(number, -1), columns=pd.MultiIndex.from_tuples(columns))
        simulated_cells.append(cast(Cell, SimpleNamespace(examples=rows, scores={CLEAN: table})))
    return simulated_cells


def _draw_members(rng: Rng, design: Design) -> NDArray[np.bool_]:
    """Who is a member of each benchmark, drawn at random."""
    roles = np.arange(design.texts) < design.size
    return np.concatenate([rng.permutation(roles) for _ in range(design.benchmarks)])


def is_off(aurocs: ControlAurocs) -> tuple[bool, bool]:
    """Returns whether a report finds a control off, and whether the mean alone would."""
    facts = {"cell": "", "metric": AUROC.name, "checkpoint": CLEAN, "occurrences": "any"}
    rows = pd.DataFrame(aurocs.keys(), columns=ControlKey._fields).assign(needs="", **facts)
    p_control = with_control_p_values(rows, "cell", {"": distances_from_chance(aurocs)})[
        "p_control"
    ]
    main_benchmark = (
        ALL_BENCHMARKS
        if any(key.benchmark == ALL_BENCHMARKS for key in aurocs)
        else next(iter(aurocs)).benchmark
    )
    distances_from_half = [
        abs(v[0] - 0.5) / v[1:].std()
        for key, v in aurocs.items()
        if key.benchmark == main_benchmark
    ]
    return bool((p_control <= LEVEL).any()), max(distances_from_half) > 1.96


def clean_reports(rng: Rng, design: Design, reports: int) -> tuple[float, float]:
    """The shares of reports whose clean model is off: by the report's test, and `apart`."""
    verdicts = []
    for seed in range(-(-reports // BATCH)):
        seed_cells = simulate_cells(rng, design, BATCH)
        nothing = BlindBaseline(np.full((len(seed_cells[0].examples), 1 + SHUFFLES), np.nan))
        by_report: dict[str, dict[ControlKey, Scores]] = defaultdict(dict)
        for key, aurocs in mean_control_aurocs(
            [control_aurocs(cell, nothing, seed) for cell in seed_cells]
        ).items():
            by_report[key.method.partition("-")[2]][key] = aurocs
        verdicts += [is_off(aurocs_by_key) for aurocs_by_key in by_report.values()]
    first, second = np.mean(verdicts, axis=0)
    return float(first), float(second)


def blind_reports(rng: Rng, size: int, number: int) -> None:
    """Prints the same for the blind baseline, on this many benchmarks of random texts."""
    single = []
    for seed in range(number):
        cell = simulate_cells(rng, Design(1, size), 1)[0]
        texts = [" ".join(rng.choice(WORDS, 12)) for _ in range(len(cell.examples))]
        aurocs_by_key_of_cell = control_aurocs(
            cell, make_blind_baseline(cell.examples.assign(text=texts), 5, seed), seed
        )
        single += [
            aurocs_by_key
            for key, aurocs_by_key in aurocs_by_key_of_cell.items()
            if key == ControlKey(BLIND, "", "b0")
        ]
    for benchmarks in (1, 4, 8):
        verdicts = []
        for start in range(0, number - benchmarks + 1, benchmarks):
            group = single[start : start + benchmarks]
            aurocs_by_key = {
                ControlKey(BLIND, "", f"b{k}"): aurocs for k, aurocs in enumerate(group)
            }
            if benchmarks > 1:
                aurocs_by_key[ControlKey(BLIND, "", ALL_BENCHMARKS)] = np.mean(group, axis=0)
            verdicts.append(is_off(aurocs_by_key))
        new, apart = np.mean(verdicts, axis=0)
        print(f"  blind {(benchmarks, size, 1)}: {new:.1%}, apart {apart:.1%}", flush=True)


def check_controls(repetitions: int) -> None:
    """Null reports, and reports whose clean model is off."""
    print("null reports, 6 methods: benchmarks, members = non-members, texts per cluster, seeds")
    rng = np.random.default_rng(0)
    for design in NULL:
        both = clean_reports(rng, design, repetitions)
        seeds = f"{design.seeds} {'share' if design.shared else 'draw'} their members"
        few = "" if design.nonmembers is None else f", {design.nonmembers} non-members"
        print(f"  clean {design[:3]}{few}, {seeds}: {both[0]:.1%}, apart {both[1]:.1%}", flush=True)
    blind_reports(rng, 30, min(repetitions, BLIND_BENCHMARKS))
    print("a clean model that is off, 100 + 100 a benchmark")
    for name, design in OFF.items():
        both = clean_reports(rng, design, max(BATCH, repetitions // 4))
        print(f"  {name}: {both[0]:.1%}, apart {both[1]:.1%}", flush=True)


def check_best_method(repetitions: int) -> None:
    """The winner's interval."""
    print("the best of N methods: N, members, non-members, share of common variance, AUROCs:")
    print("  interval above the truth, below it; alone: above, below")
    spread = (0.6, 0.65, 0.7, 0.75, 0.8)
    sizes = ((2, 50, 50), (6, 50, 50), (18, 50, 50), (18, 30, 30), (18, 200, 20), (18, 200, 10))
    for number, *size in sizes:
        for common in (0.0, 0.9):
            for aurocs in ((0.75,), spread[-min(number, 5) :], (0.95,)):
                rng = np.random.default_rng(1)
                ends = [
                    _intervals_include_truth(rng, number, size, common, aurocs, i)
                    for i in range(repetitions)
                ]
                shares = ", ".join(f"{share:.1%}" for share in np.mean(ends, axis=0))
                print(f"  {number:2} {size} {common} {aurocs}: {shares}", flush=True)


def _intervals_include_truth(
    rng: Rng, number: int, size: Sequence[int], common: float, aurocs: Sequence[float], plan: int
) -> list[bool]:
    truth = np.resize(aurocs, number)
    members, nonmembers = size
    shared, noise = rng.normal(size=sum(size)), rng.normal(size=(number, sum(size)))
    scores = common**0.5 * shared + (1 - common) ** 0.5 * noise
    scores[:, :members] += 2**0.5 * norm.ppf(truth)[:, None]
    drawn = draw_resample(members, nonmembers, DRAWS, plan % PLANS)
    estimates: list[Estimate] = [
        estimate_metrics(line[:members], line[members:], drawn, [AUROC])[AUROC.name]
        for line in scores
    ]
    winner = int(np.argmax([estimate_of_method.value for estimate_of_method in estimates]))
    both = joint_intervals(estimates, 0.95), confidence_intervals(estimates, 0.95)
    return [
        bool(is_wrong)
        for low, high in both
        for is_wrong in (low[winner] > truth[winner], high[winner] < truth[winner])
    ]


def check_books(repetitions: int) -> None:
    """The power of the rank p-value, and its null."""
    print("rank p ≤ 0.05, in percent, median (mean), by share trained on")
    shares = (0.0, 0.25, 0.5, 1.0)
    for offset in (0.0, 0.3, 0.7):
        for number in (20, 50):
            for snippets in (4, 6, 10, 20, 50, 100):
                rng = np.random.default_rng(2)
                draw = (offset, number, snippets, shares)
                p_values = [_p_values(rng, *draw) for _ in range(repetitions)]
                percentages = 100 * np.mean(np.less_equal(p_values, 0.05), axis=0)
                cells = "  ".join(f"{new:5.1f} ({old:5.1f})" for new, old in percentages)
                print(f"  offset {offset}, {number} negatives, {snippets:3}: {cells}", flush=True)


def _p_values(
    rng: Rng, offset: float, number: int, snippets: int, shares: Sequence[float]
) -> list[tuple[float, float]]:
    """Of a suspect of each share: by the median, and by the mean."""
    above = rng.binomial(100, norm.sf(1 - rng.normal(0, offset, number)))
    negatives, fold = Rates(above / 100, np.full(number, 100.0)), np.zeros(number, np.intp)
    suspect_offsets = rng.normal(0, offset, len(shares))
    rates = np.array(shares) * norm.sf(-1 - suspect_offsets) + (1 - np.array(shares)) * norm.sf(
        1 - suspect_offsets
    )
    suspects = rng.binomial(snippets, rates) / snippets
    counts: NDArray[Any] = np.full(len(shares), float(snippets))
    medians = rank_p_values(suspects[:, None], counts, negatives, fold)
    return [
        (
            median,
            (1 + _reach_probabilities(np.full(number, rate), snippets, negatives).sum())
            / (1 + number),
        )
        for median, rate in zip(medians.tolist(), suspects, strict=True)
    ]


def main() -> None:
    """What is asked for; everything where nothing is."""
    parts = {"controls": check_controls, "best": check_best_method, "books": check_books}
    asked = [word for word in sys.argv[1:] if word in parts] or [*parts]
    repetitions = next((int(word) for word in sys.argv[1:] if word.isdigit()), 2000)
    for part in asked:
        parts[part](repetitions)


if __name__ == "__main__":
    main()
