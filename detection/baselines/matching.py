"""What a method adds to the texts: AUROC after matching on what the texts alone reveal.

Members and non-members are weighted so that the texts alone no longer distinguish them. Each text
has two covariates that need no model: its blind score (`baselines.blind`), and its score of the
method as predicted from the other texts' scores (`baselines.classifiers.StyleRegression`). A
logistic regression of the label on both gives each text's propensity e to be a member. Members have
weight 1 - e and non-members e, the overlap weights of Li, Morgan and Zaslavsky (2018, section 3).
By their theorem 3 both sides then have exactly the same means of both covariates. Balancing a
predicted outcome in addition to the propensity follows Hansen (2008, "The prognostic analogue of
the propensity score"). Then

    A = Σ_i Σ_j w_i w_j (1[s_i > s_j] + ½ 1[s_i = s_j]) / (Σ_i w_i Σ_j w_j)

over members i and non-members j. A is 0.5 if a score depends on membership only through the
covariates. Style that they do not capture remains in A; `leftover_style_auroc` measures it, with a
score of style alone.

Shapes: n texts, D draws, P labelings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from contamination.core.statistics.bootstrap import Counts, Resample, Scores, join_sides, rank_side
from contamination.core.statistics.estimates import Estimate, estimate_without_value
from contamination.core.statistics.metrics import AUROC, Metric
from contamination.detection.baselines.blind import BlindBaseline, estimate_around_null
from contamination.detection.baselines.classifiers import Numbers, StyleRegression

MIN_OVERLAP = 5.0
"""The minimum Σ e (1 - e), reached by 10 members and 10 non-members that nothing distinguishes."""

MATCHED = Metric(
    "matched_auroc", "AUROC, matched on what the texts tell", AUROC.value, AUROC.draws, 0.5
)
"""The metric's name and title; its value and draws are computed by `matched_auroc`."""


def matched_auroc(
    members: Scores,
    nonmembers: Scores,
    covariates: tuple[Scores, Scores] | None,
    resamples: Resample,
) -> Estimate:
    """Returns the matched AUROC, with weights estimated anew for each resample.

    Args:
        members: the members' scores.
        nonmembers: the non-members' scores.
        covariates: the covariates of members and of non-members, in the same order (each n × 2);
            None if there is no blind baseline.
        resamples: the resamples.
    """
    sizes, draws = (len(members), len(nonmembers)), len(resamples.members)
    if covariates is None:
        return estimate_without_value(sizes, draws, "a blind row")
    member = np.repeat([True, False], sizes)
    counts = np.hstack([resamples.members, resamples.nonmembers])
    weights = np.hstack([*_iter_resample_weights(np.concatenate(covariates), member, counts)])
    overlap = float(weights[member, 0].sum())
    if overlap < MIN_OVERLAP:
        return estimate_without_value(
            sizes, draws, "members and non-members that the texts alone do not distinguish"
        )
    aurocs = _weighted_aurocs(members, nonmembers, weights[member].T, weights[~member].T)
    trials = 8 * overlap  # as `auroc_trials`, of the sizes that the weights leave
    return Estimate(*sizes, float(aurocs[0]), aurocs[1:], trials)


def matched_auroc_given_blind(
    blind: BlindBaseline | None,
    member: NDArray[np.bool_],
    members: Scores,
    nonmembers: Scores,
    resamples: Resample,
) -> Estimate:
    """Returns the matched AUROC of a method's scores, given the texts' blind baseline, if any.

    `member` says which texts are members; the scores of both are in the texts' order.
    """
    from scipy.stats import rankdata  # it takes a second to import

    if blind is None or blind.style is None:
        return matched_auroc(members, nonmembers, None, resamples)
    scores = np.empty(len(member))
    scores[member], scores[~member] = members, nonmembers
    covariates = np.column_stack([blind.percentiles[:, 0], blind.style.predict(rankdata(scores))])
    return matched_auroc(members, nonmembers, (covariates[member], covariates[~member]), resamples)


def leftover_style_auroc(style: StyleRegression, sizes: tuple[int, int], draws: int) -> Estimate:
    """Returns the matched AUROC of a score of style alone: 0.5 if matching removes all style.

    The score is the prediction for one half of the texts by a regression on the labels of the other
    half. It is matched within its half, as a method's scores are. The result is the mean over
    several halves, with an interval from shuffled labels, like the blind row's.
    """
    from scipy.stats import rankdata  # it takes a second to import

    aurocs = []
    for inner, scores in style.iter_halves():
        values = inner.labels.astype(np.float64), rankdata(scores, axis=0)
        covariates = _design_matrix(np.stack([inner.predict(values_row) for values_row in values]))
        weights = _overlap_weights(covariates, inner.labels)
        columns = zip(scores.T, inner.labels.T, weights.T, strict=True)
        aurocs.append([_weighted_auroc(*column) for column in columns])
    return estimate_around_null(np.mean(aurocs, axis=0), sizes, MATCHED, draws)


NEWTON_STEPS, RESAMPLE_NEWTON_STEPS = 15, 2
"""Newton steps from zero for all texts; and for a resample, from the coefficients of all texts."""
RIDGE_PENALTY = 0.01
"""The penalty on squared coefficients, which stay finite if the texts separate the labels."""
BLOCK_SIZE = 1 << 20
"""The number of texts times draws per block."""


def _overlap_weights(covariates: Numbers, member: NDArray[np.bool_]) -> Numbers:
    """Returns 1 - e of members and e of non-members (n × P), from covariates (k × n × P)."""
    start = np.zeros((len(covariates), member.shape[1]))
    beta = _fit_logistic(covariates, member, np.ones(member.shape), start, NEWTON_STEPS)
    return _probability_of_other_side(covariates, member, beta)


def _iter_resample_weights(
    text_covariates: Numbers, member: NDArray[np.bool_], counts: Counts
) -> Iterator[Numbers]:
    """Yields the weights of all texts (n × 1), then those of resamples (n × D), block by block."""
    covariates, label = _design_matrix(text_covariates.T[:, :, None]), member[:, None]
    beta_of_all = _fit_logistic(
        covariates, label, np.ones(label.shape), np.zeros((len(covariates), 1)), NEWTON_STEPS
    )
    yield _probability_of_other_side(covariates, label, beta_of_all).astype(np.float32)
    size = max(1, BLOCK_SIZE // len(member))
    for start in range(0, len(counts), size):
        block_counts = counts[start : start + size].T.astype(np.float64)
        start_beta = np.repeat(beta_of_all, block_counts.shape[1], axis=1)
        beta = _fit_logistic(covariates, label, block_counts, start_beta, RESAMPLE_NEWTON_STEPS)
        weights = _probability_of_other_side(covariates, label, beta)
        yield (block_counts * weights).astype(np.float32)


def _design_matrix(covariates: Numbers) -> Numbers:
    """Returns the standardised covariates after a constant ((1 + k) × n × D)."""
    spread = covariates.std(axis=1, keepdims=True)
    standard = (covariates - covariates.mean(axis=1, keepdims=True)) / np.where(
        spread > 1e-12, spread, 1
    )
    return np.concatenate([np.ones_like(standard[:1]), standard])


def _fit_logistic(
    covariates: Numbers, member: NDArray[np.bool_], counts: Numbers, beta: Numbers, steps: int
) -> Numbers:
    """Returns the coefficients (k × D) of logistic regressions after Newton steps from `beta`."""
    prior = RIDGE_PENALTY * np.eye(len(covariates))
    for _ in range(steps):
        propensity = _propensity(covariates, beta)
        gradient = (
            np.einsum("knd,nd->dk", covariates, counts * (member - propensity))
            - RIDGE_PENALTY * beta.T
        )
        hessian = (
            np.einsum(
                "knd,lnd->dkl", covariates, covariates * (counts * propensity * (1 - propensity))
            )
            + prior
        )
        beta = beta + np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0].T
    return beta


def _propensity(covariates: Numbers, beta: Numbers) -> Numbers:
    from scipy.special import expit

    propensity: Numbers = expit((covariates * beta[:, None]).sum(axis=0))
    return propensity


def _probability_of_other_side(
    covariates: Numbers, member: NDArray[np.bool_], beta: Numbers
) -> Numbers:
    propensity = _propensity(covariates, beta)
    return np.where(member, 1 - propensity, propensity)


def _weighted_auroc(scores: Scores, member: NDArray[np.bool_], weights: Scores) -> float:
    side_weights = weights[None, member], weights[None, ~member]
    return float(_weighted_aurocs(scores[member], scores[~member], *side_weights)[0])


DIGITS = 6
"""The number of decimals to which A is rounded: its weights are float32, so 1 is not exact."""


def _weighted_aurocs(
    members: Scores, nonmembers: Scores, member_weights: Scores, nonmember_weights: Scores
) -> Scores:
    """Returns A for each row of the weights of members and of non-members."""
    sides = (members, member_weights), (nonmembers, nonmember_weights)
    ranked = join_sides(*(rank_side(s, np.asarray(w, np.float32)) for s, w in sides))
    pairs = ranked.hits[:, -1].astype(np.float64) * ranked.alarms[:, -1]
    pairs_won = AUROC.draws(ranked) * len(members) * len(nonmembers)
    aurocs = np.where(pairs > 0, pairs_won / np.maximum(pairs, 1e-9), 0.5)
    return aurocs.round(DIGITS).clip(0, 1)
