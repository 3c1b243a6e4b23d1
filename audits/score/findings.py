"""Intervals of the corrected scores, ConStat's test, and the warnings that the items give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from contamination.audits.score.constat import bootstrap_p_value
from contamination.audits.score.estimation import (
    CONSTAT,
    FEWEST_TO_PREDICT,
    IMPUTATION,
    MEMBER,
    NAIVE,
    NONMEMBER,
    UNKNOWN,
    Items,
    ScoreEstimates,
)

Values = NDArray[np.float64]
FEW_SPIKED = 10
"""Fewer known members or non-members are a warning: the paper's claim begins there."""
FEW_MODELS = 4
"""Fewer reference models are a warning."""
LEVEL = 0.05
"""Of the tests whose result is a warning."""


@dataclass(frozen=True)
class CorrectedScore:
    """One estimate with its interval, and its paired difference from the observed score.

    Attributes:
        name: the estimator.
        value: the corrected score, from 0 to 1.
        low: the lower end of its interval.
        high: the upper end.
        inflation: the observed score less this one.
        inflation_low: the lower end of its paired interval.
        inflation_high: the upper end.
    """

    name: str
    value: float
    low: float
    high: float
    inflation: float
    inflation_low: float
    inflation_high: float


@dataclass(frozen=True)
class Findings:
    """The results of the audit.

    Attributes:
        scores: the observed score first.
        confidence: of the intervals.
        constat_p: the p-value of ConStat's δ ≤ 0, or None without reference models.
        warnings: reasons to trust the scores less.
    """

    scores: list[CorrectedScore]
    confidence: float
    constat_p: float | None
    warnings: list[str]


def summarize(
    items: Items, estimates: ScoreEstimates, confidence: float, chance: float | None
) -> Findings:
    """Returns the intervals, the test and the warnings.

    Args:
        items: the table.
        estimates: the corrected scores and their draws.
        confidence: of the intervals.
        chance: the accuracy of guessing, or None.
    """
    naive, naive_draws = estimates.values[NAIVE], estimates.draws[NAIVE]
    scores = [
        CorrectedScore(
            name,
            value,
            *_interval(estimates.draws[name], confidence),
            naive - value,
            *_interval(naive_draws - estimates.draws[name], confidence),
        )
        for name, value in estimates.values.items()
    ]
    p_value = None
    if CONSTAT in estimates.values:
        delta_draws = naive_draws - estimates.draws[CONSTAT]
        p_value = bootstrap_p_value(naive - estimates.values[CONSTAT], delta_draws)
    warnings = [*_warnings(items, estimates, scores[0], chance)]
    return Findings(scores, confidence, p_value, warnings)


def _interval(draws: Values, confidence: float) -> tuple[float, float]:
    """Returns the percentile interval."""
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _warnings(
    items: Items, estimates: ScoreEstimates, observed: CorrectedScore, chance: float | None
) -> Iterator[str]:
    if chance is not None and observed.low <= chance:
        yield (
            f"**Accuracy near chance.** The interval of the observed score begins at "
            f"{observed.low:.3f}, and guessing gives {chance:g}: a model that can't answer shows "
            "little inflation in its accuracy. Compare the log-probability of the answers as well."
        )
    unknown = items.correct[items.role == UNKNOWN]
    if np.ptp(unknown) == 0:
        yield (
            f"**All answers are alike.** Each of {len(unknown)} items of unknown membership has "
            f"correctness {unknown[0]:g}, so the intervals of naive, IPW and EPG-IPW have no "
            "width, which says nothing of their error. Give more items, or easier or harder ones."
        )
    counts = {role: items.count(role) for role in (MEMBER, NONMEMBER)}
    for role, count in counts.items():
        if count < FEW_SPIKED:
            yield f"**Few spiked examples.** {count} known {role}s: give {FEW_SPIKED} or more."
    if np.quantile(estimates.slope_draws, LEVEL) <= 0:
        yield (
            "**The membership score does not tell the spiked examples apart.** Its calibration has "
            "a slope of 0 or less in more than 5% of the draws. IPW and EPG-IPW then correct for "
            "nothing, and the share of members can't be estimated: give another method's scores."
        )
    yield from _difficulty_warnings(items, estimates)
    if items.references is not None and items.references.shape[1] < FEW_MODELS:
        yield (
            f"**Few reference models.** {items.references.shape[1]}: ConStat's interval can't show "
            f"how much such models differ. Give {FEW_MODELS} or more."
        )
    if items.references is not None and IMPUTATION not in estimates.values:
        yield (
            f"**No prediction of clean correctness.** It takes {FEWEST_TO_PREDICT} known "
            "non-members to fit it on the reference models."
        )


def _difficulty_warnings(items: Items, estimates: ScoreEstimates) -> Iterator[str]:
    """Warns if membership, or the membership score, goes with how difficult the items are."""
    held_out = items.role == NONMEMBER
    correlation, p_value = _rank_correlation(items.score[held_out], items.correct[held_out])
    if p_value < LEVEL:
        yield (
            "**The membership score goes with difficulty.** Among the known non-members its rank "
            f"correlation with correctness is {correlation:.2f} (p = {p_value:.2g}): IPW and "
            "EPG-IPW change the score even without contamination."
        )
    if estimates.predicted is None:
        yield (
            "**Whether contamination goes with difficulty can't be checked.** It takes predicted "
            "clean correctness or reference models. If it does, IPW and EPG-IPW are biased."
        )
        return
    correlation, p_value = _rank_correlation(estimates.membership, estimates.predicted)
    if p_value < LEVEL:
        harder = "harder" if correlation < 0 else "easier"
        direction = "high" if correlation < 0 else "low"
        yield (
            f"**Contamination goes with difficulty.** Among the items of unknown membership likely "
            f"members are {harder} (rank correlation with ĉ {correlation:.2f}, p = {p_value:.2g}): "
            f"IPW and EPG-IPW are too {direction}. Prefer imputation or the combined score."
        )


def _rank_correlation(first: Values, second: Values) -> tuple[float, float]:
    """Returns Spearman's correlation and its p-value; 0 and 1 if a side is constant."""
    if len(first) < FEW_SPIKED or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0, 1.0
    result = spearmanr(first, second)
    return float(result.statistic), float(result.pvalue)
