"""Do scores rise with the dose? A one-sided test among the members that were inserted.

Non-members and members with 0 occurrences stay out: members score above them at any dose,
so with them a shift that is the same at every dose would pass for a trend.

In each stratum (a cell's inserted members of one benchmark) Kendall's τ-b and the z of its test,
which is the Jonckheere-Terpstra test with ties. Over strata of n members the z are summed with √n
as weights (Stouffer; Lipták 1958): z = Σ √n z / √(d Σ n). Seeds with the same examples at the
same doses are no independent replicates. The design effect d (Kish 1965) is how much larger that
makes the sum's variance, by the examples' shares in it, which add up over the strata:
d = Σ_i (Σ_s r_is)² / Σ_i Σ_s r_is², where r_is is the product of example i's standardised ranks of
dose and score in stratum s. It is 1 where no example recurs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED, Cell
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import ALL_BENCHMARKS

LEAST = 3
"""Members of a stratum: τ of two has no distribution to speak of."""


class Detector(NamedTuple):
    """Whose AUROC it is."""

    benchmark: str
    method: str
    variant: str


class Stratum(NamedTuple):
    """The trend in one stratum of n members; all zeros where the scores are equal."""

    examples: NDArray[Any]
    """Their ids (n)."""
    tau: float
    z: float
    shares: Scores
    """Each example's standardised rank of the dose times that of the score (n)."""


def dose_tests(cells: Sequence[Cell]) -> Mapping[Detector, tuple[float, float]]:
    """τ and one-sided p of each detector over the strata with several doses.

    "all" is over benchmarks as well. A detector without such a stratum has no test.
    """
    strata: dict[Detector, list[Stratum]] = defaultdict(list)
    for cell in cells:
        table = cell.scores[CONTAMINATED]
        for benchmark, rows in _rows_with_several_doses(cell.examples):
            examples = cell.examples["example_id"].to_numpy()[rows]
            dose = cell.examples["occurrences"].to_numpy()[rows]
            for method, variant in table.columns:
                scores = table[method, variant].to_numpy(np.float64)[rows]
                trend_of_stratum = make_stratum(examples, dose, scores)
                strata[Detector(benchmark, method, variant)].append(trend_of_stratum)
                strata[Detector(ALL_BENCHMARKS, method, variant)].append(trend_of_stratum)
    return {detector: joint_test(method_strata) for detector, method_strata in strata.items()}


def make_stratum(examples: NDArray[Any], dose: Any, scores: Scores) -> Stratum:
    """One stratum's τ-b between doses and scores (n each: LEAST or more, not all of one dose).

    Its z is S over its standard deviation where there is no trend. An exact p of a few examples
    is 1 for the reversed order: no z, and one such stratum would outweigh all others.
    """
    from scipy.special import ndtri
    from scipy.stats import kendalltau

    if np.ptp(scores) == 0:
        return Stratum(examples, 0.0, 0.0, np.zeros(len(scores)))
    test = kendalltau(dose, scores, method="asymptotic")
    z = float(np.sign(test.statistic) * -ndtri(np.clip(test.pvalue, 1e-300, 1) / 2))
    return Stratum(
        examples, float(test.statistic), z, _standardised_ranks(dose) * _standardised_ranks(scores)
    )


def joint_test(strata: Sequence[Stratum]) -> tuple[float, float]:
    """The mean τ, weighted by the strata's sizes, and the one-sided p of them all."""
    from scipy.special import ndtr

    stratum_sizes = np.array([len(stratum.examples) for stratum in strata])
    tau, z = (np.array([getattr(stratum, name) for stratum in strata]) for name in ("tau", "z"))
    total = (np.sqrt(stratum_sizes) @ z) / np.sqrt(design_effect(strata) * stratum_sizes.sum())
    return float(np.average(tau, weights=stratum_sizes)), float(ndtr(-total))


def design_effect(strata: Sequence[Stratum]) -> float:
    """How much examples that recur raise the variance of the strata's sum; 1 where none does."""
    shares = np.concatenate([stratum.shares for stratum in strata])
    _, example = np.unique(
        np.concatenate([stratum.examples for stratum in strata]), return_inverse=True
    )
    without_recurrence = float((shares**2).sum())
    return (
        float((np.bincount(example, shares) ** 2).sum()) / without_recurrence
        if without_recurrence
        else 1.0
    )


def _rows_with_several_doses(examples: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Each benchmark's rows of inserted members: 3 or more, not all of the same dose."""
    inserted = examples["member"].to_numpy(bool) & (examples["occurrences"].to_numpy() > 0)
    for benchmark in sorted(set(examples["benchmark"])):
        rows = np.flatnonzero(inserted & (examples["benchmark"] == benchmark).to_numpy())
        if len(rows) >= LEAST and examples["occurrences"].iloc[rows].nunique() > 1:
            yield benchmark, rows


def _standardised_ranks(values: Any) -> Scores:
    """Mid-ranks with mean 0 and variance 1."""
    from scipy.stats import rankdata

    ranks = rankdata(values)
    standard: Scores = (ranks - ranks.mean()) / ranks.std()
    return standard
