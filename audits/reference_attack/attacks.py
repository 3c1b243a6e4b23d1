"""The attacks by name, and the cells that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contamination.audits.reference_attack.bavaria import bavaria
from contamination.audits.reference_attack.lira import lira_offline, lira_online
from contamination.audits.reference_attack.moments import Flags, Floats
from contamination.audits.reference_attack.multivariate_lira import multivariate_lira
from contamination.audits.reference_attack.rmia import rmia
from contamination.audits.reference_attack.single_reference import single_reference
from contamination.audits.reference_attack.variances import PER_EXAMPLE, POOLED, SHRUNK


@dataclass(frozen=True)
class ReferenceCells:
    """K cells over one pool of N examples: what the attacks read.

    Attributes:
        phi: the statistic of each example under each model, shape (K, N).
        doses: the copies of each example in each cell, 0 for a non-member, shape (K, N).
        benchmarks: of the examples, shape (N,).
        clean: the statistic under the model before the training, which saw no example: (N,).
        lengths: the scored tokens of each example, shape (N,).
        tokens: the log-probabilities of each example's tokens, N arrays (K, T); empty: not
            stored.
    """

    phi: Floats
    doses: NDArray[np.int64]
    benchmarks: NDArray[np.str_]
    clean: Floats
    lengths: NDArray[np.int64]
    tokens: Sequence[Floats] = ()

    def sides(self, dose: int) -> tuple[Flags, Flags]:
        """Returns which cells saw which example at the dose, and which did not see it: (K, N)."""
        return self.doses == dose, self.doses == 0

    @property
    def dose_levels(self) -> list[int]:
        """The numbers of copies that members have, ascending."""
        return [int(dose) for dose in np.unique(self.doses) if dose > 0]

    def of_cells(self, cells: NDArray[np.intp]) -> ReferenceCells:
        """Returns some of the cells, by their positions."""
        return replace(
            self,
            phi=self.phi[cells],
            doses=self.doses[cells],
            tokens=[t[cells] for t in self.tokens],
        )

    def of_examples(self, columns: NDArray[np.intp]) -> ReferenceCells:
        """Returns some of the examples, by their positions."""
        return ReferenceCells(
            self.phi[:, columns], self.doses[:, columns], self.benchmarks[columns],
            self.clean[columns], self.lengths[columns],
            [self.tokens[column] for column in columns] if self.tokens else (),
        )  # fmt: skip


Attack = Callable[[ReferenceCells, Flags, Flags], Floats]
"""Scores the examples of one benchmark under each cell, given who was inside and outside."""

BAVARIA, MULTIVARIATE, SINGLE = "bavaria", "multivariate_lira", "single_reference"
ATTACKS: Mapping[str, Attack] = {
    BAVARIA: lambda c, inside, outside: bavaria(c.phi, inside, outside),
    MULTIVARIATE: lambda c, inside, outside: multivariate_lira(c.tokens, inside, outside),
    "lira_online_shrunk": lambda c, i, o: lira_online(c.phi, i, o, SHRUNK),
    "lira_online_pooled": lambda c, i, o: lira_online(c.phi, i, o, POOLED),
    "lira_online": lambda c, i, o: lira_online(c.phi, i, o, PER_EXAMPLE),
    "lira_offline_shrunk": lambda c, _, o: lira_offline(c.phi, o, SHRUNK),
    "lira_offline_pooled": lambda c, _, o: lira_offline(c.phi, o, POOLED),
    "lira_offline": lambda c, _, o: lira_offline(c.phi, o, PER_EXAMPLE),
    "rmia": lambda c, inside, outside: rmia(c.phi, inside, outside, gamma=1.0),
    SINGLE: lambda c, _, __: single_reference(c.phi, c.clean, c.lengths),
}  # fmt: skip


def attack_scores(name: str, cells: ReferenceCells, dose: int) -> Floats:
    """Returns an attack's scores of all examples under each cell, (K, N), benchmark by benchmark.

    Args:
        name: one of ATTACKS.
        cells: the cells.
        dose: the copies of a member that the attack looks for.
    """
    scores = np.zeros_like(cells.phi)
    for benchmark in np.unique(cells.benchmarks):
        columns = np.flatnonzero(cells.benchmarks == benchmark)
        part = cells.of_examples(columns)
        scores[:, columns] = ATTACKS[name](part, *part.sides(dose))
    return scores


def usable_attacks(cells: ReferenceCells) -> list[str]:
    """Returns the attacks for which the cells have what they need."""
    return [name for name in ATTACKS if cells.tokens or name != MULTIVARIATE]
