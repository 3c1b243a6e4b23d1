"""The p-value and the lower bound on ε of an audit with one training run.

Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", arXiv 2305.08846,
theorem 5.2. Each of m examples was in the training data or not, by an independent fair coin. An
auditor who sees the model guesses r of these coins and is right about W of them. If the training
is (ε, δ)-differentially private for one example, then for each v

    P(W ≥ v) ≤ β + 2 m δ · max_{1 ≤ i ≤ v} P(v > B ≥ v − i) / i,
    with B ~ Binomial(r, e^ε / (1 + e^ε)) and β = P(B ≥ v).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

PRECISION = 1e-10
"""Of ε."""


def one_run_p_value(
    examples: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Returns the p-value of the hypothesis that the training is (ε, δ)-differentially private.

    Args:
        examples: the number of coins, m.
        guesses: the number of guessed coins, r.
        correct: the number of right guesses, v.
        epsilon: the ε of the hypothesis.
        delta: its δ.
    """
    if not 0 <= correct <= guesses <= examples:
        raise ValueError(f"{correct} right of {guesses} guesses about {examples} coins")
    right = expit(epsilon)
    beta = float(binom.sf(correct - 1, guesses, right))
    steps = np.arange(1, correct + 1)
    just_below = binom.sf(correct - steps - 1, guesses, right) - beta
    alpha = float(np.max(just_below / steps, initial=0.0))
    return min(1.0, beta + alpha * delta * 2 * examples)


def one_run_epsilon(
    examples: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """Returns the largest ε such that it and all smaller ones are refuted; 0 if none is.

    Args:
        examples: the number of coins, m.
        guesses: the number of guessed coins, r.
        correct: the number of right guesses, v.
        delta: the δ of the hypotheses.
        confidence: a hypothesis is refuted if its p-value is at most 1 − `confidence`.
    """

    def excess(epsilon: float) -> float:
        p_value = one_run_p_value(examples, guesses, correct, epsilon, delta)
        return p_value - (1 - confidence)

    if excess(0.0) > 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) <= 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=PRECISION))
