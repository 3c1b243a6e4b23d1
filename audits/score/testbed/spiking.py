"""Errors of corrected scores when spiked examples are drawn at random, many times.

One repetition takes the largest number K of spiked members and spiked non-members out of the items,
and draws a benchmark of unknown membership from the rest, with a given share of members. Smaller
numbers k of spiked examples are the first k of the K, so all numbers are compared on the same
benchmark. The truth is the clean twin's mean correctness on it. Spiking and test-set correction
(arXiv 2605.24818) simulates 30% members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.score.estimation import (
    MEMBER,
    NONMEMBER,
    UNKNOWN,
    Items,
    estimate_scores,
)
from contamination.audits.score.inputs import FEWEST_UNKNOWN
from contamination.audits.score.testbed.cases import Case
from contamination.core.seeds import derive_seed

OTHER_TWIN = "another clean twin"
"""The mean correctness of the clean twin of another seed on the benchmark: how far two clean
trainings are apart."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Sizes:
    """The numbers of members and non-members in a benchmark of unknown membership."""

    members: int
    nonmembers: int

    @property
    def are_enough(self) -> bool:
        """Whether such a benchmark can be corrected."""
        both = min(self.members, self.nonmembers) >= 1
        return both and self.members + self.nonmembers >= FEWEST_UNKNOWN


@dataclass(frozen=True)
class Plan:
    """What is drawn for the cases of one condition and scenario.

    Attributes:
        levels: the numbers of spiked examples on each side, ascending; empty: no case has enough.
        cases: the cases of the benchmarks that have enough items.
        left_out: the benchmarks that have not.
        wanted: the numbers that the smallest of the other benchmarks does not allow.
    """

    levels: list[int]
    cases: list[Case]
    left_out: list[str]
    wanted: list[int]


def benchmark_sizes(case: Case, spiked: int, share: float) -> Sizes:
    """Returns the size of the largest benchmark with that share of members; (0, 0): there is none.

    Args:
        case: the items.
        spiked: the number of spiked members, and of spiked non-members, that are set aside.
        share: the share of members.
    """
    members = int(case.may_be_asked.sum()) - spiked * case.members_are_shared
    nonmembers = int(case.nonmember.sum()) - spiked
    if min(members, nonmembers) < 1 or case.may_be_spiked.sum() < spiked:
        return Sizes(0, 0)
    odds = share / (1 - share)
    members = min(members, int(nonmembers * odds + ROUNDING))
    return Sizes(members, min(nonmembers, int(members / odds + ROUNDING)))


def plan_spiking(cases: Sequence[Case], spiked: Sequence[int], share: float) -> Plan:
    """Returns the numbers of spiked examples that all benchmarks allow in all cells.

    Args:
        cases: of one condition and scenario.
        spiked: the numbers wanted.
        share: the share of members in the benchmark.
    """
    allowed: dict[str, set[int]] = {}
    for case in cases:
        levels = {k for k in spiked if benchmark_sizes(case, k, share).are_enough}
        allowed[case.benchmark] = allowed.get(case.benchmark, levels) & levels
    usable = {name: levels for name, levels in allowed.items() if levels}
    common = set.intersection(*usable.values()) if usable else set()
    return Plan(
        sorted(common),
        [case for case in cases if case.benchmark in usable and common],
        sorted({*allowed} - {*usable}),
        sorted({*spiked} - common),
    )


def case_errors(
    case: Case,
    levels: Sequence[int],
    share: float,
    repeats: int,
    seed: int,
    prevalence: float | None,
) -> pd.DataFrame:
    """Returns the errors of every corrected score of one case, over the repetitions.

    Args:
        case: the model, its twin and the items.
        levels: the numbers of spiked examples on each side, ascending.
        share: the share of members in the benchmark.
        repeats: the number of repetitions.
        seed: of the draws.
        prevalence: the share of members that the estimators are told; None: they estimate it.

    Returns:
        A row per number and score: condition, scenario, seed, cell, benchmark, spiked, estimator,
        bias (mean of score − truth, from −1 to 1), square (mean of its square), failed (the share
        of repetitions without a value) and items (of the benchmark).
    """
    purpose = (case.condition, case.scenario, case.cell, case.benchmark)
    rng = np.random.default_rng(derive_seed(seed, "spiked examples", *purpose))
    sizes = benchmark_sizes(case, levels[-1], share)
    errors: dict[tuple[int, str], list[float]] = {}
    for _ in range(repeats):
        for level, name, error in _repeat(case, levels, sizes, rng, prevalence):
            errors.setdefault((level, name), []).append(error)
    return pd.DataFrame(
        {
            "condition": case.condition,
            "scenario": case.scenario,
            "seed": case.seed,
            "cell": case.cell,
            "benchmark": case.benchmark,
            "spiked": level,
            "estimator": name,
            **_summary(np.array(of_name)),
            "items": sizes.members + sizes.nonmembers,
        }
        for (level, name), of_name in errors.items()
    )


def _summary(errors: NDArray[np.float64]) -> dict[str, float]:
    finite = errors[np.isfinite(errors)]
    has_any = len(finite) > 0
    return {
        "bias": float(finite.mean()) if has_any else np.nan,
        "square": float((finite**2).mean()) if has_any else np.nan,
        "failed": 1 - len(finite) / len(errors),
    }


def _repeat(
    case: Case,
    levels: Sequence[int],
    sizes: Sizes,
    rng: np.random.Generator,
    prevalence: float | None,
) -> Iterator[tuple[int, str, float]]:
    """Yields the error of every score of one repetition."""
    members = rng.permutation(np.flatnonzero(case.may_be_spiked))[: levels[-1]]
    nonmembers = rng.permutation(np.flatnonzero(case.nonmember))
    spiked_nonmembers, rest = np.split(nonmembers, [levels[-1]])
    askable = np.setdiff1d(np.flatnonzero(case.may_be_asked), members)
    asked = rng.choice(askable, sizes.members, replace=False)
    unknown = np.concatenate([asked, rest[: sizes.nonmembers]])
    truth = float(case.clean[unknown].mean())
    other_twin = None
    if case.references is not None:
        column = int(rng.integers(case.references.shape[1]))
        other_twin = float(case.references[unknown, column].mean())
    for level in levels:
        parts = (unknown, members[:level], spiked_nonmembers[:level])
        items = _items(case, parts)
        for name, value in estimate_scores(items, 0, 0, prevalence).values.items():
            yield level, name, value - truth
        if other_twin is not None:
            yield level, OTHER_TWIN, other_twin - truth


def _items(case: Case, parts: tuple[Any, Any, Any]) -> Items:
    """Returns the table of items that a user would have."""
    rows = np.concatenate(parts)
    roles = (UNKNOWN, MEMBER, NONMEMBER)
    role = np.repeat(np.array(roles), [len(part) for part in parts])
    references = None if case.references is None else case.references[rows]
    return Items(case.correct[rows], case.score[rows], role, rows, None, references)
