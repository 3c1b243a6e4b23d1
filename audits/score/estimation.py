"""All corrected scores of one table of items, with a bootstrap that repeats every step.

A draw resamples clusters (or items) of each role separately: items of unknown membership, known
members, known non-members. The calibration, the prevalence, the prediction of clean correctness and
ConStat's line are fitted anew in each draw, so the intervals include their uncertainty, and the
scores of a draw are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from contamination.audits.score.constat import expected_accuracy
from contamination.audits.score.epg_ipw import epg_ipw_score
from contamination.audits.score.platt import (
    estimate_prevalence,
    fit_logistic,
    fit_platt,
    log_likelihood_ratios,
    membership_probabilities,
)
from contamination.audits.score.weighted_scores import (
    combined_score,
    imputed_score,
    ipw_score,
    naive_score,
)
from contamination.core.seeds import derive_seed

Values = NDArray[np.float64]
UNKNOWN, MEMBER, NONMEMBER = "unknown", "member", "non-member"
ROLES = (UNKNOWN, MEMBER, NONMEMBER)
NAIVE, HELD_OUT, IPW, EPG_IPW = "naive", "known non-members", "IPW", "EPG-IPW"
IMPUTATION, COMBINED, CONSTAT = "imputation", "combined", "ConStat"
FEWEST_TO_PREDICT = 10
"""The fewest known non-members on which the prediction from reference models is fitted."""


@dataclass(frozen=True)
class Items:
    """A model's answers to the items of a benchmark; all arrays have the length (items,).

    Attributes:
        correct: the observed correctness, from 0 to 1.
        score: the membership score; higher means member.
        role: one of ROLES.
        clusters: the cluster of each item, as integers.
        predicted: the predicted clean correctness, or None.
        references: the correctness of reference models, shape (items, models), or None.
    """

    correct: Values
    score: Values
    role: NDArray[np.str_]
    clusters: NDArray[np.intp]
    predicted: Values | None = None
    references: Values | None = None

    def count(self, role: str) -> int:
        """Returns the number of items of a role."""
        return int((self.role == role).sum())


@dataclass(frozen=True)
class ScoreEstimates:
    """The corrected scores by name, with their draws.

    Attributes:
        values: score by name.
        draws: the score of each draw by name, shape (draws,).
        prevalence: the share of members among the items of unknown membership.
        membership: d̂ of those items, shape (unknown items,).
        predicted: their ĉ, shape (unknown items,), or None.
        slope_draws: the slope of the calibration per standard deviation of the scores, in each
            draw, shape (draws,).
    """

    values: dict[str, float]
    draws: dict[str, Values]
    prevalence: float
    membership: Values
    predicted: Values | None
    slope_draws: Values


def estimate_scores(
    items: Items, draws: int, seed: int, prevalence: float | None = None
) -> ScoreEstimates:
    """Returns all corrected scores that the table allows.

    Args:
        items: the table, with known members and known non-members.
        draws: the number of bootstrap draws.
        seed: of the draws.
        prevalence: the share of members among the unknown items; None: it is estimated.
    """
    n_models = 0 if items.references is None else items.references.shape[1]
    all_models = np.arange(n_models)
    point = _Fit(items, np.ones(len(items.correct)), all_models, prevalence)
    rng = np.random.default_rng(derive_seed(seed, "score draws"))
    fits = []
    for _ in range(draws):
        counts = draw_clusters(items, rng)
        models = rng.integers(0, n_models, n_models) if n_models else all_models
        fits.append(_Fit(items, counts, models, prevalence))
    by_name = {name: np.array([fit.values[name] for fit in fits]) for name in point.values}
    slopes = np.array([fit.slope for fit in fits])
    return ScoreEstimates(
        point.values, by_name, point.prevalence, point.membership, point.predicted, slopes
    )


def draw_clusters(items: Items, rng: np.random.Generator) -> Values:
    """Returns how often each item is drawn when the clusters of each role are resampled."""
    counts = np.zeros(len(items.correct))
    for role in ROLES:
        rows = np.flatnonzero(items.role == role)
        clusters, position = np.unique(items.clusters[rows], return_inverse=True)
        if len(clusters):
            drawn = rng.integers(0, len(clusters), len(clusters))
            counts[rows] = np.bincount(drawn, minlength=len(clusters))[position]
    return counts


class _Fit:
    """The scores of one draw: everything is fitted with its counts."""

    def __init__(
        self,
        items: Items,
        counts: Values,
        models: NDArray[np.intp],
        prevalence: float | None,
    ) -> None:
        self.items, self.counts, self.models = items, counts, models
        self.unknown, self.held_out = items.role == UNKNOWN, items.role == NONMEMBER
        self._fit_membership(prevalence)
        self.predicted = self._predict()
        self.values = self._scores()

    def _fit_membership(self, prevalence: float | None) -> None:
        items, known = self.items, ~self.unknown
        member = items.role[known] == MEMBER
        counts = self.counts[known]
        intercept, slope = fit_platt(items.score[known], member, counts)
        sizes = counts[member].sum(), counts[~member].sum()
        ratios = log_likelihood_ratios(items.score[self.unknown], intercept, slope, *sizes)
        drawn = self.counts[self.unknown]
        self.prevalence = estimate_prevalence(ratios, drawn) if prevalence is None else prevalence
        self.membership = membership_probabilities(ratios, self.prevalence)
        self.slope = slope * float(items.score[known].std())

    def _predict(self) -> Values | None:
        items = self.items
        if items.predicted is not None:
            column: Values = items.predicted[self.unknown]
            return column
        if items.references is None or items.count(NONMEMBER) < FEWEST_TO_PREDICT:
            return None
        mean = items.references.mean(axis=1)
        rows = self.held_out
        intercept, slope = fit_logistic(mean[rows], items.correct[rows], self.counts[rows])
        fitted: Values = expit(intercept + slope * mean[self.unknown])
        return fitted

    def _scores(self) -> dict[str, float]:
        items, counts = self.items, self.counts[self.unknown]
        correct, membership = items.correct[self.unknown], self.membership
        scores = {
            NAIVE: naive_score(correct, counts),
            HELD_OUT: naive_score(items.correct[self.held_out], self.counts[self.held_out]),
            IPW: ipw_score(correct, membership, counts),
            EPG_IPW: epg_ipw_score(correct, membership, counts),
        }
        if self.predicted is not None:
            scores[IMPUTATION] = imputed_score(self.predicted, counts)
            scores[COMBINED] = combined_score(correct, membership, self.predicted, counts)
        if items.references is not None:
            references = items.references[:, self.models]
            on_held_out = self.counts[self.held_out]
            scores[CONSTAT] = expected_accuracy(
                scores[HELD_OUT],
                np.average(references[self.held_out], axis=0, weights=on_held_out),
                np.average(references[self.unknown], axis=0, weights=counts),
                float(on_held_out.sum()),
            )
        return scores
