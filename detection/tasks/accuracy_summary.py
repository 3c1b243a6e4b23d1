"""Tables of accuracy: of members, of non-members, their difference, and by occurrences.

Every number has a 95% bootstrap interval, and every difference a p-value that is corrected over
the benchmarks. Since the criterion of choice can decide the conclusion, each benchmark is shown by
its own convention first, and then by every criterion. Two models are compared by each example's
change, so that the comparison is paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from contamination.core.artifacts import Artifact
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores, draw_resample
from contamination.core.statistics.estimates import Estimate, mean_estimate
from contamination.core.statistics.samples import estimate_difference, estimate_mean
from contamination.core.statistics.significance import (
    holm_correction,
    relabelled_differences,
    relabelling_p_value,
)
from contamination.data.config import CHOSEN_BY
from contamination.detection.summary import format_estimate
from contamination.detection.tasks.questions import chance_levels

DRAWS, SEED = 1_000, 0
RELABELINGS = 9_999
SUMMARY_COLUMNS = ("members", "non-members", "difference")
AVERAGE = "average"
Estimates = dict[str, Estimate]


def p_values_by_benchmark(table: pd.DataFrame) -> dict[str, tuple[float, float | None]]:
    """Returns the p-value of each benchmark's difference and Holm's; of the average, no Holm's."""
    groups = table.groupby("benchmark")
    values = {str(name): _member_and_nonmember_values(rows) for name, rows in groups}
    testable = {name: (m, n) for name, (m, n) in values.items() if len(m) and len(n)}
    differences = {name: float(m.mean() - n.mean()) for name, (m, n) in testable.items()}
    nulls = {
        name: relabelled_differences(m, n, RELABELINGS, derive_seed(SEED, "relabelings", name))
        for name, (m, n) in testable.items()
    }
    uncorrected = np.array(
        [relabelling_p_value(differences[name], nulls[name]) for name in testable]
    )
    pairs = zip(uncorrected.tolist(), holm_correction(uncorrected).tolist(), strict=True)
    p_by_benchmark: dict[str, tuple[float, float | None]] = dict(zip(testable, pairs, strict=True))
    if len(testable) == len(values) > 1:
        difference = np.mean(list(differences.values()))
        null = np.mean(list(nulls.values()), axis=0)
        p_by_benchmark[AVERAGE] = relabelling_p_value(float(difference), null), None
    return p_by_benchmark


def estimates_by_benchmark(table: pd.DataFrame, *, wilson: bool = False) -> dict[str, Estimates]:
    """Returns the estimates of each benchmark and their average: members, non-members, difference.

    An estimate without data is left out: a difference needs both kinds. Members that were never
    inserted are neither kind.

    Args:
        table: the rows, with the column `value`.
        wilson: whether values are 0 or 1, so that the means are shares with Wilson's intervals
            (`core.statistics.estimates.confidence_intervals`), which have a width even at 0.
    """
    benchmark_estimates = {
        str(name): _estimate_sides_and_difference(str(name), rows, wilson=wilson)
        for name, rows in table.groupby("benchmark")
    }
    if len(benchmark_estimates) > 1:
        columns = {
            head: [row[head] for row in benchmark_estimates.values() if head in row]
            for head in SUMMARY_COLUMNS
        }
        benchmark_estimates[AVERAGE] = {
            head: mean_estimate(column)
            for head, column in columns.items()
            if len(column) == len(benchmark_estimates)
        }
    return benchmark_estimates


def _member_and_nonmember_values(rows: pd.DataFrame) -> tuple[Scores, Scores]:
    """Returns the values of the members that were inserted, and of the non-members."""
    members = rows.loc[rows["member"] & (rows["occurrences"] > 0), "value"]
    nonmembers = rows.loc[~rows["member"], "value"]
    return members.to_numpy(np.float64), nonmembers.to_numpy(np.float64)


def _estimate_sides_and_difference(
    benchmark: str, rows: pd.DataFrame, *, wilson: bool
) -> Estimates:
    members, nonmembers = _member_and_nonmember_values(rows)
    seed = derive_seed(SEED, "accuracy", benchmark)
    drawn = draw_resample(max(1, len(members)), max(1, len(nonmembers)), DRAWS, seed)
    estimates: Estimates = {}
    if len(members):
        estimates["members"] = estimate_mean(members, drawn.members, rate=wilson)
    if len(nonmembers):
        estimates["non-members"] = estimate_mean(nonmembers, drawn.nonmembers, rate=wilson)
    if len(estimates) == 2:
        estimates["difference"] = estimate_difference(
            estimates["members"], estimates["non-members"]
        )
    return estimates


MIN_EXAMPLES, MAX_SHARE = 20, 0.8
"""There is a note if one answer is chosen for more than MAX_SHARE of at least MIN_EXAMPLES."""


def format_summary(table: pd.DataFrame, artifact: Artifact) -> str:
    """Returns tables of accuracy by benchmark and by occurrences, and notes on left-out examples.

    Args:
        table: the artefact's rows.
        artifact: the artefact, with the counts of left-out examples.
    """
    table = table.assign(value=table["correct"].astype(float))
    by_criterion = _format_by_criterion("accuracy", table, _correct_by_criterion(table))
    notes = _format_notes(table, artifact.counts["left_out"])
    means = _format_by_benchmark("accuracy", table)
    return "\n".join([*means, "", *by_criterion, "", *_format_by_occurrences(table), *notes])


def format_comparison(model: pd.DataFrame, reference: pd.DataFrame) -> str:
    """Returns tables of the paired change in accuracy, from the reference to the model."""
    columns = ["example_id", "correct", *(f"chosen_{by}" for by in CHOSEN_BY)]
    suffixes = ("", "_before")
    joined = model.merge(reference[columns], on="example_id", suffixes=suffixes, validate="1:1")
    change = joined["correct"].astype(float) - joined["correct_before"].astype(float)
    heading = "accuracy minus the reference model's, on the same examples"
    if missing := len(model) - len(joined):
        heading += f" ({missing} of the model's lack it)"
    before = _correct_by_criterion(joined, "_before")
    changes = {by: values - before[by] for by, values in _correct_by_criterion(joined).items()}
    joined = joined.assign(value=change)
    return "\n".join(
        [
            *_format_by_benchmark(heading, joined),
            "",
            *_format_by_criterion("change", joined, changes),
        ]
    )


def _correct_by_criterion(table: pd.DataFrame, suffix: str = "") -> dict[str, pd.Series[float]]:
    """Returns for each criterion 1 for a right choice, else 0; NaN if there is no choice."""
    choices = {by: table[f"chosen_{by}{suffix}"] for by in CHOSEN_BY}
    return {
        by: (choice == table["answer"]).astype(float).where(choice.notna())
        for by, choice in choices.items()
    }


def _format_by_benchmark(title: str, table: pd.DataFrame) -> list[str]:
    chances = pd.Series(chance_levels(table), table.index).groupby(table["benchmark"]).mean()
    criteria = table.groupby("benchmark")["chosen_by"].first()
    benchmark_estimates = estimates_by_benchmark(table)
    p_by_benchmark = p_values_by_benchmark(table)
    width = _name_column_width(benchmark_estimates)
    header = f"{'benchmark':{width}}{'chosen by':11}" + "".join(
        f"{head:>30}" for head in SUMMARY_COLUMNS
    )
    rows = [
        f"{title}, by each benchmark's convention (95% bootstrap intervals; number of examples; "
        "p-values by relabeling, Holm's over the benchmarks)",
        f"{header}{'p':>8}{'p Holm':>8}{'chance':>8}",
    ]
    for benchmark, estimates in benchmark_estimates.items():
        guess = chances.mean() if benchmark == AVERAGE else chances[benchmark]
        accuracies = [
            format_estimate_and_size(estimates.get(head), head) for head in SUMMARY_COLUMNS
        ]
        p_values = map(format_p_value, p_by_benchmark.get(benchmark, (None, None)))
        cells = "".join([*(f"{cell:>30}" for cell in accuracies), *(f"{p:>8}" for p in p_values)])
        rows.append(f"{benchmark:{width}}{criteria.get(benchmark, ''):11}{cells}{guess:>8.3f}")
    return rows


def _format_by_criterion(
    title: str, table: pd.DataFrame, values_by_criterion: Mapping[str, pd.Series[float]]
) -> list[str]:
    """Returns a table of each benchmark by every criterion that all its options allow."""
    conventions = dict(table.groupby("benchmark")["chosen_by"].first())
    benchmarks = [*sorted(conventions), *([AVERAGE] if len(conventions) > 1 else [])]
    estimates_by_criterion = {
        by: _estimates_of_complete_benchmarks(table, series)
        for by, series in values_by_criterion.items()
    }
    width = _name_column_width(benchmarks)
    header = f"{'benchmark':{width}}{'':13}" + "".join(f"{by:>25}" for by in CHOSEN_BY)
    rows = [f"{title} by every criterion of choice (*: the benchmark's convention)", header]
    for benchmark in benchmarks:
        for side in SUMMARY_COLUMNS:
            cells = []
            for by in CHOSEN_BY:
                estimate = estimates_by_criterion[by].get(benchmark, {}).get(side)
                cells.append(_format_or_dash(estimate) + " *"[conventions.get(benchmark) == by])
            rows.append(f"{benchmark:{width}}{side:13}" + "".join(f"{cell:>25}" for cell in cells))
    return rows


def _estimates_of_complete_benchmarks(
    table: pd.DataFrame, values: pd.Series[float]
) -> dict[str, Estimates]:
    """Returns the estimates of benchmarks without missing values; the average only of all."""
    complete = values.notna().groupby(table["benchmark"]).transform("all")
    benchmark_estimates = estimates_by_benchmark(table.assign(value=values)[complete])
    if not complete.all():
        benchmark_estimates.pop(AVERAGE, None)
    return benchmark_estimates


def _name_column_width(names: Iterable[str]) -> int:
    return max([9, *map(len, names)]) + 2


def _format_by_occurrences(table: pd.DataFrame) -> list[str]:
    """Returns a table of accuracy by the number of occurrences; 0 stands for non-members."""
    counts = sorted(set(table.loc[table["member"], "occurrences"]) - {0})
    groups = {0: table[~table["member"]]}
    groups |= {n: table[table["member"] & (table["occurrences"] == n)] for n in counts}
    estimates_by_count = {n: estimates_by_benchmark(group) for n, group in groups.items()}
    benchmarks = [*sorted(table["benchmark"].unique()), AVERAGE]
    width = _name_column_width(benchmarks)
    rows = [f"{'occurrences':13}{'benchmark':{width}}{'accuracy':>30}"]
    for benchmark in benchmarks:
        for occurrences, benchmark_estimates in estimates_by_count.items():
            side = "members" if occurrences else "non-members"
            estimate = benchmark_estimates.get(benchmark, {}).get(side)
            if estimate is not None:
                accuracy = format_estimate_and_size(estimate, side)
                rows.append(f"{occurrences:<13}{benchmark:{width}}{accuracy:>30}")
    return rows


def _format_notes(table: pd.DataFrame, left_out: Sequence[Mapping[str, object]]) -> list[str]:
    notes = []
    drawn = table[table["drawn_options"]]
    for benchmark, rows in drawn.groupby("benchmark"):
        notes.append(
            f"drawn options: {benchmark}: {len(rows)} examples have no wrong answers of their own, "
            "so they were drawn from the answers of other questions that were not inserted"
        )
    for benchmark, rows in table[table["chosen"].notna()].groupby("benchmark"):
        chosen = [options[i] for options, i in zip(rows["options"], rows["chosen"], strict=True)]
        answer, times = Counter(chosen).most_common(1)[0]
        if len(rows) >= MIN_EXAMPLES and times > MAX_SHARE * len(rows):
            notes.append(
                f"nearly one answer: {benchmark}: {answer!r} is chosen for {times} of {len(rows)} "
                "examples, so accuracy is about the share of examples with this right answer"
            )
    if unexposed := int((table["member"] & (table["occurrences"] == 0)).sum()):
        notes.append(f"not counted: {unexposed} drawn as members but never inserted")
    for group in left_out:
        benchmark, count, reason = group["benchmark"], group["examples"], group["reason"]
        notes.append(f"left out: {benchmark}: {count}, because {reason}")
    return ["", *notes] if notes else []


def format_estimate_and_size(estimate: Estimate | None, head: str = "") -> str:
    """Returns an estimate with its interval and, except for a difference, its sample size."""
    if estimate is None or head == "difference":
        return _format_or_dash(estimate)
    return f"{_format_or_dash(estimate)} ({estimate.n_members})"


def _format_or_dash(estimate: Estimate | None) -> str:
    return "-" if estimate is None else format_estimate(estimate)


def format_p_value(value: float | None) -> str:
    """Returns a p-value with four decimals, or "-" if there is none."""
    return "-" if value is None else f"{value:.4f}"
