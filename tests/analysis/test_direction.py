"""The sentences on constructed sweeps: which way AUROC moves, and what may not be said of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.statistics.turning_points import format_levels, turning_levels
from contamination.analysis.summary import Direction, classify_direction, trend_clause
from contamination.core.statistics.estimates import Estimate


def with_intervals(*rows: tuple[float, float, float]) -> pd.DataFrame:
    """AUROCs at 1, 2, 4, … copies, each with its interval."""
    levels = [float(2**place) for place in range(len(rows))]
    values = pd.DataFrame(rows, columns=["value", "ci_low", "ci_high"])
    return values.assign(level=levels, at=[f"{level:g}" for level in levels])


def way(*values: float, half: float = 0.03) -> pd.DataFrame:
    """AUROCs at 1, 2, 4, … copies whose intervals reach `half` to each side."""
    return with_intervals(*((value, value - half, value + half) for value in values))


def trend(slope=0.7, low=0.6, high=0.8, tau=0.4, p_value=0.001, note=""):
    named = {"slope": slope, "slope_low": low, "slope_high": high}
    return {**named, "tau": tau, "p_value": p_value, "note": note}


def with_turns(row, values: pd.DataFrame, shared: float = 0.0):
    """The trend with the turns of draws that have these intervals.

    `shared` is the correlation of the draws at different levels.
    """
    rng = np.random.default_rng(0)
    common = rng.normal(size=4000)
    line = {}
    for level, value, low, high in values[["level", "value", "ci_low", "ci_high"]].to_numpy():
        own = shared**0.5 * common + (1 - shared) ** 0.5 * rng.normal(size=len(common))
        sides = np.where(own > 0, high - value, value - low)
        line[level] = Estimate(100, 100, value, value + own / own.std() * sides / 1.96)
    return {**row, "turns": format_levels(turning_levels(line))}


FEW = "no slope: it needs at least 5 members with more occurrences (there are 3)"
NAN = (np.nan, np.nan, np.nan)
SWEEPS = {
    "rises": (
        way(0.6, 0.75, 0.9),
        trend(),
        "rises with occurrences, from 0.60 [0.57, 0.63] at 1 to 0.90 [0.87, 0.93] at 4: its "
        "log-odds increase by 0.70 [0.60, 0.80] per doubling",
    ),
    "falls": (
        way(0.9, 0.75, 0.6),
        trend(-0.3, -0.44, -0.19, -0.2, 0.999),
        "falls with occurrences, from 0.90 [0.87, 0.93] at 1 to 0.60 [0.57, 0.63] at 4: its "
        "log-odds decrease by 0.30 [0.19, 0.44] per doubling",
    ),
    "flat": (
        way(0.7, 0.71, 0.7),
        trend(0.02, -0.1, 0.14, 0.01, 0.4),
        "shows no clear trend with occurrences, from 0.70 [0.67, 0.73] at 1 to 0.70 [0.67, "
        "0.73] at 4: its log-odds change by 0.02 [-0.10, 0.14] per doubling",
    ),
    "zigzag": (
        way(0.55, 0.94, 0.55, 0.94),
        trend(),
        "zigzags with occurrences, in no steady direction: 0.55 [0.52, 0.58] at 1, "
        "0.94 [0.91, 0.97] at 2, 0.55 [0.52, 0.58] at 4, 0.94 [0.91, 0.97] at 8",
    ),
    "peak": (
        way(0.5, 0.9, 0.88, 0.6),
        trend(0.2, 0.1, 0.3),
        "rises and then falls with occurrences: 0.50 [0.47, 0.53] at 1, 0.90 [0.87, 0.93] at 2, "
        "0.60 [0.57, 0.63] at 8",
    ),
    "dip": (
        way(0.8, 0.5, 0.7),
        trend(-0.2, -0.3, -0.1, -0.3, 1.0),
        "falls and then rises with occurrences: 0.80 [0.77, 0.83] at 1, 0.50 [0.47, 0.53] at 2, "
        "0.70 [0.67, 0.73] at 4",
    ),
    "noise": (
        way(0.6, 0.72, 0.7, 0.85),
        trend(),
        "rises with occurrences, from 0.60 [0.57, 0.63] at 1 to 0.85 [0.82, 0.88] at 8: its "
        "log-odds increase by 0.70 [0.60, 0.80] per doubling",
    ),
    "saturated": (
        way(1.0, 1.0, 1.0, half=0.0),
        trend(*NAN, note="no slope: the AUROC is 1 at all 3 levels"),
        "has no measured trend with occurrences: the AUROC is 1 at all 3 levels; it "
        "goes from 1.00 [1.00, 1.00] at 1 to 1.00 [1.00, 1.00] at 4",
    ),
    "too few": (
        way(0.6, 0.7, half=0.2),
        trend(*NAN, note=FEW),
        "has no measured trend with occurrences: it needs at least 5 members with more "
        "occurrences (there are 3); it goes from 0.60 [0.40, 0.80] at 1 to "
        "0.70 [0.50, 0.90] at 2",
    ),
    "one clear move without a slope": (
        with_intervals((0.6, 0.57, 0.63), (1.0, 1.0, 1.0)),
        trend(*NAN, note="no slope: the AUROC is 1 at all but one of the 2 levels"),
        "rises with occurrences, from 0.60 [0.57, 0.63] at 1 to 1.00 [1.00, 1.00] at 2, by the "
        "paired difference of these two levels (no slope: the AUROC is 1 at all but one of the 2 "
        "levels)",
    ),
    "one clear move without a slope that τ contradicts": (
        with_intervals((1.0, 0.99, 1.0), (0.75, 0.63, 0.84)),
        trend(*NAN, tau=0.36, p_value=1e-6, note=FEW),
        "has no clear direction with occurrences, from 1.00 [0.99, 1.00] at 1 to 0.75 [0.63, "
        "0.84] at 2, by the paired difference of these two levels (no slope: it needs at least 5 "
        "members with more occurrences (there are 3)); but Kendall's τ does not confirm it (0.36, "
        "one-sided p = 1.000)",
    ),
    "τ says nothing": (
        way(0.6, 0.75, 0.9),
        trend(tau=0.05, p_value=0.21),
        "has no clear direction with occurrences, from 0.60 [0.57, 0.63] at 1 to 0.90 [0.87, "
        "0.93] at 4: its log-odds increase by 0.70 [0.60, 0.80] per doubling; but Kendall's τ "
        "does not confirm it (0.05, one-sided p = 0.210)",
    ),
    "τ says the opposite": (
        way(0.9, 0.8, 0.75),
        trend(-0.3, -0.44, -0.19, 0.3, 0.001),
        "has no clear direction with occurrences, from 0.90 [0.87, 0.93] at 1 to 0.75 [0.72, "
        "0.78] at 4: its log-odds decrease by 0.30 [0.19, 0.44] per doubling; but Kendall's τ "
        "does not confirm it (0.30, one-sided p = 0.999)",
    ),
    "τ confirms a fall too little": (
        way(0.9, 0.8, 0.75),
        trend(-0.3, -0.44, -0.19, -0.1, 0.94),
        "has no clear direction with occurrences, from 0.90 [0.87, 0.93] at 1 to 0.75 [0.72, "
        "0.78] at 4: its log-odds decrease by 0.30 [0.19, 0.44] per doubling; but Kendall's τ "
        "does not confirm it (-0.10, one-sided p = 0.060)",
    ),
    "the ends say the opposite": (
        way(0.69, 0.71, 0.66, half=0.1),
        trend(0.2, 0.1, 0.3),
        "has no clear direction with occurrences, from 0.69 [0.59, 0.79] at 1 to 0.66 [0.56, "
        "0.76] at 4: its log-odds increase by 0.20 [0.10, 0.30] per doubling; but the last "
        "AUROC is below the first",
    ),
    "one clear move, the other way": (
        way(0.7, 0.74, 0.66, 0.71),
        trend(0.2, 0.1, 0.3),
        "has no clear direction with occurrences, from 0.70 [0.67, 0.73] at 1 to 0.71 [0.68, "
        "0.74] at 8: its log-odds increase by 0.20 [0.10, 0.30] per doubling; but AUROC "
        "clearly falls between some levels",
    ),
    "numbers of their own in every benchmark": (
        way(),
        trend(),
        "rises with occurrences: its log-odds increase by 0.70 [0.60, 0.80] per doubling",
    ),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_each_sweep_is_told_as_what_it_is(name):
    values, row, said = SWEEPS[name]
    row = with_turns(row, values)
    assert trend_clause("loss", "occurrences", row, values, 0.05) == f"AUROC of loss {said}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.5, 0.6, 0.7, 0.8, 0.7, 0.6), Direction.PEAKS),
        ((0.5, 0.54, 0.52, 0.58, 0.56, 0.62), Direction.RISES),
        ((0.5, 0.8, 0.6, 0.7, 0.5), Direction.ZIGZAGS),
        ((0.8, 0.5, 0.9, 0.4), Direction.ZIGZAGS),
        ((0.5, 0.54, 0.58, 0.62, 0.58, 0.54), Direction.PEAKS),  # no two neighbours are apart
    ],
)
def test_a_turn_is_where_intervals_are_apart(values, expected):
    assert classify_direction(with_turns(trend(), way(*values)), way(*values), 0.05) is expected


RISE = ((0.5, 0.47, 0.53), (0.9, 0.87, 0.93), (0.6, 0.57, 0.63))
WIDE = (0.95, 0.3, 1.0)


@pytest.mark.parametrize("place", range(4))
def test_a_turn_is_told_by_the_values_that_show_it(place):
    """A wide interval tells of no move, wherever it is and however high its value."""
    rows = [*RISE[:place], WIDE, *RISE[place:]]
    values = with_intervals(*rows)
    said = trend_clause("loss", "occurrences", with_turns(trend(), values), values, 0.05)
    at = [2 ** rows.index(row) for row in RISE]
    assert said == (
        "AUROC of loss rises and then falls with occurrences: 0.50 [0.47, 0.53] at "
        f"{at[0]}, 0.90 [0.87, 0.93] at {at[1]}, 0.60 [0.57, 0.63] at {at[2]}"
    )


ZIGZAG = (0.586, 0.751, 0.631, 0.823)


@pytest.mark.parametrize(("shared", "expected"), [(0.0, Direction.RISES), (0.9, Direction.ZIGZAGS)])
def test_levels_are_compared_by_the_draws_of_their_differences(shared, expected):
    """Cells of the same texts: marginal intervals overlap where that of the difference is clear."""
    values = way(*ZIGZAG, half=0.09)
    assert values["ci_high"][2] > values["ci_low"][1]
    assert classify_direction(with_turns(trend(), values, shared), values, None) is expected


@pytest.mark.parametrize(("half", "expected"), [(0.0497, Direction.RISES), (0.04, Direction.PEAKS)])
def test_differences_of_many_values_are_corrected_for_the_number_of_pairs(half, expected):
    """Ten values have 45 pairs, some of which differ by chance."""
    values = way(0.6, *[0.7] * 8, 0.6, half=half)
    values = values.assign(value=values["value"] + 1e-6 * values.index)
    assert classify_direction(with_turns(trend(), values), values, 0.05) is expected


def test_a_difference_that_two_decimals_do_not_show_is_no_turn():
    values = way(0.6, 0.999, 0.996, half=0.0001)
    assert classify_direction(with_turns(trend(), values), values, 0.05) is Direction.RISES


def test_along_a_series_the_sign_of_tau_must_agree():
    """τ over conditions is descriptive: its p-value column is the slope's."""
    values = way(0.6, 0.75, 0.9)
    no_turns = {"turns": ""}
    assert classify_direction(trend(p_value=0.9) | no_turns, values) is Direction.RISES
    for tau in (0.0, -0.3, np.nan):
        assert classify_direction(trend(tau=tau) | no_turns, values) is Direction.DISPUTED
    said = trend_clause("loss", "learning rate", trend(tau=-0.3) | no_turns, values, None)
    assert said.endswith("Kendall's τ does not confirm it (-0.30)")
    uncomputed = trend_clause("loss", "occurrences", trend(tau=np.nan) | no_turns, values, 0.05)
    assert uncomputed.endswith("(it could not be computed)")
