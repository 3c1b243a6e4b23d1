"""What an attack adds beyond the texts: AUROC after matching on what the texts alone tell.

Members and non-members are weighted so that the texts alone no longer tell them apart. Of each text
two things are known without the model: its blind score (`detection.blind`), and what the other
texts' scores of the method predict of its own (`detection.style`). A logistic regression of the
label on both gives each text's propensity e to be a member; a member weighs 1 - e and a non-member
e, the overlap weights of Li, Morgan and Zaslavsky (2018, section 3). By their theorem 3 both sides
then have the same mean of both, exactly. To balance the predicted score beside the propensity is
what Hansen (2008, "The prognostic analogue of the propensity score") is about. Then

    A = Σ_i Σ_j w_i w_j (1[s_i > s_j] + ½ 1[s_i = s_j]) / (Σ_i w_i Σ_j w_j)

over members i and non-members j. Where a score tells of membership only through what these two see,
A is 0.5. What they do not see stays in A: `leftover` measures how much that is, with a score that
is style and nothing else.

Shapes: n texts, D draws, P labelings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from contamination.core.statistics.bootstrap import Counts, Resample, Scores, joined, ranked_side
from contamination.core.statistics.estimates import Estimate, not_carried
from contamination.core.statistics.metrics import AUROC, Metric
from contamination.detection.baselines.blind import Blind, around_null
from contamination.detection.baselines.classifiers import Numbers, Style

STEPS, MORE_STEPS = 15, 2
"""Newton's, from zero; and those of a draw, from where all texts' ended."""
PRIOR = 0.01
"""Of the coefficients' squares: they stay finite where the texts tell labels without an error."""
AT_ONCE = 1 << 20
"""Texts times draws."""
DIGITS = 6
"""Of A, whose weights are float32: what is 1 but for rounding is 1."""
LEAST = 5.0
"""The least Σ e (1 - e): that of 10 members and 10 non-members that nothing tells apart."""

MATCHED = Metric(
    "matched_auroc", "AUROC, matched on what the texts tell", AUROC.value, AUROC.draws, 0.5
)
"""Its value and draws are those of `matched`."""


def matched(
    members: Scores, nonmembers: Scores, covariates: tuple[Scores, Scores] | None, drawn: Resample
) -> Estimate:
    """The matched AUROC; the weights are those of each draw.

    Args:
        members: their scores.
        nonmembers: theirs.
        seen: what is known of each text of both without the model, in the same order (each n × 2);
            None: nothing is.
        drawn: the resamples.
    """
    sizes, draws = (len(members), len(nonmembers)), len(drawn.members)
    if covariates is None:
        return not_carried(sizes, draws, "a blind row")
    member = np.repeat([True, False], sizes)
    counts = np.hstack([drawn.members, drawn.nonmembers])
    weights = np.hstack([*_weights_of_draws(np.concatenate(covariates), member, counts)])
    overlap = float(weights[member, 0].sum())
    if overlap < LEAST:
        return not_carried(sizes, draws, "texts of both kinds that the texts alone tell not apart")
    aurocs = _weighted_aurocs(members, nonmembers, weights[member].T, weights[~member].T)
    trials = 8 * overlap  # as `auroc_trials`, of the sizes that the weights leave
    return Estimate(*sizes, float(aurocs[0]), aurocs[1:], trials)


def matched_by(
    blind: Blind | None,
    member: NDArray[np.bool_],
    members: Scores,
    nonmembers: Scores,
    drawn: Resample,
) -> Estimate:
    """The matched AUROC of a method's scores, by the texts' blind baseline (None: there is none).

    `member` says which texts are members; the scores of both are in the texts' order.
    """
    if blind is None or blind.style is None:
        return matched(members, nonmembers, None, drawn)
    scores = np.empty(len(member))
    scores[member], scores[~member] = members, nonmembers
    covariates = np.column_stack([blind.placed[:, 0], blind.style.predicted(rankdata(scores))])
    return matched(members, nonmembers, (covariates[member], covariates[~member]), drawn)


def leftover(style: Style, sizes: tuple[int, int], draws: int) -> Estimate:
    """The matched AUROC of a score that is style alone: 0.5 where matching takes all style away.

    The score is what a regression on the labels of one half of the texts says of the other half; it
    is matched within that half, as a method's scores are. The mean over several halves. Its
    interval is that of shuffled labels, as the blind row's.
    """
    aurocs = []
    for inner, scores in style.halves():
        values = inner.labels.astype(np.float64), rankdata(scores, axis=0)
        covariates = _with_constant(
            np.stack([inner.predicted(values_row) for values_row in values])
        )
        weights = _overlap_weights(covariates, inner.labels)
        columns = zip(scores.T, inner.labels.T, weights.T, strict=True)
        aurocs.append([_one_auroc(*column) for column in columns])
    return around_null(np.mean(aurocs, axis=0), sizes, MATCHED, draws)


def _overlap_weights(covariates: Numbers, member: NDArray[np.bool_]) -> Numbers:
    """1 - e of members and e of non-members (n × P), of what e depends on (k × n × P)."""
    start = np.zeros((len(covariates), member.shape[1]))
    beta = _newton(covariates, member, np.ones(member.shape), start, STEPS)
    return _other_side(covariates, member, beta)


def _weights_of_draws(
    text_covariates: Numbers, member: NDArray[np.bool_], counts: Counts
) -> Iterator[Numbers]:
    """The weights of all texts as they are (n × 1), then those of draws (n × D), block by block."""
    covariates, label = _with_constant(text_covariates.T[:, :, None]), member[:, None]
    beta_of_all = _newton(
        covariates, label, np.ones(label.shape), np.zeros((len(covariates), 1)), STEPS
    )
    yield _other_side(covariates, label, beta_of_all).astype(np.float32)
    size = max(1, AT_ONCE // len(member))
    for start in range(0, len(counts), size):
        block_counts = counts[start : start + size].T.astype(np.float64)
        beta = _newton(
            covariates,
            label,
            block_counts,
            np.repeat(beta_of_all, block_counts.shape[1], axis=1),
            MORE_STEPS,
        )
        yield (block_counts * _other_side(covariates, label, beta)).astype(np.float32)


def _with_constant(covariates: Numbers) -> Numbers:
    """Standardised, below a constant ((1 + k) × n × D)."""
    spread = covariates.std(axis=1, keepdims=True)
    standard = (covariates - covariates.mean(axis=1, keepdims=True)) / np.where(
        spread > 1e-12, spread, 1
    )
    return np.concatenate([np.ones_like(standard[:1]), standard])


def _newton(
    covariates: Numbers, member: NDArray[np.bool_], counts: Numbers, beta: Numbers, steps: int
) -> Numbers:
    """The coefficients (k × D) of logistic regressions, so many steps on."""
    prior = PRIOR * np.eye(len(covariates))
    for _ in range(steps):
        propensity = _propensity(covariates, beta)
        gradient = (
            np.einsum("knd,nd->dk", covariates, counts * (member - propensity)) - PRIOR * beta.T
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


def _other_side(covariates: Numbers, member: NDArray[np.bool_], beta: Numbers) -> Numbers:
    propensity = _propensity(covariates, beta)
    return np.where(member, 1 - propensity, propensity)


def _one_auroc(scores: Scores, member: NDArray[np.bool_], weights: Scores) -> float:
    both = weights[None, member], weights[None, ~member]
    return float(_weighted_aurocs(scores[member], scores[~member], *both)[0])


def _weighted_aurocs(
    members: Scores, nonmembers: Scores, of_members: Scores, of_nonmembers: Scores
) -> Scores:
    """A of each row of the weights of members and of non-members."""
    sides = (members, of_members), (nonmembers, of_nonmembers)
    ranked = joined(*(ranked_side(s, np.asarray(w, np.float32)) for s, w in sides))
    pairs = ranked.hits[:, -1].astype(np.float64) * ranked.alarms[:, -1]
    won = AUROC.draws(ranked) * len(members) * len(nonmembers)
    aurocs = np.where(pairs > 0, won / np.maximum(pairs, 1e-9), 0.5)
    return aurocs.round(DIGITS).clip(0, 1)
