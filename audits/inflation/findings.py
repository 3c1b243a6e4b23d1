"""The findings: effects by condition, copies and benchmark; the null; clean accuracy and chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.inflation.detectability import detectability_rows
from contamination.audits.inflation.effects import (
    EFFECTS,
    SPILLOVER,
    Effect,
    Flags,
    Results,
    mean_effect,
    null_effects,
)
from contamination.audits.inflation.inputs import ACCURACY, MEASURES, Family, Group
from contamination.core.statistics.estimates import ALL_BENCHMARKS


@dataclass(frozen=True)
class InflationFindings:
    """The findings on all contaminated conditions.

    Attributes:
        groups: the conditions.
        confidence: of the intervals.
        choose_seed: the seed on which candidates for blind spots are chosen; None: the lowest.
    """

    groups: Sequence[Group]
    confidence: float
    choose_seed: int | None = None

    @cached_property
    def families(self) -> list[Family]:
        """The families of clean twins, each once."""
        return list({id(group.family): group.family for group in self.groups}.values())

    @cached_property
    def effects(self) -> pd.DataFrame:
        """One row per condition, copies, benchmark, measure and effect.

        Columns: condition, learning_rate, form, stage, occurrences, benchmark, measure, effect,
        value, low, high, seeds, items. The spillover of cells whose members have several numbers of
        copies is that of all of them together.
        """
        return pd.DataFrame(row for group in self.groups for row in self._effect_rows(group))

    def _effect_rows(self, group: Group) -> Iterator[dict[str, Any]]:
        for measure in MEASURES:
            results = group.results(measure)
            for effect in EFFECTS:
                values = results.effect(effect)
                for dose in group.dose_levels:
                    # items that were left out belong to no number of copies
                    is_chosen = (group.inserted_doses == dose) | (effect == SPILLOVER)
                    chosen = np.where(is_chosen, values, np.nan)
                    about = {**_about(group), "occurrences": dose, "measure": measure}
                    for benchmark, mean in self._means(chosen, group.family):
                        yield {**about, "benchmark": benchmark, "effect": effect, **asdict(mean)}

    def _means(self, values: Results, family: Family) -> Iterator[tuple[str, Effect]]:
        """Yields the mean over each benchmark, and over all if there are several."""
        for name, mask in _benchmark_masks(family):
            yield name, mean_effect(values[:, mask], family.benchmarks[mask], self.confidence)

    @cached_property
    def null(self) -> pd.DataFrame:
        """Clean twins against one another, by family: the columns of `effects` without copies."""
        return pd.DataFrame(
            {
                "condition": family.name,
                "benchmark": benchmark,
                "measure": measure,
                "effect": effect,
                **asdict(mean),
            }
            for family in self.families
            if len(family.seeds) > 1
            for measure in MEASURES
            for effect, values in null_effects(family.results[measure], family.members).items()
            for benchmark, mean in self._means(values, family)
        )

    @cached_property
    def clean(self) -> pd.DataFrame:
        """One row per family and benchmark: the clean twins' accuracy, chance, and their distance.

        Columns: condition, benchmark, value, low, high (accuracy), chance, items, seeds and
        at_chance, whether the interval of the accuracy less chance includes 0. Where answers are
        free chance is 0, and at_chance says that none or hardly any is right.
        """
        rows = []
        for family in self.families:
            chance = family.items["chance"].to_numpy(np.float64)
            accuracy = family.results[ACCURACY]
            above = dict(self._means(accuracy - chance, family))
            for name, mask in _benchmark_masks(family):
                mean = dict(self._means(accuracy, family))[name]
                level = mean.value - above[name].value
                rows.append(
                    {
                        "condition": family.name,
                        "benchmark": name,
                        **asdict(mean),
                        "chance": level,
                        "free": bool((chance[mask] == 0).all()),
                        "at_chance": not (above[name].low > 0 or above[name].high < 0),
                    }
                )
        return pd.DataFrame(rows)

    @cached_property
    def detectability(self) -> pd.DataFrame:
        """See `detectability.detectability_rows`; empty without scores."""
        return pd.DataFrame(
            row
            for group in self.groups
            for row in detectability_rows(group, _about(group), self.confidence, self.choose_seed)
        )

    @property
    def lacking_replicates(self) -> list[str]:
        """The conditions without a direct effect: no seed has swapped replicates."""
        return [group.name for group in self.groups if not group.has_replicates]


def _about(group: Group) -> dict[str, Any]:
    return {
        "condition": group.name,
        "learning_rate": group.learning_rate,
        "form": group.form,
        "stage": group.stage,
    }


def _benchmark_masks(family: Family) -> Iterator[tuple[str, Flags]]:
    names = family.benchmarks
    yield from ((str(name), names == name) for name in dict.fromkeys(names))
    if len({*names}) > 1:
        yield ALL_BENCHMARKS, np.ones(len(names), bool)
