"""Means and AUROC with bootstrap draws over texts: all chunks of a text are drawn together.

All models are estimated on the same units and the same draws, so that differences between models
are paired. If every benchmark has at least MIN_TEXTS members and MIN_TEXTS non-members, an estimate
is the mean over benchmarks; otherwise all texts are pooled.

Shapes: D draws, U units (chunks, or questions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, mean_estimate
from contamination.core.statistics.samples import LabelledUnits, Mask, UnitSample
from contamination.detection.evaluation import DRAWS

MIN_TEXTS = 8
"""The minimum number of members, and of non-members, of a benchmark: draws from fewer texts vary
too little."""
UNITS = ("text_id", "benchmark", "member")
"""The columns that describe a unit: its text, its benchmark, and whether it is a member."""


class AuditUnits:
    """The units that models are compared on, and their bootstrap draws.

    Args:
        table: one row per unit, with the columns `UNITS`.
        seed: the seed of the draws.
    """

    def __init__(self, table: pd.DataFrame, seed: int) -> None:
        self.table = table.reset_index(drop=True)
        self._seed = seed
        self.sides = {True: self._label_mask(True), False: self._label_mask(False)}
        """The masks of the members (True) and of the non-members (False)."""
        self.benchmarks = [*self._iter_benchmarks()]

    @property
    def has_both_labels(self) -> bool:
        """Whether there are members and non-members."""
        return all(mask.any() for mask in self.sides.values())

    def count_texts(self, *, with_controls: bool) -> int:
        """Returns the number of member texts, or of non-member texts if these are fewer.

        Args:
            with_controls: whether non-members count; otherwise only members do.
        """
        sides = (True, False) if with_controls else (True,)
        return min(self._count_texts_in_mask(self.sides[side]) for side in sides)

    def label_mean(self, values: Scores, member: bool) -> Estimate:
        """Returns the mean of the members, or of the non-members."""
        samples = [
            benchmark.members if member else benchmark.nonmembers for benchmark in self.benchmarks
        ]
        return _mean_over_benchmarks([sample.mean(values) for sample in samples])

    def auroc(self, values: Scores) -> Estimate:
        """Returns the AUROC of members against non-members."""
        return _mean_over_benchmarks([benchmark.auroc(values) for benchmark in self.benchmarks])

    def mean_in_mask(
        self, values: Scores, mask: Mask, draw_name: str, *, rate: bool = False
    ) -> Estimate | None:
        """Returns the mean over the units of a mask, all benchmarks together; None without units.

        Args:
            values: the values of all units.
            mask: the selected units.
            draw_name: the name of the draws: masks with the same name and size have the same draws.
            rate: whether the values are 0 or 1, so that the mean is a rate.
        """
        return self._draw_sample(mask, draw_name).mean(values, rate=rate) if mask.any() else None

    def _count_texts_in_mask(self, mask: Mask) -> int:
        return int(self.table.loc[mask, "text_id"].nunique())

    def _label_mask(self, member: bool) -> Mask:
        mask: Mask = (self.table["member"].fillna(not member) == member).to_numpy(bool)
        return mask

    def _iter_benchmarks(self) -> Iterator[LabelledUnits]:
        benchmark_names = self.table["benchmark"].to_numpy()
        masks = [benchmark_names == name for name in np.unique(benchmark_names)]
        text_counts = [
            self._count_texts_in_mask(mask & side) for mask in masks for side in self.sides.values()
        ]
        if min(text_counts, default=MIN_TEXTS) < MIN_TEXTS:
            masks = [np.ones(len(benchmark_names), bool)]
        for number, mask in enumerate(masks):
            members, nonmembers = (
                self._draw_sample(mask & self.sides[member], f"{side} {number}")
                for member, side in ((True, "members"), (False, "non-members"))
            )
            yield LabelledUnits(members, nonmembers)

    def _draw_sample(self, mask: Mask, draw_name: str) -> UnitSample:
        text_ids = self.table["text_id"].to_numpy(str)
        return UnitSample.draw(mask, text_ids, DRAWS, derive_seed(self._seed, "audit", draw_name))


def _mean_over_benchmarks(estimates: Sequence[Estimate]) -> Estimate:
    return estimates[0] if len(estimates) == 1 else mean_estimate(estimates)
