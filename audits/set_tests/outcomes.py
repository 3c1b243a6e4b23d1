"""Applies the tests to sets of which the truth is known, whole and in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.set_tests.procedures import PROCEDURES, Procedure
from contamination.audits.set_tests.sets import Rows, ScoredSet
from contamination.core.seeds import derive_seed

PUBLISHED, REDRAWN, HELD_OUT = "published", "redrawn", "held out"
"""How a row's set came about: as it was published; the same under a model that did not see it,
after a new draw; what was held out, under a model that saw the rest of the benchmark."""


def run_tests(
    sets: Sequence[ScoredSet], sizes: Sequence[int], draws: int, seed: int
) -> pd.DataFrame:
    """Returns one row per test of a set, or of a part of one.

    Columns: those of `SetName` and test, origin (PUBLISHED, REDRAWN or HELD_OUT), units, examples,
    is_whole, p_value, above (see `version_rank.Tail`), is_leaked (the truth of this row). Parts as
    published are disjoint; new draws are of random parts.

    Args:
        sets: the sets.
        sizes: the numbers of examples of parts; larger ones than the set has are left out.
        draws: how often each draw is made anew, for each set and size.
        seed: of parts and draws.
    """
    return pd.DataFrame(
        {**asdict(data.name), "test": procedure.name, **row}
        for data in sets
        for procedure in PROCEDURES.values()
        for row in _rows(data, procedure, sizes, draws, seed)
    )


def _rows(
    data: ScoredSet, procedure: Procedure, sizes: Sequence[int], draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    units, name = procedure.units(data), data.name
    if not units:
        return
    rng = np.random.default_rng(
        derive_seed(seed, name.cell, name.benchmark, name.occurrences, name.saw_it, procedure.name)
    )
    per_unit = procedure.examples_per_unit(data)
    parts_of = partial(_part_sizes, sizes=sizes, per_unit=per_unit, fewest=procedure.fewest_in_part)
    for size, examples in parts_of(units).items():
        about = {"units": size, "examples": examples, "is_whole": size == units}
        origin = PUBLISHED if name.saw_it or not procedure.has_draw else REDRAWN
        for part in _disjoint_parts(units, size, rng):
            if origin == PUBLISHED or size == units:
                tail = procedure.published(data, part, rng)._asdict()
                yield {**about, **tail, "origin": PUBLISHED, "is_leaked": name.saw_it}
        for _ in range(draws if origin == REDRAWN else 0):
            tail = procedure.redrawn(data, rng.permutation(units)[:size], rng)._asdict()
            yield {**about, **tail, "origin": REDRAWN, "is_leaked": False}
    held_out = procedure.held_out_units(data) if name.saw_it else 0
    for size, examples in parts_of(held_out).items() if held_out else ():
        about = {"units": size, "examples": examples, "is_whole": size == held_out}
        parts = (
            (rng.permutation(held_out)[:size] for _ in range(draws))
            if procedure.has_draw else _disjoint_parts(held_out, size, rng)
        )  # fmt: skip
        for part in parts:
            tail = procedure.held_out(data, part, rng)._asdict()
            yield {**about, **tail, "origin": HELD_OUT, "is_leaked": False}


def _part_sizes(units: int, sizes: Sequence[int], per_unit: float, fewest: int) -> dict[int, int]:
    """Returns the units of each part, and the examples that they stand for; the whole comes last.

    A part has the largest number of units that have at most so many examples, on average.
    """
    by_units = {int(size / per_unit): size for size in sorted(sizes)}
    parts = {part: size for part, size in by_units.items() if fewest <= part < units}
    return {**parts, units: round(units * per_unit)}


def _disjoint_parts(units: int, size: int, rng: np.random.Generator) -> list[Rows]:
    order = rng.permutation(units)
    return [order[start : start + size] for start in range(0, units - size + 1, size)]
