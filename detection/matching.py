"""What an attack adds beyond the texts: AUROC after matching on the blind score.

Members and non-members are weighted so that both have the same distribution of the blind score,
which a classifier gives that never saw the model (`detection.blind`). With m_k members and n_k
non-members in stratum k of the blind score, a member weighs n_k / (m_k + n_k) and a non-member
m_k / (m_k + n_k): the overlap weights of Li, Morgan and Zaslavsky (2018, section 3), with the share
of members in the stratum as the propensity. Each side then weighs h_k = m_k n_k / (m_k + n_k) in
stratum k, and

    A = Σ_i Σ_j w_i w_j (1[s_i > s_j] + ½ 1[s_i = s_j]) / (Σ_i w_i Σ_j w_j)

over members i and non-members j. Where a score tells of membership only through what the classifier
sees, A is 0.5. What the classifier does not see stays in A.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.bootstrap import Resample, Scores, joined, ranked_side
from core.estimates import Estimate, not_carried
from core.metrics import AUROC, Metric

MOST_STRATA = 40
IN_STRATUM = 10
"""Texts of a stratum at least, on average. Five strata remove 90% of a confounder's bias (Cochran
1968). Strata that fit the labels, as an isotonic fit's, would take true signal away as well: by
0.03 in simulations of 600 texts."""
LEAST = 5.0
"""The least Σ h_k: that of 10 members and 10 non-members of one blind score."""

MATCHED = Metric(
    "matched_auroc", "AUROC, matched on the blind score", AUROC.value, AUROC.draws, 0.5
)
"""Its value and draws are those of `matched`."""


def matched(
    members: Scores, nonmembers: Scores, blind: tuple[Scores, Scores] | None, drawn: Resample
) -> Estimate:
    """The matched AUROC; the weights are those of each draw.

    Args:
        members: their scores.
        nonmembers: theirs.
        blind: the blind scores of both, in the same order; None: there are none.
        drawn: the resamples.
    """
    sizes, draws = (len(members), len(nonmembers)), len(drawn.members)
    if blind is None:
        return not_carried(sizes, draws, "a blind row")
    strata = np.split(strata_of(np.concatenate(blind)), [sizes[0]])
    both = [np.vstack([np.ones(n), d]) for n, d in zip(sizes, _counts(drawn), strict=True)]
    held = [count @ _indicators(own, strata) for count, own in zip(both, strata, strict=True)]
    overlap = _ratio(held[0] * held[1], held[0] + held[1])
    if overlap[0].sum() < LEAST:
        return not_carried(sizes, draws, "texts of both kinds with like blind scores")
    weights = [
        count * _ratio(overlap, each)[:, own]
        for count, each, own in zip(both, held, strata, strict=True)
    ]
    found = _weighted_aurocs((members, nonmembers), weights)
    trials = 8 * float(overlap[0].sum())  # as `auroc_trials`, of the sizes that the weights leave
    return Estimate(*sizes, float(found[0]), found[1:], trials)


def strata_of(blind: Scores) -> NDArray[np.intp]:
    """The stratum of each text: so many by quantiles of the blind score, ties together."""
    number = max(1, min(MOST_STRATA, len(blind) // IN_STRATUM))
    ends = np.quantile(blind, np.linspace(0, 1, number + 1)[1:-1])
    return np.searchsorted(ends, blind, side="right")


def _counts(drawn: Resample) -> tuple[Scores, Scores]:
    return drawn.members.astype(np.float64), drawn.nonmembers.astype(np.float64)


def _indicators(own: NDArray[np.intp], strata: list[NDArray[np.intp]]) -> Scores:
    """Which of one side's texts is in which stratum (n × K)."""
    return np.eye(1 + max(int(s.max()) for s in strata))[own]


def _ratio(above: Scores, below: Scores) -> Scores:
    """The quotient; 0 where nothing is below."""
    found: Scores = np.divide(above, below, out=np.zeros_like(below), where=below > 0)
    return found


def _weighted_aurocs(scores: tuple[Scores, Scores], weights: list[Scores]) -> Scores:
    """A of each row of the weights of members and of non-members."""
    sides = [ranked_side(s, w.astype(np.float32)) for s, w in zip(scores, weights, strict=True)]
    ranked = joined(*sides)
    pairs = ranked.hits[:, -1].astype(np.float64) * ranked.alarms[:, -1]
    won = AUROC.draws(ranked) * len(scores[0]) * len(scores[1])
    return np.where(pairs > 0, won / np.maximum(pairs, 1e-9), 0.5)
