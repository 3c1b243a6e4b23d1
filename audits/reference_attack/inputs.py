"""Reads K cells that differ in their members alone: their scores, and their tokens where stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import CLEAN
from contamination.audits.cells import AuditedCell, named_apart
from contamination.audits.reference_attack.attacks import ReferenceCells
from contamination.audits.reference_attack.moments import Floats
from contamination.core.artifacts import is_complete, open_artifact
from contamination.core.errors import ConfigError
from contamination.detection.pass_store import KIND as PASSES
from contamination.detection.pass_store import StoredPass
from contamination.detection.passes import ORIGINAL, Copies
from contamination.injection.config import BERNOULLI

FEWEST_CELLS = 4
STATISTIC = "loss"
"""The method whose score is φ: a text's mean log-probability."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Condition:
    """Cells of one recipe, whose members were drawn independently.

    Attributes:
        name: the condition's name.
        cells: the cells, in the order of the rows of `references`.
        references: what the attacks read.
        methods: the scores of each method, by its name: shape (K, N) each.
        examples: one row per example: example_id, benchmark, text and more.
    """

    name: str
    cells: Sequence[AuditedCell]
    references: ReferenceCells
    methods: dict[str, Floats]
    examples: pd.DataFrame

    @property
    def learning_rate(self) -> float:
        """The peak learning rate of the contaminated training."""
        return self.cells[0].cell.learning_rate

    @property
    def has_coins(self) -> bool:
        """Whether independent coins drew the members of every cell, as a one-run bound needs."""
        configs = (cell.corpus.config["injection"] for cell in self.cells)
        return all(config.get("membership") == BERNOULLI for config in configs)


def read_conditions(field: str, cells: Sequence[AuditedCell]) -> list[Condition]:
    """Returns the cells' conditions, each with everything that was stored of its cells.

    Raises:
        ConfigError: a condition has fewer than four cells, cells of different pools, or members
            that were not drawn independently.
    """
    by_recipe: dict[str, list[AuditedCell]] = {}
    for cell in named_apart(cells):
        by_recipe.setdefault(cell.cell.recipe, []).append(cell)
    return [_read_condition(field, of_recipe) for of_recipe in by_recipe.values()]


def _read_condition(field: str, cells: Sequence[AuditedCell]) -> Condition:
    name = cells[0].cell.condition.replace("-swapped", "")
    _check_pools(field, name, cells)
    doses = np.stack([cell.doses for cell in cells])
    _check_independence(field, name, doses > 0)
    examples = cells[0].cell.examples
    names = [a for a in cells[0].attacks if all(a in cell.attacks for cell in cells)]
    stacked = {a: np.stack([cell.scores(field, a) for cell in cells]) for a in names}
    clean = cells[0].cell.scores[CLEAN][STATISTIC, ""].to_numpy(np.float64)
    references = ReferenceCells(
        np.stack([cell.scores(field, STATISTIC) for cell in cells]), doses,
        examples["benchmark"].to_numpy(str), clean,
        np.maximum(1, examples["n_tokens"].to_numpy(np.int64) - 1), _read_tokens(cells),
    )  # fmt: skip
    return Condition(name, cells, references, stacked, examples)


def _check_pools(field: str, name: str, cells: Sequence[AuditedCell]) -> None:
    if len(cells) < FEWEST_CELLS:
        raise ConfigError(
            f"{field}: {name} has {len(cells)} cells, and the reference attack needs at least "
            f"{FEWEST_CELLS} that differ in their seeds alone, better 16. Sweep `seed`."
        )
    columns = ["example_id", "benchmark", "text"]
    first = cells[0].cell.examples[columns]
    for cell in cells[1:]:
        if not cell.cell.examples[columns].equals(first):
            raise ConfigError(
                f"{field}: {cell.name} and {cells[0].name} have different pools of examples, so "
                "neither is a reference for the other. Give cells that share injection.pool_seed "
                "and the benchmarks."
            )


def _check_independence(field: str, name: str, member: NDArray[np.bool_]) -> None:
    """Checks that the other cells' members do not tell a target's."""
    distinct = {row.tobytes(): number for number, row in enumerate(member)}
    opposite = [number for number, row in enumerate(member) if (~row).tobytes() in distinct]
    balanced = np.unique(member.sum(axis=0))
    if opposite or len(balanced) == 1:
        why = (
            f"cells {opposite[0] + 1} and {distinct[(~member[opposite[0]]).tobytes()] + 1} are "
            "swapped replicates"
            if opposite
            else f"each example is a member of exactly {balanced[0]} of {len(member)} cells"
        )
        raise ConfigError(
            f"{field}: in {name} {why}, so that an example's other cells tell whether it is a "
            "member of the target, without any model. Give cells whose members were drawn "
            "independently (another seed each, injection.swap_members=false)."
        )
    if len(distinct) < len(member):
        raise ConfigError(
            f"{field}: in {name} two cells have the same members, so the one gives away the other. "
            "Give each cell another seed, and no injection.membership_seed."
        )


def _read_tokens(cells: Sequence[AuditedCell]) -> list[Floats]:
    """Returns the log-probabilities of each example's tokens, (K, T); [] if a pass is missing."""
    hashes = cells[0].cell.examples["text_sha256"].tolist()
    tokens: list[list[Floats]] = [[] for _ in hashes]
    for cell in cells:
        by_text = _read_pass(cell, hashes)
        if by_text is None:
            log.warning(
                "reference attack: no pass of %s is stored, so its tokens are not compared.",
                cell.name,
            )
            return []
        for of_text, sha256 in zip(tokens, hashes, strict=True):
            of_text.append(by_text[sha256][0].logprob.astype(np.float64))
    return [np.stack(of_text) for of_text in tokens]


def _read_pass(cell: AuditedCell, hashes: Sequence[str]) -> dict[str, Copies] | None:
    """Returns the stored pass of the cell's model over these texts; None: there is none."""
    scores = Path(cell.paths.contaminated)
    slug, folder = scores.name.rpartition("-")[0], scores.parent.parent / PASSES
    for path in sorted(folder.glob(f"{slug}-{ORIGINAL.view}-*")):
        if not is_complete(path):
            continue
        if open_artifact(path, PASSES).inputs.get("model") == cell.cell.digests["model"]:
            by_text = dict(StoredPass(path))
            if all(sha256 in by_text for sha256 in hashes):
                return by_text
    return None
