"""Platt's calibration of a membership score, and its correction for the prevalence.

Platt (1999), "Probabilistic outputs for support vector machines": P(member | s) = σ(a + b s), by
maximum likelihood on examples whose membership is known, with the targets (N₊ + 1) / (N₊ + 2) for
the N₊ members and 1 / (N₋ + 2) for the N₋ non-members. The targets keep b finite when the scores
separate the examples completely.

The share of members among these examples, p, is not that among the items of the benchmark, π. The
likelihood ratio of an item is r = exp(a + b s) (1 − p) / p, and

    d̂ = π r / (π r + 1 − π)        (Saerens, Latinne and Decaestecker 2002, equation 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Values = NDArray[np.float64]

MAX_STEPS, TOLERANCE = 100, 1e-10
HALVINGS = 60
"""Bisections of the prevalence."""
RIDGE = 1e-9
"""Added to the diagonal of the Hessian matrix, which is singular if all scores are equal."""


def fit_logistic(scores: Values, targets: Values, counts: Values) -> tuple[float, float]:
    """Returns the a and b of σ(a + b s) with the maximum likelihood, by Newton's method.

    Args:
        scores: s, shape (examples,).
        targets: values from 0 to 1, shape (examples,).
        counts: how often each example counts, shape (examples,).
    """
    center = float(np.average(scores, weights=counts))
    scale = float(np.sqrt(np.average((scores - center) ** 2, weights=counts))) or 1.0
    design = np.column_stack([np.ones(len(scores)), (scores - center) / scale])

    def loss(of: Values) -> float:
        linear = design @ of
        return float(counts @ (np.logaddexp(0, linear) - targets * linear))

    coefficients = np.array(
        [logit(np.clip(np.average(targets, weights=counts), 1e-6, 1 - 1e-6)), 0]
    )
    current = loss(coefficients)
    for _ in range(MAX_STEPS):
        fitted = expit(design @ coefficients)
        gradient = design.T @ (counts * (fitted - targets))
        curvature = (design * (counts * fitted * (1 - fitted))[:, None]).T @ design
        step = np.linalg.solve(curvature + RIDGE * np.eye(2), gradient)
        while (proposed := loss(coefficients - step)) > current and np.abs(step).max() > TOLERANCE:
            step = step / 2
        coefficients, current = coefficients - step, min(current, proposed)
        if np.abs(step).max() <= TOLERANCE:
            break
    slope = coefficients[1] / scale
    return float(coefficients[0] - slope * center), float(slope)


def fit_platt(scores: Values, member: NDArray[np.bool_], counts: Values) -> tuple[float, float]:
    """Returns Platt's a and b for examples whose membership is known.

    Args:
        scores: shape (examples,).
        member: shape (examples,).
        counts: how often each example is drawn, shape (examples,).
    """
    n_members, n_nonmembers = counts[member].sum(), counts[~member].sum()
    targets = np.where(member, (n_members + 1) / (n_members + 2), 1 / (n_nonmembers + 2))
    return fit_logistic(scores, targets, counts)


def log_likelihood_ratios(
    scores: Values, intercept: float, slope: float, n_members: float, n_nonmembers: float
) -> Values:
    """Returns log r of items: a + b s without the prior log-odds of the examples that were fitted.

    The prior is that of Platt's targets, so the ratio is 1 if the score says nothing.
    """
    total = n_members + n_nonmembers
    targets_sum = n_members * (n_members + 1) / (n_members + 2) + n_nonmembers / (n_nonmembers + 2)
    return intercept + slope * scores - float(logit(targets_sum / total))


def estimate_prevalence(log_ratios: Values, counts: Values) -> float:
    """Returns the share π of members that makes the items' scores most likely.

    It maximises Σ log(π r + 1 − π) + log π + log(1 − π). The last two terms count as one member and
    one non-member, so π is inside (0, 1), and ½ if the scores say nothing. The derivative decreases
    in π, and its root is found by bisection.

    Args:
        log_ratios: log r, shape (items,).
        counts: how often each item is drawn, shape (items,).
    """
    excess = np.expm1(np.clip(log_ratios, -700, 700))
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = counts @ (excess / (1 + middle * excess)) + 1 / middle - 1 / (1 - middle)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return (low + high) / 2


def membership_probabilities(log_ratios: Values, prevalence: float) -> Values:
    """Returns d̂ of items for a share of members. Shape (items,)."""
    probabilities: Values = expit(log_ratios + logit(prevalence))
    return probabilities
