"""Do scores rise with the dose? The Jonckheere-Terpstra test with ties, through Kendall's τ-b."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.cells import CONTAMINATED, Cell
from analysis.inference.results import ALL
from core.metrics import Scores


class Detector(NamedTuple):
    """Whose AUROC it is."""

    benchmark: str
    method: str
    variant: str


def dose_tests(cells: Sequence[Cell]) -> Mapping[Detector, tuple[float, float]]:
    """τ and one-sided p of each detector, stratified by cell; "all" by benchmark as well."""
    strata: dict[Detector, list[tuple[float, float, int]]] = defaultdict(list)
    for cell in cells:
        examples, table = cell.examples, cell.scores[CONTAMINATED]
        member = examples["member"].to_numpy(bool)
        dose = np.where(member, examples["occurrences"].to_numpy(), 0)
        names = examples["benchmark"].to_numpy()
        for benchmark in sorted(set(names)):
            rows = np.flatnonzero((names == benchmark) & (~member | (dose > 0)))
            if len(set((dose[rows] > 0).tolist())) < 2:  # as in `groups`: nothing to compare
                continue
            for method, variant in table.columns:
                scores = table[method, variant].to_numpy(np.float64)[rows]
                stratum = (*kendall(dose[rows], scores), len(rows))
                strata[Detector(benchmark, method, variant)].append(stratum)
                strata[Detector(ALL, method, variant)].append(stratum)
    return {detector: stratified(parts) for detector, parts in strata.items()}


def kendall(dose: Any, scores: Scores) -> tuple[float, float]:
    """τ-b and the p-value of scores that rise with the dose.

    (0, ½) where all scores are equal: they say nothing.
    """
    from scipy.stats import kendalltau

    if np.ptp(scores) == 0:
        return 0.0, 0.5
    test = kendalltau(dose, scores, alternative="greater")
    return float(test.statistic), float(test.pvalue)


def stratified(parts: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """The mean τ and Stouffer's p of independent strata, weighted by their size."""
    from scipy.stats import combine_pvalues

    tau, p_value, sizes = map(np.array, zip(*parts, strict=True))
    if len(parts) == 1:
        return float(tau[0]), float(p_value[0])
    bounded = np.clip(p_value, 1e-300, 1 - 1e-15)
    joint = combine_pvalues(bounded, method="stouffer", weights=np.sqrt(sizes))
    return float(np.average(tau, weights=sizes)), float(joint.pvalue)
