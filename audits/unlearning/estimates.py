"""Means, AUROC and their draws over texts: all chunks of a text are drawn together.

Every model is estimated on the same units and the same draws, so that each difference between
models is paired. Where every benchmark has LEAST members and as many non-members, a figure is the
mean over benchmarks; else all texts are one group.

Shapes: D draws, U units (chunks, or questions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Counts, Resample, Scores, draw_counts, rank
from contamination.core.statistics.estimates import Estimate, mean
from contamination.core.statistics.metrics import AUROC
from contamination.detection.evaluation import DRAWS

LEAST = 8
"""Texts of a side of a benchmark: draws from fewer vary too little, and from one not at all."""
Mask = NDArray[np.bool_]
UNITS = ("text_id", "benchmark", "member")
"""What a unit's row says: the text it is of, that one's benchmark, and whether it is a member."""


@dataclass(frozen=True)
class Side:
    """Some units of one group (`rows`, their places), and how often each is drawn (D×U)."""

    rows: NDArray[np.intp]
    drawn: Counts
    texts: int

    def mean(self, values: Scores, *, rate: bool = False) -> Estimate:
        """The mean over the units; that of a rate, 0 or 1, can be as certain as its texts allow."""
        own, totals = values[self.rows], self.drawn.sum(axis=1)
        trials = self.texts if rate else None
        return Estimate(self.texts, 0, float(own.mean()), self.drawn @ own / totals, trials)


@dataclass(frozen=True)
class Group:
    """The units of one benchmark, or of all: members, non-members."""

    members: Side
    nonmembers: Side

    def auroc(self, values: Scores) -> Estimate:
        """The AUROC of members against non-members."""
        sides = self.members, self.nonmembers
        own = [values[side.rows] for side in sides]
        ranked = rank(own[0], own[1], Resample(sides[0].drawn, sides[1].drawn))
        pairs = np.prod([side.drawn.sum(axis=1, dtype=np.float64) for side in sides], axis=0)
        draws = AUROC.draws(ranked) * (len(own[0]) * len(own[1])) / pairs
        texts = sides[0].texts, sides[1].texts
        assert AUROC.trials is not None
        return Estimate(*texts, AUROC.value(own[0], own[1]), draws, AUROC.trials(*texts))


class Units:
    """Units, one row each with `UNITS`, and their draws."""

    def __init__(self, table: pd.DataFrame, seed: int) -> None:
        self.table = table.reset_index(drop=True)
        self._seed = seed
        self.sides = {True: self._mask(True), False: self._mask(False)}
        self.groups = [*self._groups()]

    @property
    def labelled(self) -> bool:
        """Whether there are members and non-members."""
        return all(mask.any() for mask in self.sides.values())

    def texts(self, *, controls: bool) -> int:
        """How many texts are members, or are the fewer of them and the non-members (`controls`)."""
        sides = (True, False) if controls else (True,)
        return min(self._texts(self.sides[side]) for side in sides)

    def mean(self, values: Scores, member: bool) -> Estimate:
        """The mean of the members, or of the non-members."""
        sides = [group.members if member else group.nonmembers for group in self.groups]
        return _over([side.mean(values) for side in sides])

    def auroc(self, values: Scores) -> Estimate:
        """The AUROC of members against non-members."""
        return _over([group.auroc(values) for group in self.groups])

    def mean_of(
        self, values: Scores, mask: Mask, name: str, *, rate: bool = False
    ) -> Estimate | None:
        """The mean over the units of a mask, all benchmarks together; None: there are none.

        Args:
            values: of all units.
            mask: which units.
            name: of the draws: masks of one name and one size are drawn alike.
            rate: whether the values are 0 or 1.
        """
        return self._side(mask, name).mean(values, rate=rate) if mask.any() else None

    def _texts(self, mask: Mask) -> int:
        return int(self.table.loc[mask, "text_id"].nunique())

    def _mask(self, member: bool) -> Mask:
        found: Mask = (self.table["member"].fillna(not member) == member).to_numpy(bool)
        return found

    def _groups(self) -> Iterator[Group]:
        names = self.table["benchmark"].to_numpy()
        each = [names == name for name in np.unique(names)]
        sizes = [self._texts(own & mask) for own in each for mask in self.sides.values()]
        if min(sizes, default=LEAST) < LEAST:
            each = [np.ones(len(names), bool)]
        for number, own in enumerate(each):
            members, others = (
                self._side(own & self.sides[member], f"{side} {number}")
                for member, side in ((True, "members"), (False, "non-members"))
            )
            yield Group(members, others)

    def _side(self, mask: Mask, name: str) -> Side:
        rows = np.flatnonzero(mask)
        _, text = np.unique(self.table["text_id"].to_numpy(str)[rows], return_inverse=True)
        texts = int(text.max(initial=-1)) + 1
        drawn = draw_counts(max(1, texts), DRAWS, derive(self._seed, "audit", name))
        return Side(rows, drawn[:, text], texts)


def _over(groups: Sequence[Estimate]) -> Estimate:
    return groups[0] if len(groups) == 1 else mean(groups)


def minus(one: Estimate, other: Estimate) -> Estimate:
    """The difference, draw by draw; its interval is that of the draws."""
    draws = one.draws - other.draws
    return replace(one, value=one.value - other.value, draws=draws, trials=None, steps=None)
