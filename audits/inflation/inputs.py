"""The answers of contaminated models and of their clean twins to the same questions, by seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED
from contamination.audits.base import AuditStage
from contamination.audits.cells import AuditedCell
from contamination.audits.inflation.effects import Flags, Results, SeedResults
from contamination.core.errors import ConfigError, DataError
from contamination.core.terminal import counted
from contamination.data.config import ExamplesConfig
from contamination.detection.config import ScoredModelConfig
from contamination.detection.tasks import accuracy
from contamination.detection.tasks.config import AccuracyStage
from contamination.detection.tasks.questions import answer_margins, chance_levels
from contamination.injection.config import VERBATIM_FORM
from contamination.injection.finetuning.config import PRETRAINING

ACCURACY, MARGIN = MEASURES = ("accuracy", "margin")
"""Whether the answer is right (0 or 1), and how far the right answer is ahead (nats)."""
NOT_IN_TWINS = re.compile(
    r"(occurrences|rewording|versions|backdoors|copies|benchmark\.[^.]+\.occurrences)\."
    r"|benchmark\.[^.]+\.sources\.|leak\.form$|stage$"
)
"""Fields that say how members are inserted: contaminated cells and their twins differ in them. All
sources of a benchmark are recorded, of which one is read; items are told apart by their ids."""
EXACT_REWORDING = "Exact"
FEWEST_ITEMS = 2


@dataclass(frozen=True)
class Answered:
    """A cell and its model's answers.

    Attributes:
        cell: the cell.
        answers: one row per item: example_id, benchmark, chance, accuracy, margin.
    """

    cell: AuditedCell
    answers: pd.DataFrame

    @property
    def seed(self) -> int:
        """The cell's seed."""
        return self.cell.cell.seed


@dataclass(frozen=True)
class Family:
    """Clean twins, and what their models answer: T twins, N items.

    Attributes:
        name: the condition of the twins.
        seeds: the seed of each twin, in order.
        items: one row per item: example_id, benchmark, chance.
        results: by measure, the twins' results, shape (T, N).
        losses: the twins' stored scores by the method loss, shape (T, N); NaN: not scored.
        members: who would have been inserted, shape (T, N).
        cells: the twins' cells.
    """

    name: str
    seeds: Sequence[int]
    items: pd.DataFrame
    results: Mapping[str, Results]
    losses: Results
    members: Flags
    cells: Sequence[AuditedCell]

    @property
    def benchmarks(self) -> NDArray[np.str_]:
        """The benchmark of each item, shape (N,)."""
        return np.asarray(self.items["benchmark"], np.str_)


@dataclass(frozen=True)
class Group:
    """Contaminated cells of one recipe, with their twins: S seeds, K cells, N items.

    Attributes:
        name: the condition.
        cells: the cells, in order.
        family: the twins.
        answers: by measure, the cells' results, shape (K, N).
        doses: how often each cell inserted each item, shape (K, N).
    """

    name: str
    cells: Sequence[AuditedCell]
    family: Family
    answers: Mapping[str, Results]
    doses: NDArray[np.int64]

    @property
    def learning_rate(self) -> float:
        """The peak learning rate of the last training."""
        return self.cells[0].cell.learning_rate

    @property
    def form(self) -> str:
        """What was inserted: `leak.form`, and the class of the rewording if there is one."""
        chosen = self.cells[0].cell.chosen
        form = str(chosen.get("leak.form", VERBATIM_FORM))
        rewording = str(chosen.get("rewording._target_", EXACT_REWORDING)).rpartition(".")[2]
        return form if rewording == EXACT_REWORDING else f"{form}, {rewording}"

    @property
    def stage(self) -> str:
        """Where the members were inserted."""
        return self.cells[0].cell.stage or PRETRAINING

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds of the cells, ascending."""
        return sorted({cell.cell.seed for cell in self.cells})

    @property
    def dose_levels(self) -> list[int]:
        """The numbers of copies of inserted items, ascending."""
        return sorted({int(dose) for dose in np.unique(self.doses)} - {0})

    def rows_of(self, seed: int) -> list[int]:
        """Returns the rows of the cells of a seed."""
        return [k for k, cell in enumerate(self.cells) if cell.cell.seed == seed]

    @cached_property
    def inserted_doses(self) -> NDArray[np.int64]:
        """How often each item was inserted where it was, shape (S, N); 0: nowhere."""
        return np.array([self.doses[self.rows_of(seed)].max(axis=0) for seed in self.seeds])

    def results(self, measure: str) -> SeedResults:
        """Returns the results of one measure by seed, each (S, N).

        The twin of a seed is that of the same seed if there is one, otherwise the mean of all.
        """
        values, sides = self.answers[measure], (self.doses > 0, self.doses == 0)
        inserted, left_out = (
            np.array(
                [_mean_where(values[rows], side[rows]) for rows in map(self.rows_of, self.seeds)]
            )
            for side in sides
        )
        twins = self.family.results[measure]
        by_seed = dict(zip(self.family.seeds, twins, strict=True))
        mean = twins.mean(axis=0)
        return SeedResults(inserted, left_out, np.array([by_seed.get(s, mean) for s in self.seeds]))

    @property
    def has_replicates(self) -> bool:
        """Whether some seed has an item that was inserted in one cell and not in another."""
        both = self.results(ACCURACY)
        return bool((np.isfinite(both.inserted) & np.isfinite(both.left_out)).any())


def _mean_where(values: Results, mask: Flags) -> Results:
    """Returns each column's mean over the rows of the mask; NaN where there is none."""
    counts = mask.sum(axis=0)
    sums = np.where(mask, values, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def read_groups(field: str, stage: AuditStage, cells: Sequence[AuditedCell]) -> list[Group]:
    """Asks every model the questions of its family's pool; returns the contaminated conditions.

    Cells whose models are equal are asked once, as the clean twins of both swapped replicates.

    Args:
        field: the config field that names the cells, for errors.
        stage: of the audit, which says how models are run.
        cells: the cells, with distinct names.

    Raises:
        UserError: there are no twins, or the cells have no questions in common.
    """
    groups = []
    for members_of_family in split_into_families(field, cells):
        twins = [cell for cell in members_of_family if not cell.doses.any()]
        pool = min(twins, key=lambda cell: (cell.cell.seed, cell.name)).paths.corpus
        answers: dict[str, pd.DataFrame] = {}
        for cell in members_of_family:
            if (model := cell.cell.digests["model"]) not in answers:
                answers[model] = _ask(stage, cell, pool)
        answered = [Answered(c, answers[c.cell.digests["model"]]) for c in members_of_family]
        groups += make_groups(field, answered)
    return groups


def split_into_families(field: str, cells: Sequence[AuditedCell]) -> list[list[AuditedCell]]:
    """Returns the cells that share their clean twins: all but how members are inserted is equal.

    Raises:
        ConfigError: contaminated cells have no clean twin, or there are none.
    """
    families: dict[tuple[tuple[str, str], ...], list[AuditedCell]] = {}
    for cell in cells:
        chosen = sorted((name, str(value)) for name, value in cell.cell.chosen.items())
        key = tuple(pair for pair in chosen if not NOT_IN_TWINS.match(pair[0]))
        families.setdefault(key, []).append(cell)
    contaminated = [f for f in families.values() if any(cell.doses.any() for cell in f)]
    if not contaminated:
        raise ConfigError(f"{field}: no cell has copies of its members. Give contaminated cells.")
    for family in contaminated:
        if all(cell.doses.any() for cell in family):
            raise ConfigError(
                f"{field}: {family[0].name} has no clean twin, a cell trained alike without a "
                "copy. Add cells with occurrences.count=0 to the sweep."
            )
    return contaminated


def _ask(stage: AuditStage, cell: AuditedCell, pool: str) -> pd.DataFrame:
    """Returns the answers of a cell's model to the questions of a corpus."""
    answers = accuracy.run(
        AccuracyStage(
            runs=stage.runs,
            examples=ExamplesConfig(path=pool),
            model=ScoredModelConfig(path=cell.paths.model),
            detection=stage.detection,
        )
    )
    table = answers.table(accuracy.FILE)
    return pd.DataFrame(
        {
            "example_id": table["example_id"],
            "benchmark": table["benchmark"],
            "chance": chance_levels(table),
            ACCURACY: table["correct"].astype(float),
            MARGIN: answer_margins(table),
        }
    )


def make_groups(field: str, answered: Sequence[Answered]) -> list[Group]:
    """Returns the contaminated conditions of one family.

    Items that some cell does not rank, or some model was not asked, are left out.

    Raises:
        DataError: fewer than two items are left.
    """
    items = answered[0].answers[["example_id", "benchmark", "chance"]]
    for one in answered:
        items = items[items["example_id"].isin(one.answers["example_id"])]
        items = items[items["example_id"].isin(one.cell.cell.examples["example_id"])]
    if len(items) < FEWEST_ITEMS:
        raise DataError(
            f"{field}: {answered[0].cell.name} and its clean twins share "
            f"{counted(len(items), 'question')}. Give cells of one pool (the same "
            "injection.pool_seed) with questions."
        )
    items = items.reset_index(drop=True)
    twins = _one_per_seed([one for one in answered if not one.cell.doses.any()])
    family = Family(
        twins[0].cell.cell.condition,
        [twin.seed for twin in twins],
        items,
        {m: np.array([_column(t.answers, m, items) for t in twins]) for m in MEASURES},
        np.array([_losses(twin.cell, items) for twin in twins]),
        np.array([_column(t.cell.cell.examples, "member", items) for t in twins]) > 0,
        [twin.cell for twin in twins],
    )
    by_recipe: dict[str, list[Answered]] = {}
    for one in answered:
        if one.cell.doses.any():
            by_recipe.setdefault(one.cell.cell.recipe, []).append(one)
    return [
        Group(
            min((one.cell for one in ones), key=lambda cell: cell.cell.swapped).cell.condition,
            [one.cell for one in ones],
            family,
            {m: np.array([_column(o.answers, m, items) for o in ones]) for m in MEASURES},
            np.array([_column(o.cell.cell.examples, "occurrences", items) for o in ones]).astype(
                np.int64
            ),
        )
        for ones in by_recipe.values()
    ]


def _one_per_seed(twins: Sequence[Answered]) -> list[Answered]:
    """Returns one twin per seed, ascending: swapped replicates without a copy are one model."""
    by_seed: dict[int, Answered] = {}
    for twin in sorted(twins, key=lambda twin: (twin.seed, twin.cell.cell.swapped, twin.cell.name)):
        by_seed.setdefault(twin.seed, twin)
    return list(by_seed.values())


def _column(table: pd.DataFrame, name: str, items: pd.DataFrame) -> Results:
    values = table.set_index("example_id")[name].reindex(items["example_id"])
    return np.asarray(values, np.float64)


def _losses(cell: AuditedCell, items: pd.DataFrame) -> Results:
    """Returns a cell's scores of the items by the method loss; NaN if it was not scored by it."""
    scores = cell.cell.scores[CONTAMINATED]
    column = next((key for key in scores if key[0] == "loss"), None)
    if column is None:
        return np.full(len(items), np.nan)
    values = pd.Series(scores[column].to_numpy(np.float64), cell.cell.examples["example_id"])
    return np.asarray(values.reindex(items["example_id"]), np.float64)


def items_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Returns one row per contaminated cell and item, with its clean twin's results beside it."""
    rows = []
    for group in groups:
        family = group.family
        for k, cell in enumerate(group.cells):
            twins = {
                measure: group.results(measure).twin[group.seeds.index(cell.cell.seed)]
                for measure in MEASURES
            }
            rows.append(
                family.items.assign(
                    condition=group.name,
                    seed=cell.cell.seed,
                    swapped=cell.cell.swapped,
                    occurrences=group.doses[k],
                    **{measure: group.answers[measure][k] for measure in MEASURES},
                    **{f"twin_{measure}": twin for measure, twin in twins.items()},
                )
            )
    return pd.concat(rows, ignore_index=True)
