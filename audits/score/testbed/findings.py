"""Bias and RMSE of corrected scores against clean twins, and how many spiked examples suffice.

A seed is the unit: its mean error and its mean squared error are taken over repetitions, then
benchmarks, then cells (swapped replicates). The RMSE is the root of the mean over seeds of the mean
squared error, with its error by the delta method. Intervals have Student's quantile over seeds, and
none are given with one seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.reference_attack.strength import MeanOverCells
from contamination.audits.score.estimation import NAIVE
from contamination.audits.score.testbed.cases import AS_LEAKED, Case
from contamination.audits.score.testbed.spiking import OTHER_TWIN, case_errors, plan_spiking
from contamination.core.errors import DataError
from contamination.core.statistics.estimates import ALL_BENCHMARKS

POINTS = 100
WITHOUT_SPIKING = (NAIVE, OTHER_TWIN)
"""The scores that read no spiked examples."""


@dataclass(frozen=True)
class Spiking:
    """How spiked examples are drawn: the audit's fields."""

    levels: Sequence[int]
    share: float
    repeats: int
    prevalence: float | None
    seed: int


@dataclass(frozen=True)
class Sufficiency:
    """How many spiked examples on each side an estimator needs.

    Attributes:
        condition: the condition of the contaminated cells.
        scenario: how often spiked members were copied.
        estimator: the corrected score.
        settles: the fewest from which on the RMSE is within the tolerance of that with the most.
        helps: the fewest from which on the interval of RMSE − naive's RMSE is below 0; None: none.
        fewest: the smallest number that was tried.
        most: the largest.
        is_judged: whether there are intervals, which take two seeds.
    """

    condition: str
    scenario: str
    estimator: str
    settles: int
    helps: int | None
    fewest: int
    most: int
    is_judged: bool

    @property
    def suffices(self) -> int | None:
        """The fewest from which on both hold; None: no number does."""
        return None if self.helps is None else max(self.helps, self.settles)


@dataclass(frozen=True)
class SpikingFindings:
    """The results.

    Attributes:
        errors: a row per condition, scenario, benchmark (and ALL_BENCHMARKS, the mean over them if
            there are several), spiked and estimator, in points: bias, rmse and gain (RMSE −
            naive's RMSE), each with _low and _high; seeds, cells and items (of a benchmark, mean).
        by_cell: the rows of `spiking.case_errors`, from −1 to 1.
        sufficiency: of each estimator that reads spiked examples.
        tolerance: of `Sufficiency.settles`, in points.
        confidence: of the intervals.
        omissions: sentences about what was left out.
    """

    errors: pd.DataFrame
    by_cell: pd.DataFrame
    sufficiency: list[Sufficiency]
    tolerance: float
    confidence: float
    omissions: list[str]

    @property
    def means(self) -> pd.DataFrame:
        """The rows of the mean over benchmarks, or of the only benchmark."""
        several = self.errors.groupby(["condition", "scenario"])["benchmark"].transform("nunique")
        return self.errors[(self.errors["benchmark"] == ALL_BENCHMARKS) | (several == 1)]


def measure_errors(
    cases: Sequence[Case], spiking: Spiking, tolerance: float, confidence: float
) -> SpikingFindings:
    """Returns the errors of all corrected scores against the clean twins.

    Args:
        cases: from `cases.read_cases`.
        spiking: how spiked examples are drawn.
        tolerance: in points.
        confidence: of the intervals.

    Raises:
        DataError: no benchmark has enough items.
    """
    by_scenario: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        by_scenario.setdefault((case.condition, case.scenario), []).append(case)
    tables, omissions = [], []
    for (condition, scenario), of_scenario in by_scenario.items():
        plan = plan_spiking(of_scenario, spiking.levels, spiking.share)
        about = f"{condition}, {scenario}"
        if not plan.levels:
            omissions.append(f"{about}: too few items for any number of spiked examples.")
            continue
        if plan.left_out:
            omissions.append(f"{about}: {', '.join(plan.left_out)}: too few items.")
        if plan.wanted:
            numbers = ", ".join(map(str, plan.wanted))
            omissions.append(f"{about}: {numbers} spiked examples on each side: too few items.")
        tables += [
            case_errors(
                case, plan.levels, spiking.share, spiking.repeats, spiking.seed, spiking.prevalence
            )
            for case in plan.cases
        ]
    if not any((table["scenario"] == AS_LEAKED).any() for table in tables):
        raise DataError(
            f"audit.spiked is {[*spiking.levels]}: no benchmark of these cells has members and "
            "non-members for any of these numbers and a benchmark of 10 items besides. Give "
            "smaller numbers, or cells with more items (injection.members)."
        )
    by_cell = pd.concat(tables, ignore_index=True)
    errors = pd.DataFrame(_error_rows(by_cell, confidence))
    findings = SpikingFindings(errors, by_cell, [], tolerance, confidence, omissions)
    sufficiency = [*_sufficiency(findings.means, tolerance)]
    return SpikingFindings(errors, by_cell, sufficiency, tolerance, confidence, omissions)


def _error_rows(by_cell: pd.DataFrame, confidence: float) -> Iterator[dict[str, Any]]:
    for (condition, scenario), rows in by_cell.groupby(["condition", "scenario"], sort=False):
        names = [*dict.fromkeys(rows["benchmark"])]
        for benchmark in [*names, *[ALL_BENCHMARKS] * (len(names) > 1)]:
            chosen = rows if benchmark == ALL_BENCHMARKS else rows[rows["benchmark"] == benchmark]
            about = {"condition": condition, "scenario": scenario, "benchmark": benchmark}
            for level, of_level in chosen.groupby("spiked"):
                by_estimator = dict([*of_level.groupby("estimator", sort=False)])
                naive = _root_mean_square(by_estimator[NAIVE])
                for name, of_name in by_estimator.items():
                    rmse = _root_mean_square(of_name)
                    yield {
                        **about,
                        "spiked": level,
                        "estimator": name,
                        **_in_points("bias", _mean_over_seeds(of_name, "bias"), confidence),
                        **_in_points("rmse", rmse, confidence, lowest=0.0),
                        **_in_points("gain", rmse - naive, confidence),
                        "seeds": of_name["seed"].nunique(),
                        "cells": of_name["cell"].nunique(),
                        "items": of_name["items"].mean(),
                    }


def _mean_over_seeds(rows: pd.DataFrame, column: str) -> MeanOverCells:
    """Returns the mean over benchmarks, then cells, then seeds."""
    by_cell = rows.groupby(["seed", "cell"])[column].mean()
    by_seed: NDArray[np.float64] = by_cell.groupby("seed").mean().to_numpy(np.float64)
    mean = float(by_seed.mean())
    return MeanOverCells(mean, (by_seed - mean) / len(by_seed), np.zeros((len(by_seed), 0)))


def _root_mean_square(rows: pd.DataFrame) -> MeanOverCells:
    square = _mean_over_seeds(rows, "square")
    root = float(np.sqrt(square.value))
    slope = 0.5 / root if root > 0 else 0.0
    return MeanOverCells(root, slope * square.cells, square.influence)


def _in_points(
    name: str, mean: MeanOverCells, confidence: float, lowest: float = -np.inf
) -> dict[str, float]:
    low, high = np.nan, np.nan
    if len(mean.cells) > 1:
        low, high = mean.student_interval(confidence)
    ends = {f"{name}_low": POINTS * max(low, lowest), f"{name}_high": POINTS * high}
    return {name: POINTS * mean.value, **ends}


def _sufficiency(means: pd.DataFrame, tolerance: float) -> Iterator[Sufficiency]:
    used = means[~means["estimator"].isin(WITHOUT_SPIKING)]
    for key, rows in used.groupby(["condition", "scenario", "estimator"], sort=False):
        condition, scenario, estimator = map(str, key)
        rows = rows.sort_values("spiked")
        levels = [int(level) for level in rows["spiked"]]
        rmse = rows["rmse"].to_numpy()
        settles = _from_which_on(levels, rmse <= rmse[-1] + tolerance)
        helps = _from_which_on(levels, rows["gain_high"].to_numpy() < 0)
        is_judged = bool(np.isfinite(rows["gain_high"]).all())
        assert settles is not None  # the largest number at least
        ends = levels[0], levels[-1]
        yield Sufficiency(condition, scenario, estimator, settles, helps, *ends, is_judged)


def _from_which_on(levels: Sequence[int], holds: NDArray[np.bool_]) -> int | None:
    """Returns the smallest level from which on all hold; None: the largest does not."""
    failing = np.flatnonzero(~holds)
    first = int(failing[-1]) + 1 if len(failing) else 0
    return levels[first] if first < len(levels) else None
