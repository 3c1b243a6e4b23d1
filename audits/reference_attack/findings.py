"""Everything that the audit reports of one condition, as tables of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from contamination.audits.one_run_bound.guesses import AttackScores, GuessRule, bound
from contamination.audits.reference_attack.attacks import SINGLE, attack_scores, usable_attacks
from contamination.audits.reference_attack.hierarchy import expectations
from contamination.audits.reference_attack.inputs import Condition
from contamination.audits.reference_attack.moments import Floats
from contamination.audits.reference_attack.strength import (
    MeanOverCells,
    d_prime,
    limit_of_models,
    mean_auroc,
)
from contamination.audits.reference_attack.variances import SHRUNK
from contamination.core.statistics.metrics import fewest_examples, most_false_alarms

CONFIDENCE = 0.95
MODEL_COUNTS = (8, 16, 32, 64, 128)
"""The numbers of models whose AUROCs are extrapolated."""
DECISION_FPR = 0.05
"""The false-positive rate of the decisions whose stability is reported."""
GUESSED_SHARE = 0.25
"""The share of examples that the one-run bound guesses, named in advance."""


@dataclass(frozen=True)
class ConditionFindings:
    """The findings of one condition.

    Attributes:
        condition: its cells.
        reference: the attack that the others are compared with.
        share_above: shares of the reference's advantage are shown only where the lower end of its
            AUROC's interval is at least this.
        fpr: the false-positive rates at which true-positive rates are reported.
        delta: the δ of the one-run bounds.
    """

    condition: Condition
    reference: str
    share_above: float
    fpr: tuple[float, ...]
    delta: float

    @cached_property
    def scores(self) -> Mapping[tuple[str, int], Floats]:
        """The scores (K, N) of each attack and dose, and of each method (the same at all doses)."""
        cells = self.condition.references
        attacks = {
            (name, dose): attack_scores(name, cells, dose)
            for name in usable_attacks(cells)
            for dose in cells.dose_levels
        }
        methods = {
            (name, dose): scores
            for name, scores in self.condition.methods.items()
            for dose in cells.dose_levels
        }
        return {**attacks, **methods}

    @cached_property
    def aurocs(self) -> Mapping[tuple[str, int], MeanOverCells]:
        """The AUROC of each attack or method at each dose."""
        cells = self.condition.references
        return {
            (name, dose): mean_auroc(scores, *cells.sides(dose), cells.benchmarks)
            for (name, dose), scores in self.scores.items()
        }

    @cached_property
    def strengths(self) -> pd.DataFrame:
        """One row per dose and attack or method: AUROC, d′, and what it lacks to the reference."""
        return pd.DataFrame(
            {"condition": self.condition.name, **row} for row in self._iter_strengths()
        )

    def _iter_strengths(self) -> Iterator[dict[str, Any]]:
        for (name, dose), auroc in self.aurocs.items():
            reference = self.aurocs[self.reference, dose]
            low, high = auroc.interval(CONFIDENCE)
            ability = d_prime(auroc)
            lacking = d_prime(reference) - ability
            is_shown = reference.interval(CONFIDENCE)[0] >= self.share_above
            share = (auroc.value - 0.5) / (reference.value - 0.5) if is_shown else np.nan
            yield {
                "occurrences": dose,
                "attack": name,
                "reads_references": name not in self.condition.methods,
                "auroc": auroc.value, "auroc_low": low, "auroc_high": high,
                **_with_interval("d_prime", ability), **_with_interval("lacking", lacking),
                "share": share, **self._rates(name, dose),
            }  # fmt: skip

    def _rates(self, name: str, dose: int) -> dict[str, float]:
        """Returns the true-positive rates at thresholds over all cells, with errors over cells."""
        inside, outside = self.condition.references.sides(dose)
        scores, rates = self.scores[name, dose], dict[str, float]()
        for fpr in self.fpr:
            enough = outside.sum() >= fewest_examples(fpr)
            threshold = _threshold(scores[outside], fpr) if enough else np.nan
            hits = [
                float((row[seen] > threshold).mean())
                for row, seen in zip(scores, inside, strict=True)
                if enough and seen.any()
            ]
            finite = np.array(hits if len(hits) > 1 else [np.nan, np.nan])
            margin = norm.ppf((1 + CONFIDENCE) / 2) * finite.std(ddof=1) / np.sqrt(len(finite))
            value = float(finite.mean())
            name_of = f"tpr_at_fpr_{fpr:g}"
            rates |= {
                name_of: value,
                f"{name_of}_low": float(np.clip(value - margin, 0, 1)),
                f"{name_of}_high": float(np.clip(value + margin, 0, 1)),
            }
        return rates

    @cached_property
    def by_models(self) -> pd.DataFrame:
        """AUROC of each attack by the number of models, and its limit (models: infinity)."""
        return pd.DataFrame(
            {"condition": self.condition.name, **row} for row in self._iter_numbers_of_models()
        )

    def _iter_numbers_of_models(self) -> Iterator[dict[str, Any]]:
        cells = self.condition.references
        numbers = [number for number in MODEL_COUNTS if number < len(cells.phi)]
        numbers.append(len(cells.phi))
        for name in usable_attacks(cells):
            if name == SINGLE:  # which reads no other cell
                continue
            for dose in cells.dose_levels:
                about = {"occurrences": dose, "attack": name}
                means = [self._auroc_of_blocks(name, dose, number) for number in numbers]
                for number, mean in zip(numbers, means, strict=True):
                    low, high = mean.interval(CONFIDENCE)
                    auroc = {"auroc": mean.value, "auroc_low": low, "auroc_high": high}
                    yield {**about, "models": number, **auroc}
                if len(numbers) > 1:
                    limit = limit_of_models(numbers, means)
                    ends = limit.value, *limit.interval(CONFIDENCE)
                    names = ("auroc", "auroc_low", "auroc_high")
                    aurocs = (float(norm.cdf(end / np.sqrt(2))) for end in ends)
                    yield {**about, "models": np.inf, **dict(zip(names, aurocs, strict=True))}

    def _auroc_of_blocks(self, name: str, dose: int, number: int) -> MeanOverCells:
        """Returns the mean AUROC over disjoint blocks of so many cells, each a study of its own."""
        cells = self.condition.references
        if number == len(cells.phi):
            return self.aurocs[name, dose]
        value, deviations = [], np.zeros(len(cells.phi))
        influence, blocks = np.zeros_like(cells.phi), len(cells.phi) // number
        for block in range(blocks):
            rows = np.arange(block * number, (block + 1) * number)
            part = cells.of_cells(rows)
            scores = attack_scores(name, part, dose)
            mean = mean_auroc(scores, *part.sides(dose), cells.benchmarks)
            value.append(mean.value)
            influence[rows] = mean.influence / blocks
            deviations[rows] = mean.cells / blocks
        overall = float(np.mean(value))
        of_blocks = np.repeat((np.array(value) - overall) / blocks / number, number)
        deviations[: len(of_blocks)] += of_blocks
        return MeanOverCells(overall, deviations, influence)

    @cached_property
    def memorisation(self) -> pd.DataFrame:
        """One row per example and dose, the most memorised first.

        Counterfactual memorisation (Zhang et al. 2021, arXiv 2112.12938, equation 2): the mean
        statistic over the cells that saw the example less that over those that did not; here of the
        mean log-probability (nats per token). `shrunk` borrows from the other examples.
        """
        cells = self.condition.references
        # one more row, which is no cell: its references are all cells
        phi = np.vstack([cells.phi, cells.phi.mean(axis=0)])
        rows = []
        for dose in cells.dose_levels:
            inside, outside = (np.vstack([s, np.zeros(len(s[0]), bool)]) for s in cells.sides(dose))
            parts = []
            for benchmark in np.unique(cells.benchmarks):
                columns = np.flatnonzero(cells.benchmarks == benchmark)
                sides = phi[:, columns], inside[:, columns], outside[:, columns]
                parts.append(_memorisation_of(columns, *sides))
            table = pd.concat(parts).sort_values("position")
            names = ["example_id", "benchmark", "text"]
            about = self.condition.examples[names].reset_index(drop=True)
            numbers = table.drop(columns="position").reset_index(drop=True)
            rows.append(pd.concat([about, numbers], axis=1).assign(occurrences=dose))
        table = pd.concat(rows, ignore_index=True).assign(condition=self.condition.name)
        return table.sort_values("shrunk", ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def stability(self) -> pd.DataFrame:
        """One row per dose: how the reference's decisions on one example agree between cells.

        See Hayes et al. 2025, arXiv 2505.18773. Decisions are at a false-positive rate of
        DECISION_FPR over all cells and examples.
        """
        cells, rows = self.condition.references, []
        for dose in cells.dose_levels:
            inside, outside = cells.sides(dose)
            scores = self.scores[self.reference, dose]
            flagged = scores > _threshold(scores[outside], DECISION_FPR)
            hits, n_in = (flagged & inside).sum(axis=0), inside.sum(axis=0)
            alarms, n_out = (flagged & outside).sum(axis=0), outside.sum(axis=0)
            several = n_in > 1
            rate = hits[several] / n_in[several]
            overall = hits.sum() / n_in.sum()
            alarm_rate = alarms[n_out > 0] / n_out[n_out > 0]
            rows.append({
                "condition": self.condition.name, "occurrences": dose,
                "tpr": overall, "fpr": alarms.sum() / n_out.sum(),
                "agreement": _agreement(hits[several], n_in[several]),
                "agreement_if_alike": overall**2 + (1 - overall) ** 2,
                "found_never": float((rate == 0).mean()),
                "found_sometimes": float(((rate > 0) & (rate < 1)).mean()),
                "found_always": float((rate == 1).mean()),
                "alarm_rate_above_twice": float((alarm_rate > 2 * DECISION_FPR).mean()),
            })  # fmt: skip
        return pd.DataFrame(rows)

    @cached_property
    def bounds(self) -> pd.DataFrame:
        """One row per cell: the one-run bound by the reference attack and by its φ alone.

        Empty unless all members were drawn by coins and have the same number of copies. Each rule
        was fixed before the cell was looked at: the attack and a share of GUESSED_SHARE.
        """
        cells = self.condition.references
        if len(cells.dose_levels) != 1 or not self.condition.has_coins:
            return pd.DataFrame()
        dose, rows = cells.dose_levels[0], []
        for name in (self.reference, "loss"):
            rule = GuessRule(name, GUESSED_SHARE)
            for cell, row, inside in zip(
                self.condition.cells, self.scores[name, dose], cells.doses > 0, strict=True
            ):
                lower_bound = bound(
                    rule, AttackScores(name, row, cells.benchmarks), inside, self.delta, CONFIDENCE
                )
                rows.append({
                    "condition": self.condition.name, "occurrences": dose, "cell": cell.name,
                    "attack": name, "epsilon": lower_bound.epsilon, "p_value": lower_bound.p_value,
                    "guesses": lower_bound.guesses, "correct": lower_bound.correct,
                    "most": lower_bound.most, "delta": self.delta, "confidence": CONFIDENCE,
                })  # fmt: skip
        return pd.DataFrame(rows)


def _with_interval(name: str, mean: MeanOverCells) -> dict[str, float]:
    low, high = mean.interval(CONFIDENCE)
    return {name: mean.value, f"{name}_low": low, f"{name}_high": high}


def _threshold(nonmembers: Floats, fpr: float) -> float:
    """Returns the lowest threshold that at most so large a share of non-members exceeds."""
    return float(np.sort(nonmembers)[::-1][most_false_alarms(len(nonmembers), fpr)])


def _agreement(hits: NDArray[np.intp], trials: NDArray[np.intp]) -> float:
    """Returns the chance that two cells decide alike on an example: its unbiased estimate."""
    misses = trials - hits
    alike = hits * (hits - 1) + misses * (misses - 1)
    return float((alike / (trials * (trials - 1))).mean()) if len(trials) else np.nan


def _memorisation_of(
    columns: NDArray[np.intp], phi: Floats, inside: NDArray[np.bool_], outside: NDArray[np.bool_]
) -> pd.DataFrame:
    """Returns the memorisation of one benchmark's examples; the last row is no cell."""
    raw = expectations(phi, inside, outside, SHRUNK, shrinks_shifts=False)
    shrunk = expectations(phi, inside, outside, SHRUNK, shrinks_shifts=True)
    n_in, n_out = inside.sum(axis=0), outside.sum(axis=0)
    noise = raw.inside.variance[-1] / np.maximum(n_in, 1)
    noise = noise + raw.outside.variance[-1] / np.maximum(n_out, 1)
    is_known = (n_in > 0) & (n_out > 0)
    return pd.DataFrame({
        "position": columns,
        "mean_in": np.where(n_in > 0, raw.inside.mean[-1], np.nan),
        "mean_out": np.where(n_out > 0, raw.outside.mean[-1], np.nan),
        "memorisation": np.where(is_known, (raw.inside.mean - raw.outside.mean)[-1], np.nan),
        "standard_error": np.where(is_known, np.sqrt(noise), np.nan),
        "shrunk": (shrunk.inside.mean - shrunk.outside.mean)[-1],
        "cells_in": n_in, "cells_out": n_out,
    })  # fmt: skip
