"""The forget ratio, and the ratio screen for chunks that an unlearned model still knows.

The forget ratio is how far unlearning moved a number from the original model's to a clean twin's:

    forget ratio = (original − unlearned) / (original − clean)

It is 0 for a model like the original, and 1 for a model like one that was never trained on the
texts. Its interval is Fieller's (1954) for a ratio of two means, with the variances and covariance
of the paired bootstrap draws and Student's t. It covers the true ratio in 92 to 97% of simulations
with 20 texts or more; percentiles of the draws' ratios do so only if the denominator is far from 0.

The ratio screen is that of Shi et al. (2024, section 7.1): a chunk is suspicious if its score after
unlearning is nearly the same as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate
from contamination.detection.evaluation import CONFIDENCE

SAME = "original ≈ clean"
"""The reason for no estimate if the denominator is not distinguishable from 0."""
MIN_DENOMINATOR = 1e-5
"""The minimum denominator in standard deviations over texts, about the precision of float32."""


@dataclass(frozen=True)
class ForgetRatio:
    """A forget ratio with its interval.

    Attributes:
        value: the estimate; NaN if it can't be estimated.
        low: the lower end of the interval; NaN if it can't be estimated.
        high: the upper end of the interval; NaN if it can't be estimated.
        reason: why it can't be estimated; empty if it can.
    """

    value: float
    low: float
    high: float
    reason: str = ""


def forget_ratio(
    estimates: Sequence[Estimate], text_count: int, confidence: float = CONFIDENCE
) -> ForgetRatio:
    """Returns the forget ratio of a quantity, with Fieller's interval.

    Args:
        estimates: the quantity (such as the members' mean score) for the original, the unlearned
            model and the clean twin, on the same draws.
        text_count: the number of texts that were drawn.
        confidence: the coverage of the interval.
    """
    from scipy.stats import t as student  # slow to import

    original, unlearned, clean = estimates
    numerator, denominator = original.value - unlearned.value, original.value - clean.value
    draws = np.stack([original.draws - unlearned.draws, original.draws - clean.draws])
    if text_count < 2 or not np.isfinite(draws).all():
        return ForgetRatio(np.nan, np.nan, np.nan, "fewer than 2 texts")
    covariance_matrix = np.cov(draws) * text_count / (text_count - 1)
    quantile = float(student.ppf((1 + confidence) / 2, text_count - 1))
    limits = fieller_interval(numerator, denominator, covariance_matrix, quantile)
    if (
        limits is None
        or denominator <= MIN_DENOMINATOR * np.sqrt(text_count) * original.draws.std()
    ):
        return ForgetRatio(np.nan, np.nan, np.nan, SAME)
    return ForgetRatio(numerator / denominator, *limits)


def fieller_interval(
    numerator: float, denominator: float, covariance: np.ndarray, quantile: float
) -> tuple[float, float] | None:
    """Returns the interval of all θ with (numerator − θ·denominator)² ≤ quantile² · its variance.

    Args:
        numerator: the estimated numerator.
        denominator: the estimated denominator.
        covariance: the covariance matrix of both (2 × 2).
        quantile: the quantile of Student's t.

    Returns:
        The ends of the interval; None if the denominator is not distinguishable from 0, so that θ
        is unbounded.
    """
    (var_numerator, cov), (_, var_denominator) = covariance * quantile**2
    a = denominator**2 - var_denominator
    b = numerator * denominator - cov
    c = numerator**2 - var_numerator
    if a <= 1e-12 * denominator**2:
        return None
    root = float(np.sqrt(max(0.0, b**2 - a * c)))
    return float((b - root) / a), float((b + root) / a)


def score_ratios(before: Scores, after: Scores) -> Scores:
    """Returns the scores after unlearning divided by those before; 1 where both are 0."""
    both_zero = (before == 0) & (after == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Scores = np.where(both_zero, 1.0, after / before)
    return ratios


def suspicious_mask(ratios: Scores, max_ratio: float) -> NDArray[np.bool_]:
    """Returns whether each ratio is in the open interval (1 / max_ratio, max_ratio)."""
    mask: NDArray[np.bool_] = (ratios > 1 / max_ratio) & (ratios < max_ratio)
    return mask


@dataclass(frozen=True)
class ScreenResult:
    """The result of the screen for one unlearned model.

    A rate is None if the labels or the clean twin that it needs are missing.

    Attributes:
        suspicious: which chunks are suspicious.
        share: the share of suspicious chunks among all chunks.
        precision: the share of members among suspicious chunks.
        recall: the share of suspicious chunks among members.
        false_alarms: the share of suspicious chunks among non-members.
        members: the share of members among all chunks: the precision of an uninformative screen.
        recall_of_known: the share of suspicious chunks among the members that the model still knows
            (`still_known_mask`).
        known: the number of members that the model still knows.
    """

    suspicious: NDArray[np.bool_]
    share: Estimate | None
    precision: Estimate | None
    recall: Estimate | None
    false_alarms: Estimate | None
    members: Estimate | None
    recall_of_known: Estimate | None
    known: int | None

    def iter_named_rates(self) -> Iterator[tuple[str, Estimate | None]]:
        """Yields every rate with the name of its column."""
        yield "share", self.share
        yield "precision", self.precision
        yield "members", self.members
        yield "recall", self.recall
        yield "false_alarms", self.false_alarms
        yield "kept", self.recall_of_known


def apply_ratio_screen(
    units: AuditUnits,
    original_scores: Scores,
    unlearned_scores: Scores,
    clean_scores: Scores | None,
    max_ratio: float,
) -> ScreenResult:
    """Applies the ratio screen, and computes its rates if there are labels.

    Args:
        units: the chunks.
        original_scores: the scores of the chunks by the original model.
        unlearned_scores: the scores by the unlearned model.
        clean_scores: the scores by the clean twin, or None.
        max_ratio: a ratio between 1 / max_ratio and max_ratio is suspicious.
    """
    flagged = suspicious_mask(score_ratios(original_scores, unlearned_scores), max_ratio)
    flags, member, nonmember = flagged.astype(float), units.sides[True], units.sides[False]
    known_members = (
        None
        if clean_scores is None
        else member & still_known_mask(original_scores, unlearned_scores, clean_scores)
    )
    rates: dict[str, Any] = dict.fromkeys(("precision", "recall", "false_alarms", "members"))
    if units.has_both_labels:
        labelled = member | nonmember
        is_member = member.astype(float)
        rates = {
            "precision": units.mean_in_mask(is_member, flagged & labelled, "suspicious", rate=True),
            "members": units.mean_in_mask(is_member, labelled, "labelled", rate=True),
            "recall": units.mean_in_mask(flags, member, "members", rate=True),
            "false_alarms": units.mean_in_mask(flags, nonmember, "non-members", rate=True),
        }
    return ScreenResult(
        suspicious=flagged,
        share=units.mean_in_mask(flags, np.ones(len(flags), bool), "all", rate=True),
        recall_of_known=None
        if known_members is None
        else units.mean_in_mask(flags, known_members, "known", rate=True),
        known=None if known_members is None else int(known_members.sum()),
        **rates,
    )


def still_known_mask(before: Scores, after: Scores, clean: Scores) -> NDArray[np.bool_]:
    """Returns which chunks the unlearned model still knows.

    These are the chunks that the original model scores above the clean twin, and whose score after
    unlearning is nearer to the original's than to the twin's.
    """
    mask: NDArray[np.bool_] = (before > clean) & (after > (before + clean) / 2)
    return mask
