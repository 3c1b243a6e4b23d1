"""Contaminated models, their clean twins and the items that may be spiked, by benchmark.

Each benchmark is corrected on its own, as its user would do: benchmarks differ in accuracy and in
how high their membership scores are, so a calibration over several of them would mix these
differences with membership.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.cells import AuditedCell
from contamination.audits.inflation.inputs import ACCURACY, Family, Group
from contamination.core.errors import DataError

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
AS_LEAKED, MORE_COPIES, CLEAN_MODEL = SCENARIOS = (
    "as the benchmark",
    "most copies, the benchmark fewest",
    "no contamination",
)
"""How often spiked members were copied: as often as the benchmark's members (at random); as often
as the most copied ones, and the benchmark's members as often as the least copied ones; never: the
clean twin takes the place of the contaminated model."""


@dataclass(frozen=True)
class Case:
    """One model's answers to a benchmark, and the truth beside them: N items.

    Attributes:
        condition: the condition of the contaminated cells.
        scenario: one of SCENARIOS.
        seed: of the cell and of its clean twin.
        cell: the cell's name.
        benchmark: the benchmark's name.
        correct: the observed correctness, shape (N,).
        clean: the clean twin's correctness, shape (N,).
        score: the membership score; higher means member. Shape (N,).
        may_be_spiked: the members that may be spiked, shape (N,).
        may_be_asked: the members that may be in the benchmark, shape (N,).
        nonmember: the items that were not inserted, shape (N,).
        references: the correctness of clean twins of other seeds, shape (N, twins), or None.
    """

    condition: str
    scenario: str
    seed: int
    cell: str
    benchmark: str
    correct: Values
    clean: Values
    score: Values
    may_be_spiked: Flags
    may_be_asked: Flags
    nonmember: Flags
    references: Values | None

    @property
    def members_are_shared(self) -> bool:
        """Whether spiked members are drawn from those of which the benchmark's are drawn."""
        return bool((self.may_be_spiked & self.may_be_asked).any())


@dataclass(frozen=True)
class _Model:
    """A model's answers and scores to all items of a family."""

    condition: str
    cell: AuditedCell
    correct: Values
    score: Values


def read_cases(field: str, groups: Sequence[Group], method: str) -> list[Case]:
    """Returns the cases of all cells whose seed has a clean twin, and of the twins themselves.

    Args:
        field: the config field that names the method, for errors.
        groups: the contaminated conditions.
        method: the method whose scores are the membership scores.

    Raises:
        ConfigError: a cell has no scores of the method.
        DataError: a score of it is not finite, or no cell has a clean twin of its seed.
    """
    cases = [case for group in groups for case in _cases_of_group(field, group, method)]
    if not cases:
        raise DataError(
            "audit.cells: no contaminated cell has a clean twin of its own seed, whose answers are "
            "the truth. Add cells with occurrences.count=0 of the same seeds."
        )
    families = {id(group.family): group.family for group in groups}
    for family in families.values():
        cases += _cases_of_twins(field, family, method)
    return cases


def cells_without_twin(groups: Sequence[Group]) -> list[str]:
    """Returns the names of the contaminated cells whose seed has no clean twin."""
    return [
        cell.name
        for group in groups
        for cell in group.cells
        if cell.cell.seed not in group.family.seeds
    ]


def _cases_of_group(field: str, group: Group, method: str) -> Iterator[Case]:
    family = group.family
    for row, cell in enumerate(group.cells):
        if cell.cell.seed not in family.seeds:
            continue
        score = _scores(field, cell, family.items, method)
        model = _Model(group.name, cell, group.answers[ACCURACY][row], score)
        doses = group.doses[row]
        inserted = doses > 0
        yield from _by_benchmark(model, family, AS_LEAKED, inserted, inserted, ~inserted)
        fewest, most = doses[inserted].min(), doses.max()
        if fewest < most:
            yield from _by_benchmark(
                model, family, MORE_COPIES, doses == most, doses == fewest, ~inserted
            )


def _cases_of_twins(field: str, family: Family, method: str) -> Iterator[Case]:
    """Yields clean twins in place of contaminated models: no item leaked."""
    for row, cell in enumerate(family.cells):
        score = _scores(field, cell, family.items, method)
        model = _Model(family.name, cell, family.results[ACCURACY][row], score)
        member = family.members[row]
        yield from _by_benchmark(model, family, CLEAN_MODEL, member, member, ~member)


def _by_benchmark(
    model: _Model,
    family: Family,
    scenario: str,
    may_be_spiked: Flags,
    may_be_asked: Flags,
    nonmember: Flags,
) -> Iterator[Case]:
    seed = model.cell.cell.seed
    twin = family.seeds.index(seed)
    others = [row for row in range(len(family.seeds)) if row != twin]
    results = family.results[ACCURACY]
    for name in dict.fromkeys(family.benchmarks):
        rows = family.benchmarks == name
        yield Case(
            condition=model.condition,
            scenario=scenario,
            seed=seed,
            cell=model.cell.name,
            benchmark=str(name),
            correct=model.correct[rows],
            clean=results[twin, rows],
            score=model.score[rows],
            may_be_spiked=may_be_spiked[rows],
            may_be_asked=may_be_asked[rows],
            nonmember=nonmember[rows],
            references=results[others][:, rows].T if others else None,
        )


def _scores(field: str, cell: AuditedCell, items: pd.DataFrame, method: str) -> Any:
    """Returns a cell's scores of the items, shape (N,)."""
    ids = cell.cell.examples["example_id"].to_numpy()
    values = pd.Series(cell.scores(field, method), index=ids)
    scores = values.reindex(items["example_id"]).to_numpy(np.float64)
    missing = ~np.isfinite(scores)
    if missing.any():
        raise DataError(
            f"{field} is {method!r}: {cell.name} has no finite score of {missing.sum()} items, "
            f"such as {items['example_id'][missing].iloc[0]}. Choose another method."
        )
    return scores
